"""Runs of one target and plan in the order of their time, and the figures of each test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hemi_lab.errors import UsageError
from hemi_lab.report import headline
from hemi_lab.results.store import HEADER, Reader
from hemi_lab.statistics.changes import Change, changes


@dataclass(frozen=True)
class Point:
    """One run of a series."""

    reader: Reader
    bar: headline.Bar
    maximum: float
    """The slowest request, in seconds."""
    notes: list[str]
    """Differences from the run before, and reasons not to trust it."""


@dataclass(frozen=True)
class Series:
    """One load of a test on one target, over time."""

    target: str
    plan: str
    test: str
    title: str
    label: str
    kind: headline.Kind
    points: list[Point]
    of_rate: list[Change]
    """Steps of the figure of `kind`."""
    of_p99: list[Change]
    """Steps of the 99th percentile. Empty if a run has none."""

    @property
    def name(self) -> str:
        """Name for readers."""
        return f"{self.title}, {self.label}"


def runs(folders: Iterable[Path]) -> list[Reader]:
    """Returns the runs in some directories and below, by time."""
    found: dict[Path, Reader] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no directory", "Name directories with runs in them.")
        for header in sorted(folder.rglob(HEADER)):
            found.setdefault(header.parent.resolve(), Reader(header.parent))
    return sorted(found.values(), key=lambda reader: reader.result.started)


def chosen(
    readers: Sequence[Reader], target: str | None, plan: str | None, tests: Sequence[str]
) -> list[Reader]:
    """Returns the runs of a target and plan, if they are named. Refuses names that no run has."""
    kept = list(readers)
    for name, wanted, of in (
        ("--target", target, lambda reader: str(reader.result.target["text"])),
        ("--plan", plan, lambda reader: reader.result.plan),
    ):
        if wanted is None:
            continue
        known = list(dict.fromkeys(of(reader) for reader in kept))
        kept = [reader for reader in kept if of(reader) == wanted]
        if not kept:
            listed = ", ".join(known) or "none"
            raise UsageError(f"{name} {wanted}: no run is of it", f"There are {listed}.")
    have = {test.name for reader in kept for test in reader.result.tests}
    for wanted in tests:
        if wanted not in have:
            raise UsageError(
                f"--test {wanted}: no run has it", f"There are {', '.join(sorted(have)) or 'none'}."
            )
    return kept


def series(
    readers: Sequence[Reader], tests: Sequence[str] = (), label: str | None = None
) -> list[Series]:
    """Returns every series of two runs or more: by target, plan and test."""
    groups: dict[tuple[str, str], list[Reader]] = {}
    for reader in readers:
        key = (str(reader.result.target["text"]), reader.result.plan)
        groups.setdefault(key, []).append(reader)
    found = []
    for (target, plan), own in groups.items():
        for row in headline.rows([headline.System(target, own)]):
            if tests and row.test not in tests:
                continue
            wanted = label or row.label
            points = _points(own, row.test, wanted, row.kind)
            if len(points) > 1:
                found.append(_series(target, plan, row, wanted, points))
    return found


def _points(readers: Sequence[Reader], test: str, label: str, kind: headline.Kind) -> list[Point]:
    points: list[Point] = []
    for reader in readers:
        known = headline.of_run(reader, test, label, kind)
        if known is None:
            continue
        bar, maximum = known
        before = points[-1].reader if points else None
        points.append(Point(reader, bar, maximum, _notes(reader, before)))
    return points


def _notes(reader: Reader, before: Reader | None) -> list[str]:
    result = reader.result
    said = []
    if result.partial:
        said.append("partial")
    if result.failed_checks():
        said.append(f"audit failed: {', '.join(check.name for check in result.failed_checks())}")
    if before is None:
        return said
    was = before.result
    if result.plan_text != was.plan_text:
        said.append("another text of the plan")
    if result.time_scale != was.time_scale:
        said.append(f"times × {result.time_scale:g} instead of {was.time_scale:g}")
    if result.engine != was.engine:
        said.append(f"{result.engine.name} {result.engine.version}")
    if result.lab_version != was.lab_version:
        said.append(f"hemi-lab {result.lab_version}")
    if result.host != was.host:
        said.append("another host or kernel")
    return said


def _series(target: str, plan: str, row: headline.Row, label: str, points: list[Point]) -> Series:
    rates = [point.bar.value for point in points]
    p99 = [point.bar.percentiles.get(0.99) for point in points]
    known = [ranked.value for ranked in p99 if ranked is not None]
    return Series(
        target,
        plan,
        row.test,
        row.title,
        label,
        row.kind,
        points,
        changes(rates) if min(rates) > 0 else [],
        changes(known) if len(known) == len(points) and min(known) > 0 else [],
    )
