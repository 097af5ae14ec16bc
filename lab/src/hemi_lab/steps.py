"""A step: what a driver does in one go, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from hemi_lab.statistics.histogram import Histogram, Moments
from hemi_lab.timed import Timed
from hemi_lab.transactions import OfDatabase
from hemi_lab.workload import Load

INTERVALS = {
    "start_seconds": pl.Float64,
    "length_seconds": pl.Float64,
    "operation": pl.String,
    "count": pl.Int64,
    "bytes": pl.Int64,
    "mean_seconds": pl.Float64,
    "maximum_seconds": pl.Float64,
    "standard_deviation_seconds": pl.Float64,
}
"""Columns of a step's intervals; `start_seconds` counts from the step's begin."""

CAUSES = {
    "start_seconds": pl.Float64,
    "length_seconds": pl.Float64,
    "leg": pl.Int64,
    "name": pl.String,
    "value": pl.Float64,
}
"""Columns of a step's causes, one row a figure; `leg` is null for the whole volume."""


RECORDS = {
    "operation": pl.String,
    "bytes": pl.Int64,
    "start_seconds": pl.Float64,
    "end_seconds": pl.Float64,
}
"""Columns of a step's requests: when each was meant to go and when it was done, from the first
request on."""


@dataclass(frozen=True)
class StallPhase:
    """A time in which shares of a leg's requests take longer by a delay."""

    seconds: float
    reads: float
    """Share of them, 0 to 1."""
    writes: float
    delay: float
    """Seconds."""


@dataclass(frozen=True)
class Fault:
    """A leg that stops answering while a step's load goes on, or whose requests stall one by
    one."""

    leg: int
    after: float
    """Seconds of load before it."""
    seconds: float
    """How long it lasts."""
    stalls: tuple[StallPhase, ...] = ()
    """One after another, as long as `seconds` together; none: the leg freezes."""
    seed: int = 0
    """Which requests stall."""


@dataclass(frozen=True)
class Step:
    """One thing to do: a load for a time or for an amount of bytes, or nothing for a time."""

    test: str
    """The test of the plan it belongs to."""
    stage: str
    """What it is for: `precondition`, `round`, `measure`, `baseline`, `idle`."""
    label: str
    """What a reader tells it by."""
    load: Load | Timed | OfDatabase | None = None
    """`None` is idle."""
    seconds: float | None = None
    bytes: int | None = None
    """Ends after so many bytes instead."""
    round: int | None = None
    seed: int = 0
    histogram: bool = True
    """Whether its bins are kept; not for preconditioning."""
    fault: Fault | None = None
    """Keeps every request of the step, too: `StepResult.records`."""


@dataclass(frozen=True)
class Operation:
    """One kind of request in a step. Latencies count from when it was to be issued."""

    moments: Moments = field(default_factory=Moments)
    bytes: int = 0
    histogram: Histogram = field(default_factory=Histogram)
    """Ends at the exact maximum of `moments`, whatever bins it was made of."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "histogram", self.histogram.cut(self.moments.maximum))


@dataclass(frozen=True)
class Little:
    """Little's law: the mean number in the system, and rate times mean stay."""

    in_system: float
    """Watched by the driver, or the number the load keeps under way."""
    rate_by_stay: float

    @property
    def deviation(self) -> float:
        """How far the two are apart, as a share."""
        return abs(self.rate_by_stay / self.in_system - 1) if self.in_system else 0.0


@dataclass(frozen=True)
class Lateness:
    """How late an open-loop engine issued what it intended, in seconds."""

    p50: float
    p99: float
    bound: float


@dataclass(frozen=True)
class StepResult:
    """What was found. A driver that does not know a thing leaves it out and notes why."""

    seconds: float
    """From the first request to the end of the last."""
    operations: dict[str, Operation]
    """By kind (`read`, `write`, `flush`) and `all`."""
    issued: int
    completed: int
    intervals: pl.DataFrame
    causes: pl.DataFrame
    little: Little | None = None
    lateness: Lateness | None = None
    cpu_seconds: float | None = None
    """Processor time of the generator, all threads."""
    energy_joules: float | None = None
    command: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be done as asked, a sentence each."""
    interrupted: bool = False
    records: pl.DataFrame | None = None
    """Every request, of a step with a fault."""
    began: float | None = None
    """When the first request went, seconds since 1970; of a step with a fault."""
    fault: tuple[float, float] | None = None
    """From when to when the fault lasted, on the axis of the intervals."""

    @property
    def all(self) -> Operation:
        """Every kind together."""
        return self.operations.get("all", Operation())

    @property
    def iops(self) -> float:
        """Requests a second."""
        return self.all.moments.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes a second."""
        return self.all.bytes / self.seconds if self.seconds > 0 else 0.0


def no_intervals() -> pl.DataFrame:
    """Intervals of a step in which nothing ended."""
    return pl.DataFrame(schema=INTERVALS)


def no_causes() -> pl.DataFrame:
    """Causes of a target that tells none."""
    return pl.DataFrame(schema=CAUSES)
