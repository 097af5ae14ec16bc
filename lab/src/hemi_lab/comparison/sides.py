"""The sides of a comparison, each with its runs, and the points they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from hemi_lab.errors import UsageError
from hemi_lab.results.model import Freeze
from hemi_lab.results.store import HEADER, Reader
from hemi_lab.statistics.histogram import Histogram

QUANTILES = {"50 %": 0.5, "99 %": 0.99, "99.9 %": 0.999}
OF_DATABASES = {"50 %": 0.5, "95 %": 0.95, "99 %": 0.99}


@dataclass(frozen=True)
class Measured:
    """One point of one run: a load of a test, with its rounds of the steady window merged."""

    iops: float
    bytes_per_second: float
    mean: float
    maximum: float
    histogram: Histogram
    rates: tuple[float, ...]
    """IOPS of each whole second."""
    means: tuple[float, ...]
    """Mean latency of the same seconds. Empty if not known by second."""
    transactions: bool = False
    """True if these are of a database."""
    scans: bool = False
    """True if each is a scan of a table."""


Point = tuple[str, str]
"""A test and the label of a load in it."""


@dataclass
class Side:
    """One side of a comparison, with its runs in the order in which they were made."""

    letter: str
    name: str
    readers: list[Reader]
    points: dict[Point, list[Measured]] = field(default_factory=dict)
    """Results of each point, one for each run that has it."""
    freezes: dict[Point, list[Freeze]] = field(default_factory=dict)
    """Results of each freeze by test and label, one for each run that has it."""
    missed: list[tuple[str, str]] = field(default_factory=list)
    """Runs, with freezes that were over before the load began. They count in no figure."""
    titles: dict[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """True if any run was simulated."""
        return any(reader.result.simulated for reader in self.readers)


def side(letter: str, folder: Path) -> Side:
    """Reads a side from a run's directory, or from a directory of one target's runs."""
    if (folder / HEADER).exists() or not folder.is_dir():
        folders = [folder]
    else:
        folders = sorted(path.parent for path in folder.glob(f"*/{HEADER}"))
        if not folders:
            raise UsageError(
                f"{folder}: there is no run in it",
                "Name a run's directory, or one with runs in it.",
            )
    readers = sorted((Reader(path) for path in folders), key=lambda reader: reader.result.started)
    targets = list(dict.fromkeys(str(reader.result.target["text"]) for reader in readers))
    if len(targets) > 1:
        raise UsageError(
            f"{folder}: runs of several targets: {', '.join(targets)}",
            "A side is one target: give each a directory of its own.",
        )
    found = Side(letter, targets[0], readers)
    for reader in readers:
        for test in reader.result.tests:
            found.titles.setdefault(test.name, test.title)
        for point, measured in _points(reader):
            found.points.setdefault(point, []).append(measured)
        for row in reader.table("freezes").iter_rows(named=True):
            freeze = Freeze.model_validate(row)
            if freeze.missed:
                found.missed.append((reader.folder.name, f"{freeze.test}, {freeze.label}"))
            else:
                found.freezes.setdefault((freeze.test, freeze.label), []).append(freeze)
    return found


def _points(reader: Reader) -> Iterable[tuple[Point, Measured]]:
    steps = reader.table("steps").filter(
        pl.col("stage").is_in(["measure", "round"]) & (pl.col("count") > 0) & ~pl.col("interrupted")
    )
    intervals = reader.table("intervals").filter(
        (pl.col("operation") == "all") & (pl.col("length_seconds") > 0.9) & (pl.col("count") > 0)
    )
    firsts = {
        test.name: test.tracked[0].first
        for test in reader.result.tests
        if test.tracked and test.tracked[0].first is not None
    }
    scans = {test.name for test in reader.result.tests if test.kind == "scans"}
    databases = {test.name for test in reader.result.tests if test.kind == "database"}
    for (test, label), every in steps.group_by(["test", "label"], maintain_order=True):
        part = every.filter(pl.col("stage") == "measure")
        if part.is_empty():
            # Rounds count in the steady window, or in the last window if none was steady.
            first = firsts.get(str(test), 1)
            part = every.filter(pl.col("round") >= first)
        if part.is_empty():
            continue
        numbers = part["step"].to_list()
        seconds = intervals.filter(pl.col("step").is_in(numbers)).sort("step", "start_seconds")
        length, count = _sum(part["length_seconds"]), _sum(part["count"])
        yield (
            (str(test), str(label)),
            Measured(
                count / length,
                _sum(part["bytes"]) / length,
                _sum(part["mean_seconds"] * part["count"]) / count,
                float(part["maximum_seconds"].to_numpy().max()),
                reader.histogram(numbers),
                tuple((seconds["count"] / seconds["length_seconds"]).to_list()),
                tuple(seconds["mean_seconds"].drop_nulls().to_list()),
                test in databases,
                test in scans,
            ),
        )


def _sum(column: pl.Series) -> float:
    return float(column.to_numpy().sum())
