"""Open-loop loads, whose requests start at their own times whether or not earlier ones are done.

hemi's own engines make them: `hemi load` on real targets and `hemi sim` on simulated ones."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from hemi_lab.units import Size, Time, counted, shown_size
from hemi_lab.workload import Load, Strict, Zone

TraceFormat = Literal[
    "hemi", "csv", "msr", "spc", "alibaba", "tencent", "blkparse", "fio_iolog", "vscsi"
]
"""The trace formats that hemi reads without more to be said (`hemi trace`)."""


class OpenLoad(Strict):
    """Requests at a rate in an open loop, with Poisson arrivals."""

    pattern: ClassVar[str] = "open"
    zones: ClassVar[tuple[Zone, ...]] = ()
    threads: ClassVar[int | None] = None
    queue_depth: ClassVar[int | None] = None
    span_percent: ClassVar[float] = 100.0

    rate: Annotated[float, Field(gt=0, le=10_000_000)]
    read_percent: Annotated[float, Field(ge=0, le=100)]
    size: Size
    lateness: Annotated[Time, Field(gt=0, le=10)] = 0.001
    """Bound on the engine's own lateness (99 %). Beyond it no latencies are reported."""

    def mean_size(self) -> float:
        """Returns the size of a request in bytes."""
        return float(self.size)

    def writes(self) -> bool:
        """Returns true if it changes the target."""
        return self.read_percent < 100

    def shown(self) -> str:
        """Returns a text such as `4 KiB random 70 % read, 500/s, open loop`."""
        mix = f"{self.read_percent:g} % read"
        return f"{shown_size(self.size)} random {mix}, {self.rate:,.0f}/s, open loop"


class OverLoop(Strict):
    """A load on top of a closed loop, or such a loop made by the open-loop engine.

    Its threads, depth, span and sizes are the loop's."""

    zones: ClassVar[tuple[Zone, ...]] = ()

    over: Load
    lateness: Annotated[Time, Field(gt=0, le=10)] = 0.001
    """Bound on the engine's own lateness (99 %). Beyond it no latencies are reported."""

    @property
    def threads(self) -> int:
        """Threads of the loop."""
        return self.over.threads

    @property
    def queue_depth(self) -> int:
        """Queue depth of the loop."""
        return self.over.queue_depth

    @property
    def span_percent(self) -> float:
        """Share of the target that the loop uses, in percent."""
        return self.over.span_percent

    def mean_size(self) -> float:
        """Returns the loop's mean request size in bytes."""
        return self.over.mean_size()


class CheckpointLoad(OverLoop):
    """Regular bursts of page writes over a closed loop."""

    pattern: ClassVar[str] = "bursts"

    every: Time
    pages: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    page: Size = 8 << 10
    outstanding: Annotated[int, Field(ge=1)] | None = None
    """Page writes in flight at a time. Without it the whole burst is."""

    @property
    def read_percent(self) -> float | None:
        """`None`: the share of reads changes with time."""
        return None

    def writes(self) -> bool:
        """Returns true: bursts write."""
        return True

    def shown(self) -> str:
        """Returns a text of the loop and the burst."""
        pages = f"{counted(self.pages, 'page')} of {shown_size(self.page)}"
        return f"{self.over.shown()}, with {pages} at a time"


class ReferenceLoad(OverLoop):
    """A closed loop to compare another load with, made by that load's engine.

    Two engines do not reach the same rate on a fast target."""

    pattern: ClassVar[str] = "reference"

    @property
    def read_percent(self) -> float | None:
        """Share of reads of the loop, in percent."""
        return self.over.read_percent

    def writes(self) -> bool:
        """Returns true if the loop writes."""
        return self.over.writes()

    def shown(self) -> str:
        """Returns the loop's text."""
        return self.over.shown()


class ReplayLoad(Strict):
    """A trace at its own times, with a bound on the requests in flight."""

    zones: ClassVar[tuple[Zone, ...]] = ()
    pattern: ClassVar[str] = "replay"
    threads: ClassVar[int | None] = None
    span_percent: ClassVar[float] = 100.0

    trace: str
    """An absolute path, or one relative to the directory in which hemi-lab was started."""
    format: TraceFormat | None = None
    """Recognised if it is not named."""
    volume: str | None = None
    """The volume of a trace with several. `*` replays all of them on one target."""
    queue_depth: Annotated[int, Field(ge=1, le=65536)]
    """Effective queue depth. Requests beyond it wait, and the wait is part of their latency."""
    speed: Annotated[float, Field(gt=0)] = 1.0
    reads: Annotated[float, Field(ge=0, le=100)] | None = None
    """Share of reads, if it is known beforehand."""
    bytes_of_a_request: float | None = None
    lateness: Annotated[Time, Field(gt=0, le=10)] = 0.001
    """Bound on the engine's own lateness (99 %). Beyond it no latencies are reported."""

    @model_validator(mode="after")
    def _volume_is_named(self) -> ReplayLoad:
        if self.volume == "":
            raise ValueError("volume: name one of the trace, or '*' for all")
        return self

    @property
    def read_percent(self) -> float | None:
        """Share of reads, if it is known beforehand."""
        return self.reads

    def mean_size(self) -> float | None:
        """Returns the mean request size, if it is known beforehand."""
        return self.bytes_of_a_request

    def writes(self) -> bool:
        """Returns true, since a trace may write."""
        return True

    def shown(self) -> str:
        """Returns a text such as `replay, at most 8 in flight`."""
        speed = f", {self.speed:g} times as fast" if self.speed != 1 else ""
        return f"replay, at most {self.queue_depth} in flight{speed}"


Timed = OpenLoad | CheckpointLoad | ReferenceLoad | ReplayLoad
"""The loads that a driver of closed loops cannot run."""
