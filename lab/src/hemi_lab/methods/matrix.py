"""Rounds over a matrix of read shares and sizes until the tracked cells are steady."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hemi_lab.bench import Bench
from hemi_lab.methods.estimate import Estimate
from hemi_lab.plans.model import Cell, MatrixTest
from hemi_lab.results.model import Outcome
from hemi_lab.statistics.steady import WINDOW, Steadiness, steadiness
from hemi_lab.units import shown_size
from hemi_lab.workload import Load

_UNITS = {"iops": "IOPS", "bandwidth": "bytes/s", "latency": "s"}


def estimate(test: MatrixTest) -> Estimate:
    """Estimates at least five rounds."""
    cells = len(test.read_percents) * len(test.sizes)
    steps = cells * test.most_rounds
    return Estimate(cells * WINDOW * test.cell, steps * test.cell, steps)


def run(test: MatrixTest, bench: Bench, outcome: Outcome) -> None:
    """Runs all cells round by round until every tracked cell is steady in the same window."""
    cells = [
        Cell(read_percent=share, size=size) for share in test.read_percents for size in test.sizes
    ]
    values: dict[Cell, list[float]] = defaultdict(list)
    for number in range(1, test.most_rounds + 1):
        for cell in cells:
            done = bench.measure(
                test.name, "round", label(cell), _load(test, cell), test.cell, round_=number
            )
            if cell in test.tracked:
                value = {
                    "iops": done.found.iops,
                    "bandwidth": done.found.bytes_per_second,
                    "latency": done.found.mean_seconds,
                }[test.figure]
                values[cell].append(value)
        if together(values[cell] for cell in test.tracked):
            break
    for cell in test.tracked:
        series = values[cell]
        last = steadiness(series[-WINDOW:], WINDOW, WINDOW)
        bench.track(outcome, label(cell), _UNITS[test.figure], series, placed(last, len(series)))


def together(series: Iterable[list[float]]) -> bool:
    """Returns true if the last rounds of every series are a steady window."""
    known = list(series)
    return bool(known) and all(
        len(values) >= WINDOW and steadiness(values[-WINDOW:], WINDOW, WINDOW).reached
        for values in known
    )


def placed(last: Steadiness, rounds: int) -> Steadiness:
    """Returns the last window's result with the numbers that its rounds have in the test."""
    if last.first is None or last.last is None:
        return last
    first = rounds - last.window + 1
    return Steadiness(last.values, last.reached, first, rounds, last.verdict, last.window)


def label(cell: Cell) -> str:
    """Returns a text such as `4 KiB, 65 % read`."""
    return f"{shown_size(cell.size)}, {cell.read_percent:g} % read"


def _load(test: MatrixTest, cell: Cell) -> Load:
    return Load(
        read_percent=cell.read_percent,
        sizes=cell.size,
        pattern=test.pattern,
        threads=test.threads,
        queue_depth=test.queue_depth,
    )
