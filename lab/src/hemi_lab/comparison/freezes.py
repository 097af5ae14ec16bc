"""Freezes of two sides: the clients' latencies while a leg did not answer, and the debt it left."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import plotly.graph_objects as go
from scipy import stats

from hemi_lab.comparison.figures import (
    Basis,
    Compared,
    Figure,
    Kind,
    basis_of,
    figure_of,
    over_runs,
)
from hemi_lab.comparison.sides import Side
from hemi_lab.report.colours import COLOURS, GREY
from hemi_lab.report.freezes import along_the_freeze
from hemi_lab.results.model import Freeze
from hemi_lab.statistics.confidence import LEVEL, of_mean


@dataclass(frozen=True)
class _Asked:
    name: str
    kind: Kind
    of: Callable[[Freeze], float | None]


# The longest request is the maximum of those in flight while the leg was frozen.
_ASKED = (
    _Asked("longest request", "time", lambda freeze: freeze.longest_request_seconds),
    _Asked("longest silence", "time", lambda freeze: freeze.longest_silence_seconds),
    _Asked("IOPS meanwhile", "rate", lambda freeze: freeze.during_iops),
    _Asked("50 % meanwhile", "time", lambda freeze: freeze.during_p50_seconds),
    _Asked("99 % meanwhile", "time", lambda freeze: freeze.during_p99_seconds),
    _Asked("99.9 % meanwhile", "time", lambda freeze: freeze.during_p999_seconds),
    _Asked("drained in", "time", lambda freeze: freeze.drain_seconds),
)

SHOWN = ("longest request", "longest silence", "99 % meanwhile")
"""Figures in the chart. Some of the others are zero, and zero has no ratio."""

NOTE = (
    "Of a side: the worst of its runs (of IOPS, their mean). Meanwhile: of the requests in flight "
    "at any time of the freeze, whose slowest is the longest request; IOPS count what was done "
    "while it lasted. Drained in: from the thaw until the leg owed no more than before; 0 s: it "
    "owed nothing. A figure that is zero has no ratio; its verdict is from the differences "
    "themselves."
)


def compared_freezes(a: Side, b: Side, level: float = LEVEL) -> list[Compared]:
    """Compares every freeze that both sides had."""
    found = []
    tests = list(dict.fromkeys(test for test, _ in a.freezes))
    # A freeze missing in the first run would otherwise come last.
    points = sorted(
        a.freezes.items(),
        key=lambda item: (tests.index(item[0][0]), item[1][0].seconds, item[1][0].leg),
    )
    for point, of_a in points:
        of_b = b.freezes.get(point)
        if not of_b:
            continue
        basis = basis_of(len(of_a), len(of_b))
        figures = [_figure(asked, of_a, of_b, basis, level) for asked in _ASKED]
        # Leave out figures that neither side has (too few requests, no status).
        known = [figure for figure in figures if (figure.a, figure.b) != (None, None)]
        found.append(Compared(point, basis, (len(of_a), len(of_b)), known, freeze=True))
    return found


def _figure(asked: _Asked, a: list[Freeze], b: list[Freeze], basis: Basis, level: float) -> Figure:
    values = [asked.of(freeze) for freeze in a], [asked.of(freeze) for freeze in b]
    shown = _shown(values[0], asked.kind), _shown(values[1], asked.kind)
    if basis == "within":
        # One freeze does not tell how the next would go.
        return figure_of(asked.name, asked.kind, *shown, None)
    figure = figure_of(asked.name, asked.kind, *shown, over_runs(*values, basis, level))
    return figure if figure.verdict != "unknown" else _by_differences(figure, *values, basis, level)


def _shown(values: list[float | None], kind: Kind) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        # A run without the value may be worse than all others.
        return None
    return max(known) if kind == "time" else sum(known) / len(known)


def _by_differences(
    figure: Figure,
    a: list[float | None],
    b: list[float | None],
    basis: Basis,
    level: float,
) -> Figure:
    """Returns the verdict from differences if a figure is zero.

    A mirror that waits for a frozen leg does nothing meanwhile, and no ratio expresses that."""
    known_a = [value for value in a if value is not None]
    known_b = [value for value in b if value is not None]
    if len(known_a) < len(a) or len(known_b) < len(b):
        return figure
    if basis == "pairs":
        over = of_mean([y - x for x, y in zip(known_a, known_b, strict=True)], level)
        low, high = over.low, over.high
    else:
        interval = stats.ttest_ind(known_b, known_a, equal_var=False).confidence_interval(level)
        low, high = float(interval.low), float(interval.high)
    if math.isnan(low) or math.isnan(high):
        return figure
    if low > 0:
        return replace(figure, verdict="more")
    return replace(figure, verdict="less" if high < 0 else "noise")


def _of_test(side: Side, test: str) -> list[Freeze]:
    return [freeze for (name, _), runs in side.freezes.items() if name == test for freeze in runs]


_SYMBOLS = ("circle-open", "diamond-open", "square-open", "x-open")
"""Open symbols, so that several points at one place can be seen."""


def longest(sides: list[Side], test: str) -> go.Figure:
    """Returns the longest request of every run of a test against the length of the freeze.

    Points are by side and leg. Requests that wait for the leg lie on the dotted line."""
    figure = go.Figure()
    every = [freeze for side in sides for freeze in _of_test(side, test)]
    for number, side in enumerate(sides):
        own = _of_test(side, test)
        for leg in sorted({freeze.leg for freeze in own}):
            points = sorted(
                (freeze.seconds, freeze.longest_request_seconds)
                for freeze in own
                if freeze.leg == leg
            )
            marker = {"size": 10, "color": COLOURS[number], "symbol": _SYMBOLS[leg % len(_SYMBOLS)]}
            figure.add_scatter(
                x=[x for x, _ in points],
                y=[y for _, y in points],
                name=f"{side.letter}, leg {leg} frozen",
                mode="markers",
                marker={**marker, "line": {"width": 1.8}},
            )
    along_the_freeze(figure, [freeze.seconds for freeze in every], GREY)
    figure.update_layout(height=340)
    return figure
