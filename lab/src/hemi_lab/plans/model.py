"""The keys of a plan (docs/lab/plans.md). Each kind of test has its method in `methods/`."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from hemi_lab.database.scans import ScanSettings
from hemi_lab.database.settings import (
    STANDARD_IDLE_SECONDS,
    STANDARD_POOL_SHARE,
    STANDARD_SECONDS,
    STANDARD_THREADS,
    STANDARD_WARM_UP_SECONDS,
    BadSetting,
    Checks,
    Distribution,
    OltpSettings,
    Workload,
    placement,
)
from hemi_lab.timed import CheckpointLoad, OpenLoad, TraceFormat
from hemi_lab.traces import MailLike
from hemi_lab.units import Size, Time, shown_time
from hemi_lab.workload import Load, Strict

Percent = Annotated[float, Field(ge=0, le=100)]
Count = Annotated[int, Field(ge=1, le=4096)]
Placed = Literal["A/A", "A/B", "B/A", "B/B"]
"""Places of a database's data and log."""


class Fill(Strict):
    """Writes the whole target first."""

    size: Size = 128 << 10
    times: Annotated[float, Field(gt=0, le=10)] = 2.0
    most: Time | None = None
    """Longest time of the fill. If it ends the fill early, the report says so."""


class Test(Strict):
    """The keys that every test has."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    purge: bool = True
    fill: Fill | None = None
    start: Literal["fresh", "steady"] = "fresh"
    """State of a simulated drive after its purge. `steady`: as long random writes leave its flash,
    instead of the fill. No real drive can be put into that state at once, so these are filled."""

    @model_validator(mode="after")
    def _starts_from_a_purge(self) -> Test:
        if self.start == "steady" and not self.purge:
            raise ValueError("start: a test without a purge starts as the one before left it")
        return self


class Cell(Strict):
    """One load of a matrix: a share of reads and a size."""

    read_percent: Percent
    size: Size


class MatrixTest(Test):
    """Rounds over all cells of read shares × sizes until the tracked cells are steady.

    These are the PTS's IOPS, throughput and latency tests. The figures are those of the steady
    window."""

    kind: Literal["matrix"]
    figure: Literal["iops", "bandwidth", "latency"] = "iops"
    read_percents: Annotated[list[Percent], Field(min_length=1)]
    sizes: Annotated[list[Size], Field(min_length=1)]
    pattern: Literal["random", "sequential"] = "random"
    threads: Count = 1
    queue_depth: Count = 1
    cell: Time = 60.0
    tracked: Annotated[list[Cell], Field(min_length=1)]
    most_rounds: Annotated[int, Field(ge=5, le=100)] = 25

    @model_validator(mode="after")
    def _tracked_are_cells(self) -> MatrixTest:
        for cell in self.tracked:
            if cell.read_percent not in self.read_percents or cell.size not in self.sizes:
                raise ValueError(
                    f"tracked: {cell.size} B, {cell.read_percent:g} % read is no cell of the "
                    "matrix; name one of its read_percents and sizes"
                )
        return self


class SaturationTest(Test):
    """One write load from fresh, for a time or a number of capacities.

    This is the PTS's write saturation test."""

    kind: Literal["saturation"]
    load: Load
    point: Time = 60.0
    """Length of one point of the curve."""
    time: Time = 24 * 3600.0
    fills: Annotated[float, Field(gt=0)] = 4.0
    """Capacities written after which the test ends early."""


class IdleRecoveryTest(Test):
    """Tests whether idling restores speed: the PTS's host idle recovery test.

    Bursts of writes alternate with ever longer rests, and the steady load runs again after each
    length."""

    kind: Literal["idle-recovery"]
    load: Load
    burst: Time = 5.0
    rests: Annotated[list[Time], Field(min_length=1)]
    bursts: Annotated[int, Field(ge=1)] = 360
    """Bursts with each length of rest."""
    baseline: Time = 1800.0
    round: Time = 60.0
    most_rounds: Annotated[int, Field(ge=5, le=100)] = 25


class Section(Strict):
    """One load for a time."""

    load: Load
    time: Time


class CrossStimulusTest(Test):
    """The effect of one load on the next: the PTS's cross stimulus recovery test."""

    kind: Literal["cross-stimulus"]
    sections: Annotated[list[Section], Field(min_length=2)]
    point: Time = 60.0


class Precondition(Strict):
    """Brings the target into its state by a test's own load."""

    threads: Count = 16
    queue_depth: Count = 16
    round: Time = 60.0
    time: Time = 6 * 3600.0
    """Longest time."""
    fills: Annotated[float, Field(ge=0)] = 2.0
    """Capacities written before a window may count as steady. A fresh drive is even too."""


class SweepTest(Test):
    """A load at several thread counts and queue depths, preconditioned with itself.

    A read-only load is preconditioned with its write counterpart."""

    kind: Literal["sweep"]
    load: Load
    precondition: Precondition | None = None
    points: Annotated[list[tuple[Count, Count]], Field(min_length=1)]
    """Points as `[threads, queue depth]`."""
    time: Time = 60.0
    repeat_first: bool = True
    """Measures the first point again at the end, to show drift."""


class DemandIntensityTest(Test):
    """Rounds over threads × queue depths until steady: the PTS's demand intensity test.

    Histograms are made at three points: the least demand, the most within a response time, and one
    between."""

    kind: Literal["demand-intensity"]
    load: Load
    threads: Annotated[list[Count], Field(min_length=1)]
    queue_depths: Annotated[list[Count], Field(min_length=1)]
    cell: Time = 60.0
    response: Time = 0.005
    """Longest mean latency of the point of most demand."""
    histogram: Time = 600.0
    most_rounds: Annotated[int, Field(ge=5, le=100)] = 25


class FreezeTest(Test):
    """Freezes each leg in turn under load, for several lengths.

    The test shows the latencies of clients, the debt of the leg, and the time it takes to drain."""

    kind: Literal["freeze"]
    load: Load | None = None
    """A closed loop. Give either this or `open`."""
    open: OpenLoad | None = None
    """An open loop."""
    freezes: Annotated[list[Annotated[Time, Field(gt=0, le=600)]], Field(min_length=1)]
    """Lengths of the freezes. They are never scaled."""
    legs: Annotated[list[Annotated[int, Field(ge=0, le=7)]], Field(default_factory=list)]
    """Legs to freeze. By default all."""
    calm: Time = 15.0
    before: Time = 5.0
    after: Time = 15.0
    """Load after the thaw, while the leg drains."""
    settle: Time = 120.0
    """Longest wait before each step for the legs to be identical."""

    @model_validator(mode="after")
    def _one_load(self) -> FreezeTest:
        if (self.load is None) == (self.open is None):
            raise ValueError("write either load (a closed loop) or open (an open one)")
        return self


class PlannedStalls(Strict):
    """A phase in which single requests of a leg stall. Without shares, none do."""

    time: Annotated[Time, Field(gt=0)]
    read_percent: Percent = 0.0
    """Share of the leg's reads that stall."""
    write_percent: Percent = 0.0
    """Share of all its other requests that stall."""
    delay: Annotated[Time, Field(ge=0, le=3600)] = 0.0
    """Delay of a stalled request. It is never scaled."""

    @model_validator(mode="after")
    def _has_a_delay(self) -> PlannedStalls:
        if (self.read_percent or self.write_percent) and not self.delay:
            raise ValueError("delay: say by how much requests stall")
        return self

    def shown(self) -> str:
        """Returns a text such as `50 ms on 10 % of reads, 25 % of writes`."""
        if not (self.read_percent or self.write_percent):
            return "health"
        shares = f"{self.read_percent:g} % of reads, {self.write_percent:g} % of writes"
        return f"{shown_time(self.delay)} on {shares}"


class StallTest(Test):
    """Stalls single requests of a leg under load, in phases. Shows the latencies of clients in
    each."""

    kind: Literal["stalls"]
    open: OpenLoad
    """An open loop, since a closed one hides stalls."""
    phases: Annotated[list[PlannedStalls], Field(min_length=1, max_length=64)]
    leg: Annotated[int, Field(ge=0, le=7)] = 1
    before: Time = 10.0
    """Load without a fault."""
    after: Time = 30.0
    """Load after the last phase, while the leg drains."""
    settle: Time = 120.0
    """Longest wait before the step for the legs to be identical."""


class CheckpointTest(Test):
    """Bursts of page writes over a load, as a database's checkpoints make them."""

    kind: Literal["checkpoints"]
    load: CheckpointLoad
    calm: Time = 30.0
    """Load without bursts before."""
    time: Time = 120.0


class ReplayTest(Test):
    """A trace at several effective queue depths, or a synthetic one."""

    kind: Literal["replay"]
    trace: str | None = None
    format: TraceFormat | None = None
    volume: str | None = None
    queue_depths: Annotated[list[Count], Field(min_length=1)]
    speed: Annotated[float, Field(gt=0)] = 1.0
    time: Time = 60.0
    """Length of the trace that is replayed."""
    lateness: Annotated[Time, Field(gt=0, le=10)] = 0.001
    """Bound on the engine's own lateness (99 %). Beyond it no latencies are reported."""
    synthetic: MailLike = MailLike()


class DatabaseTest(Test):
    """MariaDB on the target under sysbench, at rising thread counts.

    Each placement of data and log is measured, with its tables loaded anew."""

    kind: Literal["database"]
    purge: Literal[False] = False
    fill: None = None
    workload: Workload
    threads: Annotated[tuple[Count, ...], Field(min_length=1)] = STANDARD_THREADS
    time: Time = STANDARD_SECONDS
    idle: Time = STANDARD_IDLE_SECONDS
    warm_up: Time = STANDARD_WARM_UP_SECONDS
    placements: Annotated[tuple[Placed, ...], Field(min_length=1)] = ("A/A",)
    """Placements of data and log. Those with a B are left out if there is only one target."""
    warehouses: int = OltpSettings.warehouses
    items: int = OltpSettings.items
    customers: int = OltpSettings.customers
    checks: Checks = OltpSettings.checks
    tables: int = OltpSettings.tables
    rows: int = OltpSettings.rows
    distribution: Distribution = OltpSettings.distribution
    pool_share: float = STANDARD_POOL_SHARE
    server_options: Annotated[dict[str, str], Field(default_factory=dict)]

    @model_validator(mode="after")
    def _can_be_run(self) -> DatabaseTest:
        for key in ("threads", "placements"):
            if len(set(values := getattr(self, key))) < len(values):
                raise ValueError(f"{key}: one is named twice; --repeat measures it again")
        try:
            self.settings(1.0, 1)
        except BadSetting as error:
            raise ValueError(str(error)) from error
        return self

    def settings(self, time_scale: float, seed: int) -> OltpSettings:
        """Returns the settings of the database part. Times are whole seconds, a step's at least
        one."""
        # Keys of the same name mean the same in both.
        shared = {
            field.name: getattr(self, field.name)
            for field in fields(OltpSettings)
            if field.name in type(self).model_fields and field.name != "placements"
        }
        return OltpSettings(
            **shared,
            seconds=max(1, round(self.time * time_scale)),
            idle_seconds=round(self.idle * time_scale),
            warm_up_seconds=round(self.warm_up * time_scale),
            placements=tuple(placement(text) for text in self.placements),
            # Neither 0, which would mean the time, nor close to the largest, since each step adds
            # one.
            seed=seed % 2**30 + 1,
        )


class ScanTest(Test):
    """Scans of one table on target A.

    The table is read in key order, by the secondary index alone and row by row through it, and in
    key order from a contiguous and from a fragmented file."""

    kind: Literal["scans"]
    purge: Literal[False] = False
    fill: None = None
    rows: int = ScanSettings.rows
    repeats: int = ScanSettings.repeats
    pool_share: float = ScanSettings.pool_share
    piece: Size = ScanSettings.piece_bytes
    """Piece size of the fragmented file."""

    @model_validator(mode="after")
    def _can_be_run(self) -> ScanTest:
        try:
            self.settings(1)
        except BadSetting as error:
            raise ValueError(str(error)) from error
        return self

    def settings(self, seed: int) -> ScanSettings:
        """Returns the settings of the database part."""
        return ScanSettings(self.rows, self.repeats, self.pool_share, self.piece, seed % 2**30 + 1)


AnyTest = Annotated[
    MatrixTest
    | SaturationTest
    | IdleRecoveryTest
    | CrossStimulusTest
    | SweepTest
    | DemandIntensityTest
    | FreezeTest
    | StallTest
    | CheckpointTest
    | ReplayTest
    | DatabaseTest
    | ScanTest,
    Field(discriminator="kind"),
]


class Plan(Strict):
    """A plan: its tests in order, on one kind of target."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str
    source: str
    """Origin of the methodology, and the choices made where it is silent."""
    tests: Annotated[list[AnyTest], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_differ(self) -> Plan:
        names = [test.name for test in self.tests]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"tests: two are called {name!r}; give each a name of its own")
        return self

    @model_validator(mode="after")
    def _one_kind_of_target(self) -> Plan:
        kinds = {isinstance(test, DatabaseTest | ScanTest) for test in self.tests}
        if len(kinds) > 1:
            raise ValueError(
                "tests: some are of databases and some are not; they need other targets: write "
                "two plans"
            )
        return self

    @property
    def of_databases(self) -> bool:
        """True if its tests run a database on the target."""
        return any(isinstance(test, DatabaseTest | ScanTest) for test in self.tests)

    def placed(self, second: bool) -> Plan:
        """Returns the plan without the placements that need a second target, if there is none."""
        tests: list[AnyTest] = []
        for test in self.tests:
            if isinstance(test, DatabaseTest) and not second:
                kept = tuple(text for text in test.placements if "B" not in text)
                if kept:
                    tests.append(test.model_copy(update={"placements": kept}))
            else:
                tests.append(test)
        return self.model_copy(update={"tests": tests})

    def chosen(self, names: list[str]) -> Plan:
        """Returns the plan with only these tests. A name that ends in `*` selects all with its
        prefix.

        A chosen test may rely on an earlier one's purge, fill and preconditioning. If that test is
        left out, the chosen one starts with them, or it would read what was never written."""
        if not names:
            return self

        def wanted(test: Test) -> bool:
            return any(
                test.name == name or (name.endswith("*") and test.name.startswith(name[:-1]))
                for name in names
            )

        tests: list[AnyTest] = []
        prepared: dict[str, Any] = {}
        for test in self.tests:
            own = {key: getattr(test, key, None) for key in ("purge", "fill", "precondition")}
            own["start"] = test.start if test.start != "fresh" else None
            own = {key: value for key, value in own.items() if value}
            # A purge is a new beginning. All else adds to what there is.
            before = {} if "purge" in own else prepared
            if not wanted(test):
                prepared = {**before, **own}
                continue
            given = {
                key: value for key, value in before.items() if key not in own and hasattr(test, key)
            }
            # The target is ready for the tests that follow.
            prepared = {}
            tests.append(test.model_copy(update=given) if given else test)
        return self.model_copy(update={"tests": tests})


__all__ = [
    "AnyTest",
    "Cell",
    "CheckpointTest",
    "CrossStimulusTest",
    "DatabaseTest",
    "DemandIntensityTest",
    "Fill",
    "FreezeTest",
    "IdleRecoveryTest",
    "MatrixTest",
    "Plan",
    "PlannedStalls",
    "Precondition",
    "ReplayTest",
    "SaturationTest",
    "ScanTest",
    "Section",
    "StallTest",
    "SweepTest",
    "Test",
]
