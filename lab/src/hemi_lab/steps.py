"""Steps: one task of a driver each, and its result."""

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
"""Columns of a step's intervals. `start_seconds` counts from the start of the step."""

CAUSES = {
    "start_seconds": pl.Float64,
    "length_seconds": pl.Float64,
    "leg": pl.Int64,
    "name": pl.String,
    "value": pl.Float64,
}
"""Columns of a step's causes, one row for each figure. `leg` is null for the whole volume."""


RECORDS = {
    "operation": pl.String,
    "bytes": pl.Int64,
    "start_seconds": pl.Float64,
    "end_seconds": pl.Float64,
}
"""Columns of a step's requests: their intended start and their end, counted from the first
request."""


@dataclass(frozen=True)
class StallPhase:
    """A time in which a share of a leg's requests takes longer by `delay`."""

    seconds: float
    reads: float
    """Share of the reads that stall, 0 to 1."""
    writes: float
    delay: float
    """Delay in seconds."""


@dataclass(frozen=True)
class Fault:
    """A leg that freezes while a step's load runs, or whose single requests stall."""

    leg: int
    after: float
    """Seconds of load before the fault."""
    seconds: float
    """Duration of the fault."""
    stalls: tuple[StallPhase, ...] = ()
    """Phases in order, `seconds` long together. If empty, the leg freezes."""
    seed: int = 0
    """Seed of the choice of stalled requests."""


@dataclass(frozen=True)
class Step:
    """One task: a load for a time or for an amount of bytes, or idling for a time."""

    test: str
    """Name of the test it belongs to."""
    stage: str
    """Purpose: `precondition`, `round`, `measure`, `baseline` or `idle`."""
    label: str
    """Name of the step for readers."""
    load: Load | Timed | OfDatabase | None = None
    """`None` idles."""
    seconds: float | None = None
    bytes: int | None = None
    """Ends the step after this many bytes instead."""
    round: int | None = None
    seed: int = 0
    histogram: bool = True
    """True if its histogram is kept. Preconditioning keeps none."""
    fault: Fault | None = None
    """A fault also makes the step keep every request, in `StepResult.records`."""


@dataclass(frozen=True)
class Operation:
    """One kind of request in a step. Latencies count from the intended start."""

    moments: Moments = field(default_factory=Moments)
    bytes: int = 0
    histogram: Histogram = field(default_factory=Histogram)
    """Ends at the exact maximum of `moments`, whatever its bins are."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "histogram", self.histogram.cut(self.moments.maximum))


@dataclass(frozen=True)
class Little:
    """Little's law: the mean number of requests in the system, and rate times mean latency."""

    in_system: float
    """Observed by the driver, or the number of requests the load keeps in flight."""
    rate_by_stay: float

    @property
    def deviation(self) -> float:
        """Returns the distance between the two, as a share."""
        return abs(self.rate_by_stay / self.in_system - 1) if self.in_system else 0.0


@dataclass(frozen=True)
class Lateness:
    """Lateness of an open-loop engine's requests, in seconds."""

    p50: float
    p99: float
    bound: float


@dataclass(frozen=True)
class StepResult:
    """Result of a step. A driver leaves out what it cannot measure and notes why."""

    seconds: float
    """Time from the first request to the end of the last."""
    operations: dict[str, Operation]
    """Figures of each kind (`read`, `write`, `flush`), and of `all`."""
    issued: int
    completed: int
    intervals: pl.DataFrame
    causes: pl.DataFrame
    little: Little | None = None
    lateness: Lateness | None = None
    cpu_seconds: float | None = None
    """Processor time of all threads of the generator."""
    energy_joules: float | None = None
    command: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes on everything that was not done as asked, one sentence each."""
    interrupted: bool = False
    records: pl.DataFrame | None = None
    """Every request, if the step has a fault."""
    began: float | None = None
    """Start of the first request in seconds since 1970, if the step has a fault."""
    fault: tuple[float, float] | None = None
    """Begin and end of the fault, on the axis of the intervals."""

    @property
    def all(self) -> Operation:
        """All kinds of request together."""
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
    """Returns the empty table of a step in which nothing completed."""
    return pl.DataFrame(schema=INTERVALS)


def no_causes() -> pl.DataFrame:
    """Returns the empty table of a target that reports no causes."""
    return pl.DataFrame(schema=CAUSES)
