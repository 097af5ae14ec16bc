"""One measured run, and the ratios of paired runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hemi_harness import Fio, FioResult, Sandbox
from hemi_harness.sandbox import Arg

from .targets import Target


@dataclass(frozen=True)
class Load:
    """A fio job: 4 KiB random reads or writes at one queue depth."""

    name: str
    rw: str
    depth: int
    block: str = "4k"
    options: tuple[tuple[str, Arg], ...] = ()

    @property
    def direction(self) -> Literal["read", "write"]:
        return "read" if "read" in self.rw else "write"

    def start(self, box: Sandbox, target: Target, size: int, seconds: int, **extra: Arg) -> Fio:
        return Fio(
            box,
            target.fio_target,
            rw=self.rw,
            bs=self.block,
            iodepth=self.depth,
            size=size,
            runtime=seconds,
            time_based=1,
            # Each run has a sequence of its own, so no server profits from having seen it.
            randrepeat=0,
            norandommap=1,
            **dict(self.options),
            **extra,
        )


LOADS = (
    Load("read QD1", "randread", 1),
    Load("read QD32", "randread", 32),
    Load("write QD1", "randwrite", 1),
    Load("write QD32", "randwrite", 32),
)


def figures(result: FioResult, cpu_seconds: float | None) -> dict[str, Any]:
    """Returns the figures of one run that the report uses. Times are in microseconds."""
    cpu = cpu_seconds
    if cpu is None:
        cpu = (result.cpu_user + result.cpu_system) / 100 * result.seconds
    return {
        "iops": result.iops,
        "operations": result.operations,
        "mean": result.mean,
        "p50": result.p50,
        "p99": result.p99,
        "p999": result.p999,
        "max": result.max,
        "cpu_per_request": cpu / max(1, result.operations) * 1e6,
    }


def measured(box: Sandbox, target: Target, load: Load, size: int, seconds: int) -> dict[str, Any]:
    """Runs a load and returns its figures."""
    target.ensure()
    before = target.cpu_seconds()
    job = load.start(box, target, size, seconds).wait(seconds + 120)
    after = target.cpu_seconds()
    cpu = None if before is None or after is None else after - before
    return figures(FioResult.parse(job, load.direction), cpu)


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


@dataclass(frozen=True)
class Ratio:
    """Paired ratios: the median, and the lowest and highest pair."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
        ratios = [a / b for a, b in zip(ours, theirs, strict=True) if b]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def thousands(value: float) -> str:
    return f"{value:,.0f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Returns a Markdown table with the first column left and the others right aligned."""
    lines = ["| " + " | ".join(header) + " |"]
    lines.append("|---|" + "---:|" * (len(header) - 1))
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return lines


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"
