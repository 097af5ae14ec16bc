"""Charts as Plotly figures.

The page sets the colours of text and grid, since it knows whether it is light, dark or paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from hemi_lab.report import axes, marks
from hemi_lab.report.colours import BLUE, COLOURS, GREEN, GREY, ORANGE, RED, faint
from hemi_lab.results.model import Tracked
from hemi_lab.statistics.confidence import Interval
from hemi_lab.statistics.histogram import Histogram
from hemi_lab.statistics.quantiles import percentile_interval
from hemi_lab.units import shown_size

_MOST_POINTS = 1500
"""Largest number of points of a line. A longer series is gathered into this many bins."""

_NINES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)


def _figure(height: int, **layout: object) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(height=height, **layout)
    return figure


def convergence(rounds: pl.DataFrame) -> go.Figure:
    """Returns a chart of every cell's rate against rounds (`label`, `round`, `iops`)."""
    figure = _figure(340)
    for number, label in enumerate(rounds["label"].unique(maintain_order=True)):
        part = rounds.filter(pl.col("label") == label)
        figure.add_scatter(
            x=part["round"].to_list(),
            y=part["iops"].to_list(),
            name=label,
            mode="lines+markers",
            marker={"size": 4},
            line={"width": 1.2, "color": COLOURS[number % len(COLOURS)]},
        )
    figure.update_xaxes(title="round", dtick=1 if rounds["round"].max() < 30 else None)  # type: ignore[operator]
    figure.update_yaxes(**axes.count("IOPS", log=True))
    # Fifty-six names would be more legend than chart. Each line shows its name when pointed at.
    figure.update_layout(showlegend=rounds["label"].n_unique() <= 10)
    return figure


def window(tracked: Tracked) -> go.Figure:
    """Returns a tracked variable's rounds, its window's mean and 10 % around it, and the fitted
    line."""
    figure = _figure(320)
    rounds = list(range(1, len(tracked.values) + 1))
    figure.add_scatter(
        x=rounds, y=tracked.values, name=tracked.label, mode="lines+markers", line={"color": BLUE}
    )
    if tracked.first and tracked.last and tracked.mean is not None:
        ends = [tracked.first, tracked.last]
        for factor, name, dash in (
            (1.0, "mean", "solid"),
            (1.1, "mean + 10 %", "dot"),
            (0.9, "mean − 10 %", "dot"),
        ):
            figure.add_scatter(
                x=ends,
                y=[tracked.mean * factor] * 2,
                name=name,
                mode="lines",
                line={"color": GREY, "dash": dash, "width": 1.2},
            )
        if tracked.slope is not None and tracked.intercept is not None:
            last = tracked.intercept + tracked.slope * (tracked.last - tracked.first)
            figure.add_scatter(
                x=ends,
                y=[tracked.intercept, last],
                name="least squares",
                mode="lines",
                line={"color": ORANGE, "width": 2},
            )
        figure.add_vrect(
            x0=tracked.first - 0.3,
            x1=tracked.last + 0.3,
            fillcolor=BLUE,
            opacity=0.08,
            line_width=0,
        )
    figure.update_xaxes(title="round")
    unit = {"s": axes.seconds("mean latency", log=False), "bytes/s": axes.rate()}
    figure.update_yaxes(**unit.get(tracked.unit, axes.count(tracked.unit)))
    return figure


def gathered(series: pl.DataFrame) -> pl.DataFrame:
    """Gathers a series into few points. Counts and bytes add up, maxima stay, moments are
    merged."""
    if series.height <= _MOST_POINTS:
        return series
    group = (pl.int_range(pl.len()) * _MOST_POINTS // pl.len()).alias("group")
    count = pl.col("count")
    total = count.sum()
    mean = (count * pl.col("mean_seconds")).sum() / total
    square = (
        count * (pl.col("standard_deviation_seconds") ** 2 + pl.col("mean_seconds") ** 2)
    ).sum() / total
    return (
        series.with_columns(group)
        .group_by("group", maintain_order=True)
        .agg(
            pl.col("at").first(),
            pl.col("fills").first(),
            pl.col("length_seconds").sum(),
            pl.col("bytes").sum(),
            mean.alias("mean_seconds"),
            (square - mean**2).clip(lower_bound=0).sqrt().alias("standard_deviation_seconds"),
            pl.col("maximum_seconds").max(),
            total.alias("count"),
        )
    )


def time_series(
    series: pl.DataFrame, causes: pl.DataFrame, spans: list[tuple[str, float, float]]
) -> go.Figure:
    """Returns a chart of each second: IOPS, and latency on a logarithmic axis.

    Latency is shown by mean, standard deviation and maximum. Known causes have panels on the same
    axis. The steps of `spans` are marked."""
    series = gathered(series)
    groups = _cause_groups(causes)
    rows = 2 + len(groups)
    heights = [0.9, 1.2] + [0.6] * len(groups)
    figure = make_subplots(
        rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.05, row_heights=heights
    )
    at = series["at"].to_list()
    rate = (series["count"] / series["length_seconds"]).to_list()
    said = [
        f"{name}{fills:.2f} capacities written"
        for name, fills in zip(_names(at, spans), series["fills"], strict=True)
    ]
    figure.add_scatter(
        x=at,
        y=rate,
        name="IOPS",
        text=said,
        hovertemplate="%{y:,.4~r} IOPS: %{text}<extra></extra>",
        line={"color": BLUE, "width": 1.2},
        row=1,
        col=1,
    )
    latency_lines(figure, at, series)
    marks.mark(figure, spans)
    if spans and rate:
        figure.update_yaxes(range=[0, marks.HEADROOM * max(rate)], row=1, col=1)
    for row, (title, lines) in enumerate(groups, 3):
        for number, (name, x, y) in enumerate(lines):
            line = {"color": COLOURS[number % len(COLOURS)], "width": 1.2}
            figure.add_scatter(x=x, y=y, name=name, line=line, row=row, col=1)
        figure.update_yaxes(title=title, rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title="seconds since the test began", row=rows, col=1)
    figure.update_layout(height=420 + 130 * len(groups), hovermode="x unified")
    return figure


def _names(at: list[float], spans: list[tuple[str, float, float]]) -> list[str]:
    """Returns the name of the span of each time, for what is shown of a point."""
    found = []
    for when in at:
        names = [name for name, begin, end in spans if begin - 1e-6 <= when < end]
        found.append(f"{names[-1]}, " if names else "")
    return found


def latency_lines(figure: go.Figure, x: list[float], series: pl.DataFrame) -> None:
    """Adds maximum, deviation and mean of latency as the second row, below IOPS."""
    for column, name, colour in (
        ("maximum_seconds", "maximum", RED),
        ("standard_deviation_seconds", "standard deviation", ORANGE),
        ("mean_seconds", "mean", GREEN),
    ):
        values = [value or None for value in series[column]]
        line = {"color": colour, "width": 1.2}
        figure.add_scatter(x=x, y=values, name=name, line=line, row=2, col=1)
    figure.update_yaxes(**axes.count("IOPS"), row=1, col=1)
    figure.update_yaxes(**axes.seconds("latency"), row=2, col=1)


_CAUSES = {
    "share": ("share of bytes", 100.0, "%"),
    "backlog_bytes": ("backlog", 1 / (1 << 20), "MiB"),
    "exposure_bytes": ("exposure", 1 / (1 << 20), "MiB"),
    "write_seconds": ("legs' writes", 1e3, "ms"),
    "dirty_regions": ("dirty regions", 1.0, ""),
    "frozen_seconds": ("frozen", 1.0, "s"),
    "write_amplification": ("write ampl.", 1.0, ""),
    "busy": ("busy", 100.0, "%"),
}


def _cause_groups(
    causes: pl.DataFrame,
) -> list[tuple[str, list[tuple[str, list[float], list[float]]]]]:
    """Returns a panel for each kind of cause that is not zero throughout."""
    groups = []
    for name, (title, factor, unit) in _CAUSES.items():
        part = causes.filter(pl.col("name") == name)
        if part.is_empty() or not part["value"].abs().max():
            continue
        legs = part["leg"].unique().sort().to_list()
        if name == "share" and len(legs) < 2:
            continue
        lines = []
        for leg in legs:
            own = part.filter(pl.col("leg").eq_missing(leg)).sort("at")
            step = max(1, own.height // _MOST_POINTS)
            own = own.gather_every(step)
            whose = title if leg is None else f"{title}, leg {leg}"
            lines.append((whose, own["at"].to_list(), (own["value"] * factor).to_list()))
        groups.append((f"{title}{f', {unit}' if unit else ''}", lines))
    return groups


def knee(points: pl.DataFrame) -> go.Figure:
    """Returns throughput against latency. Beyond its knee, more demand only adds waiting."""
    figure = _figure(340, hovermode="closest")
    ordered = points.with_columns((pl.col("threads") * pl.col("queue_depth")).alias("out")).sort(
        "out"
    )
    x = ordered["iops"].to_list()
    common = {"mode": "lines+markers", "text": ordered["label"].to_list()}
    for column, name, colour in (
        ("mean_seconds", "mean", GREEN),
        ("p99_seconds", "99 %", BLUE),
        ("maximum_seconds", "maximum", RED),
    ):
        y = ordered[column].to_list()
        figure.add_scatter(x=x, y=y, name=name, line={"color": colour, "width": 1.4}, **common)
    figure.update_xaxes(**axes.count("IOPS"))
    figure.update_yaxes(**axes.seconds("latency"))
    return figure


def bars(
    points: pl.DataFrame, rates: list[Interval | None], means: list[Interval | None]
) -> go.Figure:
    """Returns bars of each point: its rate, mean and standard deviation of latency, and maximum.

    `rates` and `means` are the intervals of IOPS and mean latency, shown as error bars."""
    figure = make_subplots(rows=1, cols=3, horizontal_spacing=0.11)
    labels = points["label"].to_list()
    figure.add_bar(
        x=labels,
        y=points["iops"].to_list(),
        error_y=error_bars(rates),
        name="IOPS",
        marker_color=BLUE,
        row=1,
        col=1,
    )
    for column, name, colour, error in (
        ("mean_seconds", "mean", GREEN, error_bars(means)),
        ("standard_deviation_seconds", "standard deviation", ORANGE, None),
    ):
        figure.add_bar(
            x=labels,
            y=points[column].to_list(),
            error_y=error,
            name=name,
            marker_color=colour,
            row=1,
            col=2,
        )
    most = points["maximum_seconds"].to_list()
    figure.add_bar(x=labels, y=most, name="maximum", marker_color=RED, row=1, col=3)
    figure.update_yaxes(**axes.count("IOPS"), row=1, col=1)
    figure.update_yaxes(**axes.seconds("latency", log=False), row=1, col=2)
    figure.update_yaxes(**axes.seconds("slowest request", log=False), row=1, col=3)
    # Level while they have room, then upright.
    figure.update_xaxes(autotickangles=[0, 90])
    figure.update_layout(height=340)
    return figure


def error_bars(intervals: list[Interval | None]) -> dict[str, object]:
    """Returns error bars half as wide as each interval. Points without one have none."""
    halves = [
        0.0 if one is None or math.isnan(one.half_width) else one.half_width for one in intervals
    ]
    return {"type": "data", "array": halves, "visible": any(halves), "thickness": 1.4, "width": 4}


def heat(
    rows: Sequence[str],
    columns: Sequence[str],
    values: list[list[float | None]],
    shown: Callable[[float], str],
) -> go.Figure:
    """Returns a matrix as colours, with its values in it as `shown` writes them."""
    texts = [["" if value is None else shown(value) for value in row] for row in values]
    figure = _figure(90 + 34 * len(rows))
    # Values of one matrix can be decades apart.
    colours = [[math.log10(value) if value else None for value in row] for row in values]
    figure.add_heatmap(
        z=colours,
        hovertemplate="%{y}, %{x}: %{text}<extra></extra>",
        x=list(columns),
        y=list(rows),
        text=texts,
        texttemplate="%{text}",
        colorscale=[[0, "#eaf1fc"], [1, "#2459ad"]],
        showscale=False,
        xgap=2,
        ygap=2,
    )
    figure.update_yaxes(autorange="reversed")
    # Lines between cells would cross their gaps.
    figure.update_xaxes(showgrid=False, ticks="")
    figure.update_yaxes(showgrid=False, ticks="")
    return figure


def matrix_lines(table: pl.DataFrame) -> go.Figure:
    """Returns rate against size, with a line for each share of reads."""
    figure = _figure(340)
    shares = table["read_percent"].unique().sort(descending=True).to_list()
    for number, share in enumerate(shares):
        part = table.filter(pl.col("read_percent") == share).sort("size_bytes")
        figure.add_scatter(
            x=[shown_size(size) for size in part["size_bytes"]],
            y=part["iops"].to_list(),
            name=f"{share:g} % read",
            mode="lines+markers",
            line={"color": COLOURS[number % len(COLOURS)], "width": 1.4},
        )
    figure.update_yaxes(**axes.count("IOPS", log=True))
    figure.update_xaxes(title="size of a request", type="category")
    return figure


def distribution(
    parts: dict[str, list[Histogram]], quantity: str = "latency", below: str = "requests no slower"
) -> go.Figure:
    """Returns the CDF, and latency (or another time) against nines, each line with a band.

    For a part of several rounds, the line is all of them merged and the band goes from the lowest
    to the highest. For one round the band is the percentiles' 95 % interval."""
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.1)
    for number, (name, rounds) in enumerate(parts.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = {"color": colour, "width": 1.5}
        merged = Histogram.merged(rounds)
        seconds, shares = merged.cumulative()
        step = max(1, len(seconds) // 400)
        figure.add_scatter(
            x=seconds[::step],
            y=[share * 100 for share in shares[::step]],
            name=name,
            line=line,
            legendgroup=name,
            row=1,
            col=1,
        )
        nines = _NINES[1:]
        known = [n for n, q in enumerate(nines) if merged.known_percentile(q) is not None]
        x = [_NINE_NAMES[n] for n in known]
        if merged.total:
            spread = [_spread(rounds, merged, nines[n]) for n in known]
            band = {
                "line": {"width": 0},
                "hoverinfo": "skip",
                "showlegend": False,
                "legendgroup": name,
                "mode": "lines",
            }
            figure.add_scatter(x=x, y=[min(s) for s in spread], row=1, col=2, **band)
            figure.add_scatter(
                x=x,
                y=[max(s) for s in spread],
                fill="tonexty",
                fillcolor=faint(colour),
                row=1,
                col=2,
                **band,
            )
        figure.add_scatter(
            x=x,
            y=[merged.percentile(nines[n]) for n in known],
            name=name,
            line=line,
            legendgroup=name,
            showlegend=False,
            mode="lines+markers",
            row=1,
            col=2,
        )
    figure.update_xaxes(**axes.seconds(quantity), row=1, col=1)
    figure.update_yaxes(title=f"% of {below}", row=1, col=1)
    figure.update_xaxes(
        title="percentile",
        type="category",
        categoryorder="array",
        categoryarray=list(_NINE_NAMES),
        row=1,
        col=2,
    )
    figure.update_yaxes(**axes.seconds(quantity), row=1, col=2)
    figure.update_layout(height=360)
    return figure


def _spread(rounds: list[Histogram], merged: Histogram, quantile: float) -> list[float]:
    if len(rounds) > 1:
        return [part.percentile(quantile) for part in rounds if part.total]
    return list(percentile_interval(merged, quantile))


_NINE_NAMES = ("50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %")


def by_load(steps: pl.DataFrame, column: str, axis: dict[str, object]) -> go.Figure:
    """Returns a point for every step at its time, in the colour of its load.

    It shows the effect of one load on the next, and of a rest."""
    figure = _figure(330)
    first = float(steps["start_seconds"].min())  # type: ignore[arg-type]
    for number, label in enumerate(steps["label"].unique(maintain_order=True)):
        part = steps.filter(pl.col("label") == label)
        figure.add_scatter(
            x=(part["start_seconds"] + part["length_seconds"] / 2 - first).to_list(),
            y=part[column].to_list(),
            name=label,
            mode="markers",
            marker={"size": 6, "color": COLOURS[number % len(COLOURS)]},
        )
    figure.update_xaxes(title="seconds, rests included")
    figure.update_yaxes(**axis)
    return figure
