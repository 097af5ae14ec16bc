"""A synthetic trace of a mail server, for users who have captured none.

Shares, sizes and skew are chosen within the ranges published for such servers. None is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from hemi_lab.errors import LabError
from hemi_lab.units import Size
from hemi_lab.workload import Strict, WeightedSize


def _mail_sizes() -> list[WeightedSize]:
    return [
        WeightedSize(size=512, weight=5),
        WeightedSize(size=4 << 10, weight=45),
        WeightedSize(size=8 << 10, weight=35),
        WeightedSize(size=16 << 10, weight=10),
        WeightedSize(size=32 << 10, weight=5),
    ]


class MailLike(Strict):
    """Parameters of the synthetic trace."""

    rate: Annotated[float, Field(gt=0, le=1_000_000)] = 500.0
    """Mean rate in requests a second."""
    read_percent: Annotated[float, Field(ge=0, le=100)] = 95.0
    sizes: Annotated[list[WeightedSize], Field(min_length=1)] = Field(default_factory=_mail_sizes)
    bursts: Annotated[float, Field(ge=1, le=100)] = 4.0
    """Rate within a burst, as a multiple of the mean."""
    bursting: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Share of the seconds that are bursts."""
    mailboxes: Size = 64 << 20
    """Bytes of one mailbox. The requests of one mailbox stay near one another."""
    hot: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """Share of the requests that go to the hot mailboxes, which are a share of 1 - `hot` of all."""

    @model_validator(mode="after")
    def _bursts_leave_something(self) -> MailLike:
        if self.bursts * self.bursting > 1:
            raise ValueError(
                f"bursts × bursting = {self.bursts * self.bursting:g}: at most 1, or more than "
                "all requests would come in bursts"
            )
        return self


@dataclass(frozen=True)
class Made:
    """Figures of the written trace."""

    requests: int
    read_percent: float
    mean_bytes: float
    span_bytes: int


def mail_like(path: Path, of: MailLike, seconds: float, capacity: int, seed: int) -> Made:
    """Writes a trace for a target of `capacity` bytes, in the format of Alibaba's traces."""
    chance = np.random.default_rng(seed)
    at = _times(of, seconds, chance)
    if not at.size:
        raise LabError("the synthetic stream has no request", "Give it a longer time or rate.")
    count = at.size
    weights = np.array([part.weight for part in of.sizes], dtype=float)
    sizes = np.array([part.size for part in of.sizes], dtype=np.int64)
    size = chance.choice(sizes, count, p=weights / weights.sum())
    mailboxes = max(1, capacity // of.mailboxes)
    hot = max(1, round(mailboxes * (1 - of.hot)))
    # Hot mailboxes are chosen at random, so that not all are at the beginning.
    order = chance.permutation(mailboxes)
    is_hot = chance.random(count) < of.hot
    rank = np.where(is_hot, chance.integers(0, hot, count), chance.integers(0, mailboxes, count))
    inside = chance.integers(0, of.mailboxes // 4096, count) * 4096
    offset = np.minimum(order[rank] * of.mailboxes + inside, capacity - size)
    offset -= offset % 512
    reads = chance.random(count) < of.read_percent / 100
    with path.open("w") as file:
        for begin, read, where, length in zip(at, reads, offset, size, strict=True):
            file.write(f"0,{'R' if read else 'W'},{where},{length},{round(begin * 1e6)}\n")
    return Made(
        count,
        float(100 * reads.mean()),
        float(size.mean()),
        int((offset + size).max() - offset.min()),
    )


def _times(of: MailLike, seconds: float, chance: np.random.Generator) -> np.ndarray:
    """Returns Poisson arrivals, sorted. Some seconds are bursts, and the others make up for
    them."""
    whole = max(1, int(np.ceil(seconds)))
    burst = chance.random(whole) < of.bursting
    calm = of.rate * (1 - of.bursts * of.bursting) / (1 - of.bursting)
    counts = chance.poisson(np.where(burst, of.rate * of.bursts, calm))
    starts = np.repeat(np.arange(whole, dtype=float), counts)
    times = np.sort(starts + chance.random(starts.size))
    return times[times < seconds]
