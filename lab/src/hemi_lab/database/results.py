"""The results of an OLTP run, all plain data for `dataclasses.asdict` and JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from hemi_lab.statistics.histogram import Histogram
from hemi_lab.units import counted

from .consistency import Finding
from .sysbench import Report, Second
from .tools import Command

RANKS = (50, 95, 99)


@dataclass(frozen=True)
class Audit:
    """The checks of a step's figures."""

    little: float | None
    """Transactions/s times mean latency, divided by the thread count: 1 by Little's law, since the
    threads do nothing else. At the end, finished threads wait for the last transaction, so slightly
    less is right. Much less means that sysbench itself was held up. None without transactions."""
    histogram_events: int
    """Events in the histogram. They must equal those of the report."""
    percentile_difference: float | None
    """Our 95th percentile from the histogram against sysbench's own, as a share of it."""
    problems: list[str]
    """Failed checks. Empty if all passed."""


@dataclass(frozen=True)
class Step:
    """One thread count."""

    threads: int
    seconds: int
    """Seconds as requested. The report has the actual time."""
    warm_up: bool
    """True for a warm-up, which counts in no figure."""
    began: str
    """Start in UTC, ISO 8601."""
    series: list[Second]
    """Interim reports, also of an interrupted step."""
    report: Report | None = None
    """None if the step was interrupted."""
    percentiles_ms: dict[int, float | None] = field(default_factory=dict)
    """Percentiles of all transactions, by rank. A bin is 1.8 % wide."""
    kind_percentiles_ms: dict[str, dict[int, float | None]] = field(default_factory=dict)
    """The same for each TPC-C-like transaction. A bin is 9 % wide."""
    sysbench_cpu_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    """Growth of InnoDB's counters during the step."""
    data_bytes: int = 0
    """Size of the table files after the step. The TPC-C-like load makes them grow."""
    target_status: dict[str, Any] = field(default_factory=dict)
    """Status of targets A and B after the step (hemi volumes only)."""
    audit: Audit | None = None


@dataclass
class PlacementResult:
    """The steps on one placement of data and log."""

    placement: str
    """`A/B` means data on A and redo log on B."""
    load_seconds: float | None = None
    data_bytes: int | None = None
    """Size of the table files after the load."""
    pool_bytes: int | None = None
    server_version: str | None = None
    server_settings: dict[str, str] = field(default_factory=dict)
    """Settings during the measurement."""
    load_settings: dict[str, str] = field(default_factory=dict)
    """Settings that differed while rows were loaded."""
    checks_after_load: list[Finding] = field(default_factory=list)
    checks_after_run: list[Finding] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    stop_seconds: float | None = None
    """Seconds until the server had written everything and stopped."""


@dataclass
class OltpResult:
    """A whole run."""

    settings: dict[str, Any]
    deviations: list[str]
    """Deviations from the plan's standard."""
    targets: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Descriptions of targets A and B."""
    placements: list[PlacementResult] = field(default_factory=list)
    sysbench_version: str | None = None
    commands: list[Command] = field(default_factory=list)
    """Every command, in the order they were started."""
    incomplete: str | None = None
    """The reason why the run was interrupted, or None."""

    @property
    def problems(self) -> list[str]:
        """Returns violated conditions, failed audits, and an early end."""
        said = [f"incomplete: {self.incomplete}"] if self.incomplete else []
        for one in self.placements:
            for when, findings in (
                ("after the load", one.checks_after_load),
                ("after the run", one.checks_after_run),
            ):
                said += [
                    f"{one.placement} {when}: condition {f.number} ({f.statement}) is broken "
                    f"{counted(f.violations, 'time')}, such as {'; '.join(f.examples)}"
                    for f in findings
                    if not f.holds
                ]
            for step in one.steps:
                if step.audit:
                    said += [
                        f"{one.placement}, {counted(step.threads, 'thread')}"
                        f"{' (warm-up)' if step.warm_up else ''}: {problem}"
                        for problem in step.audit.problems
                    ]
        return said


_LITTLE_BOUND = 0.02
# Half a bin each way, and sysbench's two decimals.
_PERCENTILE_BOUND = 0.02
_PERCENTILE_ROUNDING_MS = 0.01


def percentiles(report: Report) -> dict[int, float | None]:
    """Returns the percentiles of a report."""
    return _percentiles(report, report.bins)


def kind_percentiles(report: Report) -> dict[str, dict[int, float | None]]:
    """Returns the percentiles of each TPC-C-like transaction."""
    return {kind.name: _percentiles(report, kind.bins) for kind in report.kinds}


def _percentiles(report: Report, bins: Histogram) -> dict[int, float | None]:
    # The last bin may end beyond the slowest transaction.
    known = bins.cut(report.latency_max_ms / 1e3)
    return {rank: known.percentile(rank / 100) * 1e3 if known.total else None for rank in RANKS}


def audit(report: Report, seconds: float) -> Audit:
    """Checks a report against itself. `seconds` is the requested duration of the load."""
    problems = []
    events = report.bins.total
    if events != report.events:
        problems.append(f"the histogram holds {events} events, the report {report.events}")
    little = None
    if report.events:
        # Uses the sum of latencies, since the printed mean has only two decimals.
        busy = report.latency_sum_ms / 1000 / report.threads
        little = busy / report.seconds
        # Each thread is busy at least for the requested time, and at most until the last one's end.
        if not seconds * (1 - _LITTLE_BOUND) <= busy <= report.seconds * (1 + _LITTLE_BOUND):
            problems.append(
                f"Little's law: a thread was in transactions for {busy:.3f} s on average, not "
                f"for {seconds:g} to {report.seconds:g} s"
            )
    else:
        problems.append("no transaction was completed")
    difference = None
    if events and report.latency_at_rank_ms > 0:
        # Of n events sysbench takes the one numbered n·rank/100, rounded to the nearest.
        event = max(1, math.floor(events * report.latency_rank / 100 + 0.5))
        ours = report.bins.percentile(event / events) * 1e3
        difference = ours / report.latency_at_rank_ms - 1
        if (
            abs(difference) > _PERCENTILE_BOUND
            and abs(ours - report.latency_at_rank_ms) > _PERCENTILE_ROUNDING_MS
        ):
            problems.append(
                f"percentile {report.latency_rank} is {ours:.3f} ms by the histogram, "
                f"{report.latency_at_rank_ms} ms by sysbench"
            )
    by_kind = sum(kind.committed + kind.rolled_back for kind in report.kinds)
    if report.kinds and by_kind != report.events:
        problems.append(f"the threads tell of {by_kind} transactions, sysbench of {report.events}")
    return Audit(little, events, difference, problems)
