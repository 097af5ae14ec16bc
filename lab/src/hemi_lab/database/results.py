"""What an OLTP run gives. Everything is plain data: `dataclasses.asdict` makes JSON of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .consistency import Finding
from .histogram import Bin, percentile
from .sysbench import Report, Second
from .tools import Command

RANKS = (50, 95, 99)


@dataclass(frozen=True)
class Audit:
    """What must be true of a step if its figures are to be believed."""

    little: float | None
    """Transactions/s times mean latency, over the thread count: 1 by Little's law, since the
    threads do nothing else. At the end threads that are done wait for the last transaction, so
    that a little less is right; still less, and sysbench itself was held up. None without
    transactions."""
    histogram_events: int
    """Events in the histogram: must be those of the report."""
    percentile_difference: float | None
    """Our 95th percentile from the histogram, less sysbench's own, as a part of it."""
    problems: list[str]
    """What did not hold; empty if all did."""


@dataclass(frozen=True)
class Step:
    """One thread count."""

    threads: int
    seconds: int
    """As asked for; the report has the time it took."""
    warm_up: bool
    """Made to warm up; not to be used in figures."""
    began: str
    """UTC, ISO 8601."""
    series: list[Second]
    """Second by second, also of a step that was broken off."""
    report: Report | None = None
    """None if it was broken off."""
    percentiles_ms: dict[int, float | None] = field(default_factory=dict)
    """By rank, of all transactions; a bin is 1.8 % wide."""
    kind_percentiles_ms: dict[str, dict[int, float | None]] = field(default_factory=dict)
    """The same for each TPC-C-like transaction; a bin is 9 % wide."""
    sysbench_cpu_seconds: float = 0.0
    server_cpu_seconds: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    """How far InnoDB's counters went during the step."""
    data_bytes: int = 0
    """Size of the table files after the step: the TPC-C-like load makes them grow."""
    target_status: dict[str, Any] = field(default_factory=dict)
    """What the targets said of themselves after it, by A and B (hemi volumes only)."""
    audit: Audit | None = None


@dataclass
class PlacementResult:
    """The steps on one placement of data and log."""

    placement: str
    """`A/B`: data on A, redo log on B."""
    load_seconds: float | None = None
    data_bytes: int | None = None
    """Size of the table files after the load."""
    pool_bytes: int | None = None
    server_version: str | None = None
    server_settings: dict[str, str] = field(default_factory=dict)
    """During the measurement."""
    load_settings: dict[str, str] = field(default_factory=dict)
    """What was different while rows were loaded."""
    checks_after_load: list[Finding] = field(default_factory=list)
    checks_after_run: list[Finding] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    stop_seconds: float | None = None
    """How long the server took to write everything at its end."""


@dataclass
class OltpResult:
    """A whole run."""

    settings: dict[str, Any]
    deviations: list[str]
    """How it differs from the plan's standard."""
    targets: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By A and B."""
    placements: list[PlacementResult] = field(default_factory=list)
    sysbench_version: str | None = None
    commands: list[Command] = field(default_factory=list)
    """Every command, in the order they were started."""
    incomplete: str | None = None
    """Why the run was broken off; None if it was not."""

    @property
    def problems(self) -> list[str]:
        """What failed: broken conditions, failed audits, an end before the end."""
        said = [f"incomplete: {self.incomplete}"] if self.incomplete else []
        for one in self.placements:
            for when, findings in (
                ("after the load", one.checks_after_load),
                ("after the run", one.checks_after_run),
            ):
                said += [
                    f"{one.placement} {when}: condition {f.number} ({f.statement}) is broken "
                    f"{f.violations} times, such as {'; '.join(f.examples)}"
                    for f in findings
                    if not f.holds
                ]
            for step in one.steps:
                if step.audit:
                    said += [
                        f"{one.placement}, {step.threads} threads"
                        f"{' (warm-up)' if step.warm_up else ''}: {problem}"
                        for problem in step.audit.problems
                    ]
        return said


_LITTLE_BOUND = 0.02
# Half a bin each way, and sysbench's two decimals.
_PERCENTILE_BOUND = 0.02
_PERCENTILE_ROUNDING_MS = 0.01


def percentiles(report: Report) -> dict[int, float | None]:
    """The ranks of a report."""
    return {rank: _bounded(report, report.bins, rank) for rank in RANKS}


def kind_percentiles(report: Report) -> dict[str, dict[int, float | None]]:
    """The ranks of each TPC-C-like transaction."""
    return {
        kind.name: {rank: _bounded(report, kind.bins, rank) for rank in RANKS}
        for kind in report.kinds
    }


def _bounded(report: Report, bins: list[Bin], rank: int) -> float | None:
    # A bin is named by its middle, which may lie beyond the slowest transaction.
    return percentile(bins, rank, report.latency_min_ms, report.latency_max_ms)


def audit(report: Report, seconds: float) -> Audit:
    """Checks a report against itself. `seconds`: how long the load was asked for."""
    problems = []
    events = sum(b.count for b in report.bins)
    if events != report.events:
        problems.append(f"the histogram holds {events} events, the report {report.events}")
    little = None
    if report.events:
        # By the sum of latencies: the printed mean has two decimals only.
        busy = report.latency_sum_ms / 1000 / report.threads
        little = busy / report.seconds
        # Each thread is busy at least for the time asked, at most until the last one's end.
        if not seconds * (1 - _LITTLE_BOUND) <= busy <= report.seconds * (1 + _LITTLE_BOUND):
            problems.append(
                f"Little's law: a thread was in transactions for {busy:.3f} s on average, not "
                f"for {seconds:g} to {report.seconds:g} s"
            )
    else:
        problems.append("no transaction was completed")
    ours, difference = percentile(report.bins, report.latency_rank), None
    if ours is not None and report.latency_at_rank_ms > 0:
        difference = ours / report.latency_at_rank_ms - 1
        if (
            abs(difference) > _PERCENTILE_BOUND
            and abs(ours - report.latency_at_rank_ms) > _PERCENTILE_ROUNDING_MS
        ):
            problems.append(
                f"percentile {report.latency_rank} is {ours} ms by the histogram, "
                f"{report.latency_at_rank_ms} ms by sysbench"
            )
    by_kind = sum(kind.committed + kind.rolled_back for kind in report.kinds)
    if report.kinds and by_kind != report.events:
        problems.append(f"the threads tell of {by_kind} transactions, sysbench of {report.events}")
    return Audit(little, events, difference, problems)
