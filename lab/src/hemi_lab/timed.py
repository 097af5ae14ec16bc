"""Loads with times of their own: requests come when they are meant to, done or not. hemi's own
engines make them, `hemi load` on real targets and `hemi sim` on simulated ones."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from hemi_lab.units import Size, Time, shown_size
from hemi_lab.workload import Load, Strict, Zone

TraceFormat = Literal["fio_iolog", "msr", "alibaba", "tencent", "spc", "blkparse", "hemi"]
"""The formats of `hemi sim`'s traces; `hemi` is what `hemi serve --record` writes."""


class OpenLoad(Strict):
    """Requests at a rate, at random times (Poisson), whether or not the earlier ones are done."""

    pattern: ClassVar[str] = "open"
    zones: ClassVar[tuple[Zone, ...]] = ()
    threads: ClassVar[int | None] = None
    queue_depth: ClassVar[int | None] = None
    span_percent: ClassVar[float] = 100.0

    rate: Annotated[float, Field(gt=0, le=10_000_000)]
    read_percent: Annotated[float, Field(ge=0, le=100)]
    size: Size
    lateness: Annotated[Time, Field(gt=0, le=10)] = 0.001
    """How late the engine itself may be (99 %) for its latencies to be the target's; beyond there
    are none."""

    def mean_size(self) -> float:
        """Bytes of a request."""
        return float(self.size)

    def writes(self) -> bool:
        """Whether it changes the target."""
        return self.read_percent < 100

    def shown(self) -> str:
        """`4 KiB random, 70 % read, 500/s`."""
        mix = f"{self.read_percent:g} % read"
        return f"{shown_size(self.size)} random {mix}, {self.rate:,.0f}/s, open loop"


class OverLoop(Strict):
    """What is over a closed loop, or is that loop by the engine of such loads: its threads, depth,
    span and sizes are the loop's."""

    zones: ClassVar[tuple[Zone, ...]] = ()

    over: Load
    lateness: Annotated[Time, Field(gt=0, le=10)] = 0.001
    """How late the engine itself may be (99 %) for its latencies to be the target's; beyond there
    are none."""

    @property
    def threads(self) -> int:
        """Of the loop."""
        return self.over.threads

    @property
    def queue_depth(self) -> int:
        """Of the loop."""
        return self.over.queue_depth

    @property
    def span_percent(self) -> float:
        """Of the loop."""
        return self.over.span_percent

    def mean_size(self) -> float:
        """Bytes of a request of the loop."""
        return self.over.mean_size()


class CheckpointLoad(OverLoop):
    """Every so often a burst of page writes, over a closed loop."""

    pattern: ClassVar[str] = "bursts"

    every: Time
    pages: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    page: Size = 8 << 10
    outstanding: Annotated[int, Field(ge=1)] | None = None
    """Page writes under way at a time; all at once without it."""

    @property
    def read_percent(self) -> float | None:
        """Of a load whose shares change with time there is none."""
        return None

    def writes(self) -> bool:
        """It does."""
        return True

    def shown(self) -> str:
        """The load below and what a burst is."""
        return (
            f"{self.over.shown()}, with {self.pages:,} pages of {shown_size(self.page)} at a time"
        )


class ReferenceLoad(OverLoop):
    """A closed loop to hold another load against, made by that load's engine: two engines do not
    reach the same on a fast target."""

    pattern: ClassVar[str] = "reference"

    @property
    def read_percent(self) -> float | None:
        """Of the loop."""
        return self.over.read_percent

    def writes(self) -> bool:
        """Whether the loop does."""
        return self.over.writes()

    def shown(self) -> str:
        """The loop."""
        return self.over.shown()


class ReplayLoad(Strict):
    """A trace at its own times, with so many requests under way at the most."""

    zones: ClassVar[tuple[Zone, ...]] = ()
    pattern: ClassVar[str] = "replay"
    threads: ClassVar[int | None] = None
    span_percent: ClassVar[float] = 100.0

    trace: str
    """An absolute path, or one relative to where hemi-lab was started."""
    format: TraceFormat
    volume: str | None = None
    """The volume of the trace, where it has several; `*` lays all over one another."""
    queue_depth: Annotated[int, Field(ge=1, le=65536)]
    """Effective queue depth: requests beyond wait, and their wait is latency."""
    speed: Annotated[float, Field(gt=0)] = 1.0
    reads: Annotated[float, Field(ge=0, le=100)] | None = None
    """Share of reads, where it is known beforehand."""
    bytes_of_a_request: float | None = None
    lateness: Annotated[Time, Field(gt=0, le=10)] = 0.001
    """How late the engine itself may be (99 %) for its latencies to be the target's; beyond there
    are none."""

    @model_validator(mode="after")
    def _volume_is_named(self) -> ReplayLoad:
        if self.volume == "":
            raise ValueError("volume: name one of the trace, or '*' for all")
        return self

    @property
    def read_percent(self) -> float | None:
        """Where it is known beforehand."""
        return self.reads

    def mean_size(self) -> float | None:
        """Where it is known beforehand."""
        return self.bytes_of_a_request

    def writes(self) -> bool:
        """A trace has to be thought to."""
        return True

    def shown(self) -> str:
        """`replay, 8 under way at the most`."""
        speed = f", {self.speed:g} times as fast" if self.speed != 1 else ""
        return f"replay, at most {self.queue_depth} under way{speed}"


Timed = OpenLoad | CheckpointLoad | ReferenceLoad | ReplayLoad
"""What a closed loop's driver cannot do."""
