"""Loads on a target, in the lab's own description. Every driver translates it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from hemi_lab.units import Size, shown_size

OPERATIONS = ("read", "write", "flush")
"""Kinds of request as the tables name them. `all` is every kind together."""


class Strict(BaseModel):
    """Refuses keys it does not know, and does not change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WeightedSize(Strict):
    """One size of a mix."""

    size: Size
    weight: Annotated[int, Field(ge=1, le=1_000_000)]


class Zone(Strict):
    """A share of the requests that goes to a share of the span, in percent."""

    accesses: Annotated[float, Field(gt=0, le=100)]
    space: Annotated[float, Field(gt=0, le=100)]


class Load(Strict):
    """A closed loop: threads that each keep `queue_depth` requests in flight."""

    read_percent: Annotated[float, Field(ge=0, le=100)]
    sizes: Size | list[WeightedSize]
    """One size, or a mix. The same for reads and writes."""
    pattern: Literal["random", "sequential"] = "random"
    zones: list[Zone] = []
    """Zones of random requests. If empty, they are spread evenly."""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    queue_depth: Annotated[int, Field(ge=1, le=4096)] = 1
    span_percent: Annotated[float, Field(gt=0, le=100)] = 100.0
    """Share of the target that is used, from its beginning (the PTS's ActiveRange)."""

    @model_validator(mode="after")
    def _check(self) -> Load:
        for size in self.mix():
            if size.size < 512 or size.size % 512:
                raise ValueError(f"sizes: {size.size} B is not a multiple of 512 B")
        if self.zones:
            if self.pattern != "random":
                raise ValueError("zones: only random requests go to zones")
            for key in ("accesses", "space"):
                total = sum(getattr(zone, key) for zone in self.zones)
                if abs(total - 100) > 1e-6:
                    raise ValueError(f"zones: {key} add up to {total:g}; write percentages of 100")
        return self

    def mix(self) -> list[WeightedSize]:
        """Returns the sizes as a mix of one or several."""
        if isinstance(self.sizes, list):
            return self.sizes
        return [WeightedSize(size=self.sizes, weight=1)]

    def mean_size(self) -> float:
        """Returns the mean request size in bytes."""
        mix = self.mix()
        return sum(part.size * part.weight for part in mix) / sum(part.weight for part in mix)

    @property
    def outstanding(self) -> int:
        """Requests in flight at a time."""
        return self.threads * self.queue_depth

    def writes(self) -> bool:
        """Returns true if it changes the target."""
        return self.read_percent < 100

    def write_counterpart(self) -> Load:
        """Returns the same load with writes only, to precondition a read-only profile."""
        return self.model_copy(update={"read_percent": 0.0})

    def shown(self) -> str:
        """Returns a text such as `4 KiB random 70 % read, 16T/16Q`."""
        sizes = shown_size(self.sizes) if isinstance(self.sizes, int) else "mixed sizes"
        mix = {100.0: "read", 0.0: "write"}.get(self.read_percent, f"{self.read_percent:g} % read")
        where = f", first {self.span_percent:g} %" if self.span_percent < 100 else ""
        return f"{sizes} {self.pattern} {mix}, {self.threads}T/{self.queue_depth}Q{where}"
