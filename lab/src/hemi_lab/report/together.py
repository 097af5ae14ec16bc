"""Several runs in one report: their agreement, and comparisons that need more than one."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from hemi_lab.report import arrays, figures, spare, stalls
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.results.store import Reader
from hemi_lab.statistics.confidence import of_mean
from hemi_lab.statistics.histogram import Histogram
from hemi_lab.units import shown_count, shown_time

Lettered = tuple[str, Reader]
"""A run with its letter on the page."""

_MOST_OVERLAYS = 12
"""Largest number of loads with overlaid distributions. A report of more is of whole plans."""


def parts(runs: list[Lettered]) -> list[Part]:
    """Returns the shared parts, or none for a single run."""
    if len(runs) < 2:
        return []
    points = [(letter, reader, points_of(reader)) for letter, reader in runs]
    found = [*spare.parts(runs), *arrays.parts(runs), *stalls.together(runs)]
    found += _run_to_run(points)
    return [*found, *_overlays(points)]


Points = dict[tuple[str, str], pl.DataFrame]
"""The steps of each load of a test, by its name and label."""


def points_of(reader: Reader) -> Points:
    """Returns the measured loads. Rounds count in the steady window only."""
    steps = reader.table("steps").filter((pl.col("count") > 0) & ~pl.col("interrupted"))
    firsts = {test.name: test.tracked[0].first or 1 for test in reader.result.tests if test.tracked}
    found: Points = {}
    measured = steps.filter(pl.col("stage").is_in(["measure", "round"]))
    for (test, label), every in measured.group_by(["test", "label"], maintain_order=True):
        part = every.filter(pl.col("stage") == "measure")
        if part.is_empty():
            part = every.filter(pl.col("round") >= firsts.get(str(test), 1))
        if part.height:
            found[(str(test), str(label))] = part
    return found


def _run_to_run(runs: list[tuple[str, Reader, Points]]) -> list[Part]:
    """Compares the same load over several runs of a target."""
    tables: list[Part] = []
    targets = dict.fromkeys(str(reader.result.target["text"]) for _, reader, _ in runs)
    for target in targets:
        own = [points for _, reader, points in runs if reader.result.target["text"] == target]
        rows = []
        for point in own[0]:
            known = [points[point] for points in own if point in points]
            if len(known) < 2:
                continue
            for name, of, shown in _FIGURES:
                values = [of(steps) for steps in known]
                if len(every := [value for value in values if value is not None]) < 2:
                    continue
                found = of_mean(every)
                rows.append(
                    [
                        f"{point[0]}, {point[1]}: {name}",
                        str(found.count),
                        shown(found.mean),
                        f"{shown(max(found.low, 0.0))} to {shown(found.high)}",
                        f"{found.half_width / found.mean:.1%}" if found.mean else "–",
                        f"{shown(min(every))} to {shown(max(every))}",
                    ]
                )
        if rows:
            headings = ["", "runs", "mean", "95 % interval", "±", "least to most"]
            note = (
                "Student's t over the runs. Of databases IOPS are tps. hemi-lab compare sets "
                "unlike targets beside each other."
            )
            tables.append((f"Run to run: {target}", Table(headings, rows, note)))
    return tables


def _rate(steps: pl.DataFrame) -> float | None:
    return float(steps["count"].to_numpy().sum() / steps["length_seconds"].to_numpy().sum())


def _mean(steps: pl.DataFrame) -> float | None:
    count = steps["count"].to_numpy()
    return float((steps["mean_seconds"].to_numpy() * count).sum() / count.sum())


def _p99(steps: pl.DataFrame) -> float | None:
    # Several rounds would have to be merged, which the overlays below do.
    return steps["p99_seconds"][0] if steps.height == 1 else None


_FIGURES: tuple[tuple[str, Callable[[pl.DataFrame], float | None], Callable[[float], str]], ...] = (
    ("IOPS", _rate, shown_count),
    ("mean", _mean, shown_time),
    ("99 %", _p99, shown_time),
)


def _overlays(runs: list[tuple[str, Reader, Points]]) -> list[Part]:
    """Returns the distributions of each load that several runs share."""
    every = [point for _, _, points in runs for point in points]
    shared = [point for point in dict.fromkeys(every) if every.count(point) > 1]
    # If there are too many, take the ends and some evenly between.
    if len(shared) > _MOST_OVERLAYS:
        last = len(shared) - 1
        kept = {round(n * last / (_MOST_OVERLAYS - 1)) for n in range(_MOST_OVERLAYS)}
        shared = [shared[n] for n in sorted(kept)]
    charts: list[Part] = []
    for point in shared:
        over: dict[str, list[Histogram]] = {}
        for letter, reader, points in runs:
            if point in points:
                steps = points[point]["step"].to_list()
                over[f"{letter}: {reader.result.target['text']}"] = [
                    reader.histogram([step]) for step in steps
                ]
        known = {name: bins for name, bins in over.items() if any(part.total for part in bins)}
        if len(known) > 1:
            charts.append(
                Chart(
                    f"{point[0]}, {point[1]}: the runs' latencies",
                    figures.distribution(known),
                    "Bands: 95 % intervals of the percentiles; of several rounds, from the "
                    "lowest to the highest of them.",
                )
            )
    return charts
