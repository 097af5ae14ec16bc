"""`result.json`: what was measured, how, and whether it may be believed."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

VERSION = 1
"""Of the schema. Fields are added within a version, never renamed or given another meaning."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Engine(_Part):
    """What made the load."""

    name: str
    version: str


class Host(_Part):
    """The machine the load was made on."""

    kernel: str
    processor: str
    cores: int
    memory_bytes: int


class Preparation(_Part):
    """What was done to the target before a test, or why not."""

    test: str
    what: Literal["purge", "precondition"]
    done: bool
    how: str


class Check(_Part):
    """One question of the self-audit."""

    name: str
    passed: bool | None
    """`None`: it could not be asked of this run."""
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
    """What became of one test of the plan."""

    name: str
    kind: str
    title: str
    whole: bool = False
    tracked: list[Tracked] = []
    facts: dict[str, float | str] = {}
    """Figures that are of this test alone, by name."""
    audit: list[Check] = []
    """Questions that only this test is asked."""


class CeilingFound(_Part):
    """What the generator can do with a target that does nothing."""

    iops: float
    cpu_seconds_per_request: float


class Result(_Part):
    """The header of a run."""

    version: int = VERSION
    id: str
    repeat: int = 1
    """Which of several equal runs, from 1."""
    status: Literal["running", "whole", "partial"] = "running"
    """A run that was killed leaves `running`: read it as partial."""
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
        """Whether the plan was not carried out to its end."""
        return self.status != "whole"

    def failed_checks(self) -> list[Check]:
        """Questions of the audit that it did not pass."""
        return [check for check in self.audit if check.passed is False]


class Identity(BaseModel):
    """What makes two runs the same experiment."""

    plan: str
    target: str
    """The spec of a simulated target, else its name."""
    seed: int
    time_scale: float
    lab_version: str
    engine: Engine
    model_config = ConfigDict(frozen=True)

    def hash(self) -> str:
        """The run's id: 16 hexadecimal digits."""
        text = json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def now() -> datetime:
    """The present, in UTC, to the millisecond."""
    return datetime.now(UTC).replace(microsecond=datetime.now(UTC).microsecond // 1000 * 1000)


class Found(BaseModel):
    """One step, as the table `steps` has it."""

    step: int
    test: str
    stage: str
    label: str
    round: int | None = None
    read_percent: float | None = None
    size_bytes: float | None = None
    """Mean size of a request of the load."""
    pattern: str | None = None
    threads: int | None = None
    queue_depth: int | None = None
    span_percent: float | None = None
    start_seconds: float
    """Since the run began; of simulated targets, in virtual time."""
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
    """Bytes written since the last purge, in capacities of the target, when the step began."""
    written_bytes: int
    seed: int
    command: str
    notes: str = ""
    interrupted: bool = False
    model_config = ConfigDict(frozen=True)


class Freeze(BaseModel):
    """One freeze of a leg, as the table `freezes` has it. Times are on the axis of the step's
    intervals; before are requests done before it began, after those meant to go after it ended,
    during all others."""

    step: int
    test: str
    label: str
    leg: int
    seconds: float
    began_seconds: float
    ended_seconds: float
    longest_request_seconds: float
    """Of those under way at any time of the freeze."""
    longest_silence_seconds: float
    """In which no request was done."""
    backlog_peak_bytes: float | None
    """What the leg owed at most from the freeze on; this and what follows as the target's status
    told it."""
    exposure_peak_bytes: float | None
    exposure_age_peak_seconds: float | None
    drain_seconds: float | None
    """From the thaw until the leg owed no more than before the freeze; nothing where the step
    was over before."""
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
        """Whether it was over before the load's first request went: its figures say nothing."""
        return self.ended_seconds <= 0


class Stall(BaseModel):
    """One phase in which requests of a leg stalled, as the table `stalls` has it: of requests that
    were meant to go in it, whenever they were done. Times are on the axis of the step's
    intervals. Phase 0 is the whole schedule; `before` and `after` have no number."""

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
    """Of those done in this time."""
    p50_seconds: float | None
    p99_seconds: float | None
    p999_seconds: float | None
    maximum_seconds: float | None
    reads_p99_seconds: float | None
    reads_maximum_seconds: float | None
    writes_p99_seconds: float | None
    writes_maximum_seconds: float | None
    backlog_peak_bytes: float | None
    """What the leg owed at most in this time; this and what follows as the target's status told
    it."""
    exposure_peak_bytes: float | None


class Round(BaseModel):
    """One value of a tracked variable, as the table `rounds` has it."""

    test: str
    tracked: str
    unit: str
    round: int
    value: float
    in_window: bool
    fitted: float | None = Field(default=None)
