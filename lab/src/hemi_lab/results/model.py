"""The model of `result.json`: figures, their origin and the audit."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

VERSION = 1
"""Version of the schema. Within a version, fields are added, never renamed or redefined."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Engine(_Part):
    """The program that made the load."""

    name: str
    version: str


class Host(_Part):
    """The machine that made the load."""

    kernel: str
    processor: str
    cores: int
    memory_bytes: int


class Preparation(_Part):
    """The preparation of a target before a test, or the reason why there was none."""

    test: str
    what: Literal["purge", "precondition"]
    done: bool
    how: str


class Check(_Part):
    """One check of the self-audit."""

    name: str
    passed: bool | None
    """`None`: the check does not apply to this run."""
    said: str
    value: float | None = None
    bound: float | None = None


class Tracked(_Part):
    """A tracked variable's way to steady state."""

    label: str
    unit: str
    values: list[float]
    reached: bool
    window: int
    first: int | None
    last: int | None
    mean: float | None = None
    slope: float | None = None
    intercept: float | None = None
    range_share: float | None = None
    excursion_share: float | None = None
    left_in_round: int | None = None
    """First round of a later window that was no longer steady."""


class Outcome(_Part):
    """The outcome of one test of the plan."""

    name: str
    kind: str
    title: str
    whole: bool = False
    tracked: list[Tracked] = []
    facts: dict[str, float | str] = {}
    """Figures of this kind of test alone, by name."""
    audit: list[Check] = []
    """Checks of this kind of test alone."""


class CeilingFound(_Part):
    """The generator's own limit, measured on a target that does nothing."""

    iops: float
    cpu_seconds_per_request: float


class Result(_Part):
    """The header of a run."""

    version: int = VERSION
    id: str
    repeat: int = 1
    """Number among equal runs, from 1."""
    status: Literal["running", "whole", "partial"] = "running"
    """A run that was killed stays `running`. Readers treat it as partial."""
    why_partial: str | None = None
    plan: str
    plan_title: str
    plan_source: str
    plan_text: str
    seed: int
    time_scale: float = 1.0
    target: dict[str, Any]
    engine: Engine
    lab_version: str
    host: Host
    started: datetime
    finished: datetime | None = None
    simulated: bool = False
    model_card: str | None = None
    command_line: list[str] = []
    preparations: list[Preparation] = []
    notes: list[str] = []
    ceiling: CeilingFound | None = None
    audit: list[Check] = []
    tests: list[Outcome] = []

    @property
    def partial(self) -> bool:
        """True if the plan did not run to its end."""
        return self.status != "whole"

    def failed_checks(self) -> list[Check]:
        """Returns the audit's failed checks."""
        return [check for check in self.audit if check.passed is False]


class Identity(BaseModel):
    """The properties that make two runs the same experiment."""

    plan: str
    target: str
    """The spec of a simulated target, else the target's name."""
    seed: int
    time_scale: float
    lab_version: str
    engine: Engine
    model_config = ConfigDict(frozen=True)

    def hash(self) -> str:
        """Returns the run's id, 16 hexadecimal digits."""
        text = json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def now() -> datetime:
    """Returns the present in UTC, to the millisecond."""
    exact = datetime.now(UTC)
    return exact.replace(microsecond=exact.microsecond // 1000 * 1000)


class Found(BaseModel):
    """One step, as a row of the table `steps`."""

    step: int
    test: str
    stage: str
    label: str
    round: int | None = None
    read_percent: float | None = None
    size_bytes: float | None = None
    """Mean request size of the load."""
    pattern: str | None = None
    threads: int | None = None
    queue_depth: int | None = None
    span_percent: float | None = None
    start_seconds: float
    """Time since the run began. On simulated targets, virtual time."""
    length_seconds: float
    count: int
    bytes: int
    iops: float
    bytes_per_second: float
    mean_seconds: float
    standard_deviation_seconds: float
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    p99_seconds: float | None = None
    p999_seconds: float | None = None
    p9999_seconds: float | None = None
    p99999_seconds: float | None = None
    maximum_seconds: float
    issued: int
    completed: int
    in_system: float | None = None
    rate_by_stay: float | None = None
    lateness_p50_seconds: float | None = None
    lateness_p99_seconds: float | None = None
    cpu_seconds: float | None = None
    energy_joules: float | None = None
    fills_before: float
    """Bytes written since the last purge when the step began, as a multiple of the capacity."""
    written_bytes: int
    seed: int
    command: str
    notes: str = ""
    interrupted: bool = False
    model_config = ConfigDict(frozen=True)


class Freeze(BaseModel):
    """One freeze of a leg, as a row of the table `freezes`.

    Times are on the axis of the step's intervals. "Before" counts requests done before the freeze
    began, "after" those due to start after it ended, and "during" all others."""

    step: int
    test: str
    label: str
    leg: int
    seconds: float
    began_seconds: float
    ended_seconds: float
    longest_request_seconds: float
    """Longest latency of those in flight at any time of the freeze."""
    longest_silence_seconds: float
    """Longest time in which no request completed."""
    backlog_peak_bytes: float | None
    """Largest debt of the leg from the freeze on. This and the next fields come from the target's
    status."""
    exposure_peak_bytes: float | None
    exposure_age_peak_seconds: float | None
    drain_seconds: float | None
    """Time from the thaw until the leg owed no more than before the freeze. `None` if the step
    ended earlier."""
    before_count: int
    before_iops: float
    before_p50_seconds: float | None
    before_p99_seconds: float | None
    before_p999_seconds: float | None
    before_maximum_seconds: float | None
    during_count: int
    during_iops: float
    during_p50_seconds: float | None
    during_p99_seconds: float | None
    during_p999_seconds: float | None
    during_maximum_seconds: float | None
    after_count: int
    after_iops: float
    after_p50_seconds: float | None
    after_p99_seconds: float | None
    after_p999_seconds: float | None
    after_maximum_seconds: float | None

    @property
    def missed(self) -> bool:
        """True if the freeze ended before the load's first request. Then its figures mean
        nothing."""
        return self.ended_seconds <= 0


class Stall(BaseModel):
    """One phase of stalls on a leg, as a row of the table `stalls`.

    It counts requests due to start in the phase, whenever they completed. Times are on the axis of
    the step's intervals. Phase 0 is the whole schedule. `before` and `after` have no number."""

    step: int
    test: str
    label: str
    phase: int | None
    leg: int
    read_share: float
    write_share: float
    delay_seconds: float
    began_seconds: float
    ended_seconds: float
    count: int
    iops: float
    """Rate of the requests that completed in this time."""
    p50_seconds: float | None
    p99_seconds: float | None
    p999_seconds: float | None
    maximum_seconds: float | None
    reads_p99_seconds: float | None
    reads_maximum_seconds: float | None
    writes_p99_seconds: float | None
    writes_maximum_seconds: float | None
    backlog_peak_bytes: float | None
    """Largest debt of the leg in this time. This and the next field come from the target's
    status."""
    exposure_peak_bytes: float | None


class Round(BaseModel):
    """One value of a tracked variable, as a row of the table `rounds`."""

    test: str
    tracked: str
    unit: str
    round: int
    value: float
    in_window: bool
    fitted: float | None = Field(default=None)
