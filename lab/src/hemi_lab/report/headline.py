"""The first chart of every report: each test's best figure of each system, as bars.

A test stands with one load: the point of most requests a second, the same for all systems. Of
faults it is the longest request, since the rate of a step hides it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from hemi_lab.report import axes, within
from hemi_lab.report.colours import BLUE, COLOURS, GREEN, GREY, RED
from hemi_lab.report.parts import Chart
from hemi_lab.results.model import Outcome
from hemi_lab.results.store import Reader
from hemi_lab.statistics.confidence import Interval, of_mean
from hemi_lab.statistics.quantiles import percentile_interval
from hemi_lab.units import shown_count, shown_rate, shown_time

Kind = Literal["iops", "bytes", "tps", "longest"]

_LARGE = 64 << 10
"""Bytes of a request from which its rate is told in bytes a second, as reviews do."""

_FAULTS = ("freeze", "stalls")

RANKS = (
    (0.5, "50 %", GREEN, "circle"),
    (0.99, "99 %", BLUE, "diamond"),
    (0.999, "99.9 %", RED, "square"),
)
"""Percentiles of latency, with their colours and symbols."""

_ROW = 24
"""Pixels of a bar with its gap."""

_AXIS = 62
"""Pixels below a panel for its axis."""


@dataclass(frozen=True)
class System:
    """One target, with all of its runs that the page shows."""

    name: str
    readers: Sequence[Reader]


@dataclass(frozen=True)
class Ranked:
    """One percentile of a load, in seconds, with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Bar:
    """One figure of a test on one system."""

    system: int
    value: float
    low: float
    high: float
    percentiles: dict[float, Ranked] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One test with its bars."""

    kind: Kind
    test: str
    title: str
    label: str
    bars: list[Bar]

    @property
    def name(self) -> str:
        """Name for readers."""
        return f"{self.title}, {self.label}"


def measured(test: Outcome, steps: pl.DataFrame) -> pl.DataFrame:
    """Returns the steps that count for a test: those of its steady window, if it has one."""
    own = steps.filter(
        (pl.col("test") == test.name)
        & pl.col("stage").is_in(["measure", "round", "baseline"])
        & (pl.col("count") > 0)
    )
    if test.kind == "database":
        # An interrupted step has no latencies.
        own = own.filter(~pl.col("interrupted"))
    if test.tracked and "round" in own["stage"].to_list() and test.tracked[0].first:
        last = own.filter(pl.col("round") >= test.tracked[0].first)
        own = last if last.height else own
    return own


def best(test: Outcome, own: pl.DataFrame) -> str:
    """Returns the label that stands for a test: of most requests a second, or of the slowest."""
    # Rounds of one label belong together.
    by_label = own.group_by("label", maintain_order=True).agg(
        pl.col("iops").mean(), pl.col("maximum_seconds").max()
    )
    column = "maximum_seconds" if test.kind in _FAULTS else "iops"
    return str(by_label.sort(column, descending=True, maintain_order=True)["label"][0])


def of_runs(readers: Sequence[Reader]) -> list[System]:
    """Returns the systems of some runs: runs of one target are one system."""
    targets = dict.fromkeys(str(reader.result.target["text"]) for reader in readers)
    return [
        System(name, [reader for reader in readers if reader.result.target["text"] == name])
        for name in targets
    ]


def rows(systems: list[System]) -> list[Row]:
    """Returns every test that any of the systems has, in the plans' order."""
    tests: dict[str, Outcome] = {}
    for system in systems:
        for reader in system.readers:
            for test in reader.result.tests:
                tests.setdefault(test.name, test)
    found = []
    for test in tests.values():
        known = [_of_system(test, system) for system in systems]
        labels = [best(test, own) for runs in known for _, _, own in runs]
        shared = [
            label
            for label in labels
            if all(label in own["label"].to_list() for runs in known for _, _, own in runs)
        ]
        if not labels or test.kind == "scans":
            continue
        label = (shared or labels)[0]
        part = next(own for runs in known for _, _, own in runs).filter(pl.col("label") == label)
        kind = _kind(test, part)
        bars = [
            bar
            for number, runs in enumerate(known)
            if (bar := _bar(number, kind, label, runs)) is not None
        ]
        if bars:
            found.append(Row(kind, test.name, test.title, label, bars))
    return found


_Run = tuple[Reader, Outcome, pl.DataFrame]


def _of_system(test: Outcome, system: System) -> list[_Run]:
    found = []
    for reader in system.readers:
        for own in reader.result.tests:
            if own.name == test.name:
                steps = measured(own, reader.table("steps"))
                if steps.height:
                    found.append((reader, own, steps))
    return found


def _kind(test: Outcome, part: pl.DataFrame) -> Kind:
    if test.kind in _FAULTS:
        return "longest"
    if test.kind == "database":
        return "tps"
    size = part["size_bytes"][0] or 0
    return "bytes" if part["pattern"][0] == "sequential" or size >= _LARGE else "iops"


def _bar(system: int, kind: Kind, label: str, runs: list[_Run]) -> Bar | None:
    own = [
        (reader, part)
        for reader, _, steps in runs
        if (part := steps.filter(pl.col("label") == label)).height
    ]
    if not own:
        return None
    if kind == "longest":
        # The worst of all runs: an interval of a maximum says little.
        worst = max(float(part["maximum_seconds"].to_numpy().max()) for _, part in own)
        return Bar(system, worst, math.nan, math.nan)
    column = "bytes_per_second" if kind == "bytes" else "iops"
    values = [float(part[column].to_numpy().mean()) for _, part in own]
    found = of_mean(values) if len(own) > 1 else _of_one(*own[0], column, values[0])
    bins = [reader.histogram(part["step"].to_list()) for reader, part in own]
    merged = type(bins[0]).merged(bins)
    ranked = {}
    for quantile, *_ in RANKS:
        value = merged.known_percentile(quantile)
        if value is not None:
            ranked[quantile] = Ranked(value, *percentile_interval(merged, quantile))
    return Bar(system, found.mean, found.low, found.high, ranked)


def of_run(reader: Reader, test: str, label: str, kind: Kind) -> tuple[Bar, float] | None:
    """Returns a run's figure of a load and its slowest request, or `None` if it has no such."""
    for own in reader.result.tests:
        if own.name == test:
            steps = measured(own, reader.table("steps"))
            bar = _bar(0, kind, label, [(reader, own, steps)])
            if bar is not None:
                part = steps.filter(pl.col("label") == label)
                return bar, float(part["maximum_seconds"].to_numpy().max())
    return None


def _of_one(reader: Reader, part: pl.DataFrame, column: str, value: float) -> Interval:
    """Returns the interval of a single run: over its rounds, or within its only step."""
    if part.height > 1:
        return of_mean(part[column].to_list())
    known = within.rate(int(part["step"][0]), reader.table("intervals"))
    if known is None or not known.mean:
        return Interval(1, value, math.nan, math.nan)
    # Requests of a step have one size, so bytes vary as requests do.
    return Interval(1, value, value * known.low / known.mean, value * known.high / known.mean)


SHOWN: dict[Kind, tuple[str, Callable[[float], str], dict[str, object]]] = {
    "iops": ("IOPS", shown_count, axes.count("IOPS")),
    "bytes": ("Throughput", shown_rate, axes.rate()),
    "tps": ("Transactions a second", shown_count, axes.count("transactions a second")),
    "longest": ("Longest request", shown_time, axes.seconds("longest request", log=False)),
}
"""Title, text and axis of each kind of figure."""

_NOTE = (
    "Each test at its point of most requests a second, the same for all. Lines at the ends of "
    "bars: 95 % intervals, over runs or rounds, else from ten batches of a run's seconds (none "
    "below ten seconds)."
)
_LADDER = " Latencies: 50 %, 99 % and 99.9 % of the same requests, with their 95 % intervals."
_OF_FAULTS = " Of faults: the slowest request of all runs, while a leg did not answer in time."


def chart(systems: list[System], title: str = "Each test at its best") -> Chart | None:
    """Returns the chart, or `None` if nothing was measured that it could show."""
    every = rows(systems)
    kinds = [kind for kind in SHOWN if any(row.kind == kind for row in every)]
    if not kinds:
        return None
    panels = [[row for row in every if row.kind == kind] for kind in kinds]
    ladder = [row for row in every if any(bar.percentiles for bar in row.bars)]
    each = len(systems)
    heights = [_ROW * (each * len(part) + 0.6 * len(part)) for part in panels]
    if ladder:
        heights.append(_ROW * (each * len(ladder) + 0.6 * len(ladder)))
    gaps = _AXIS * (len(heights) - 1)
    whole = sum(heights) + gaps
    figure = make_subplots(
        rows=len(heights),
        cols=1,
        row_heights=heights,
        vertical_spacing=_AXIS / whole if len(heights) > 1 else 0,
    )
    for number, (kind, part) in enumerate(zip(kinds, panels, strict=True), 1):
        _bars(figure, number, kind, part, systems)
    if ladder:
        _percentiles(figure, len(heights), ladder, systems)
    figure.update_layout(
        height=round(whole + 90), barmode="overlay", bargap=0, showlegend=True, hovermode="closest"
    )
    note = _NOTE + (_LADDER if ladder else "") + (_OF_FAULTS if "longest" in kinds else "")
    return Chart(title, figure, note)


def _places(part: list[Row], systems: int) -> list[list[float]]:
    """Returns the place of each bar by row and system, from the top."""
    return [[n * (systems + 0.6) + s for s in range(systems)] for n in range(len(part))]


def _names(figure: go.Figure, panel: int, part: list[Row], places: list[list[float]]) -> None:
    figure.update_yaxes(
        tickvals=[sum(own) / len(own) for own in places],
        ticktext=[_wrapped(row.name) for row in part],
        range=[places[-1][-1] + 0.8, -0.8],
        showgrid=False,
        row=panel,
        col=1,
    )


_WIDEST = 34
"""Longest line of a test's name, in characters."""


def _wrapped(name: str) -> str:
    """Returns a name in lines that leave the bars their room."""
    lines = [""]
    # Plotly reads some markup in texts, and a name is none.
    for word in escape(name, quote=False).split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _WIDEST:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(lines)


def _bars(
    figure: go.Figure, panel: int, kind: Kind, part: list[Row], systems: list[System]
) -> None:
    title, shown, axis = SHOWN[kind]
    places = _places(part, len(systems))
    most = 0.0
    for number, system in enumerate(systems):
        own = [
            (places[n][number], bar)
            for n, row in enumerate(part)
            for bar in row.bars
            if bar.system == number
        ]
        if not own:
            continue
        ends = [bar.value if math.isnan(bar.high) else bar.high for _, bar in own]
        most = max(most, *ends)
        colour = COLOURS[number % len(COLOURS)]
        figure.add_bar(
            x=[bar.value for _, bar in own],
            y=[place for place, _ in own],
            orientation="h",
            width=0.82,
            name=escape(system.name, quote=False),
            legendgroup=system.name,
            showlegend=len(systems) > 1 and panel == 1,
            marker={"color": colour},
            error_x=errors([(bar.value, bar.low, bar.high) for _, bar in own]),
            text=[shown(bar.value) for _, bar in own],
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
            row=panel,
            col=1,
        )
        # Beyond the interval, where no line crosses it.
        figure.add_scatter(
            x=ends,
            y=[place for place, _ in own],
            text=[f" {shown(bar.value)}{_within(bar)}" for _, bar in own],
            mode="text",
            textposition="middle right",
            showlegend=False,
            legendgroup=system.name,
            hoverinfo="skip",
            cliponaxis=False,
            row=panel,
            col=1,
        )
    _names(figure, panel, part, places)
    figure.update_xaxes(**{**axis, "title": title}, row=panel, col=1)
    figure.update_xaxes(range=[0, 1.3 * (most or 1.0)], row=panel, col=1)


def _within(bar: Bar) -> str:
    if math.isnan(bar.low) or not bar.value:
        return ""
    return f" ± {(bar.high - bar.low) / 2 / bar.value:.1%}"


def errors(points: list[tuple[float, float, float]]) -> dict[str, object]:
    """Returns error bars of values with their intervals' ends. NaN: there is none."""
    known = [not math.isnan(low) for _, low, _ in points]
    return {
        "type": "data",
        "symmetric": False,
        "array": [
            high - value if ok else 0 for ok, (value, _, high) in zip(known, points, strict=True)
        ],
        "arrayminus": [
            value - low if ok else 0 for ok, (value, low, _) in zip(known, points, strict=True)
        ],
        "visible": any(known),
        "color": GREY,
        "thickness": 1.6,
        "width": 4,
    }


def _percentiles(figure: go.Figure, panel: int, ladder: list[Row], systems: list[System]) -> None:
    places = _places(ladder, len(systems))
    alone = len(systems) == 1
    for number, _ in enumerate(systems):
        own = [
            (places[n][number], bar)
            for n, row in enumerate(ladder)
            for bar in row.bars
            if bar.system == number and bar.percentiles
        ]
        x: list[float | None] = []
        y: list[float | None] = []
        for place, bar in own:
            values = [ranked.value for ranked in bar.percentiles.values()]
            x += [min(values), max(values), None]
            y += [place, place, None]
        colour = GREY if alone else COLOURS[number % len(COLOURS)]
        line = {"color": colour, "width": 1.6}
        figure.add_scatter(
            x=x, y=y, mode="lines", line=line, showlegend=False, hoverinfo="skip", row=panel, col=1
        )
        for quantile, name, fixed, symbol in RANKS:
            known = [
                (place, bar.percentiles[quantile])
                for place, bar in own
                if quantile in bar.percentiles
            ]
            if not known:
                continue
            figure.add_scatter(
                x=[ranked.value for _, ranked in known],
                y=[place for place, _ in known],
                error_x=errors([(r.value, r.low, r.high) for _, r in known]),
                mode="markers",
                marker={"size": 9, "symbol": symbol, "color": fixed if alone else colour},
                name=f"{name} of latency",
                showlegend=alone,
                text=[f"{name}: {shown_time(r.value)}" for _, r in known],
                hovertemplate="%{text}<extra></extra>",
                row=panel,
                col=1,
            )
    if not alone:
        # Colours tell systems apart, so that the legend has the symbols alone.
        for _, name, _, symbol in RANKS:
            figure.add_scatter(
                x=[None],
                y=[None],
                mode="markers",
                marker={"size": 9, "symbol": symbol, "color": GREY},
                name=f"{name} of latency",
                row=panel,
                col=1,
            )
    _names(figure, panel, ladder, places)
    figure.update_xaxes(**axes.seconds("latency at that load"), row=panel, col=1)
