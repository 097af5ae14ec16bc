"""Charts over the amount written: a drive's rate as it fills, and the cliff of a full cache."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from hemi_lab.report import axes
from hemi_lab.report.colours import BLUE, COLOURS, ORANGE
from hemi_lab.report.figures import gathered, latency_lines
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.units import shown_rate

_LEAST_FILLS = 0.2
"""Fewest capacities written for which a test gets such a chart."""

_CLIFF = 0.5
"""Share of the initial rate below which a cliff is reported."""

_ENDS = 10
"""Divisor: 1 / `_ENDS` of a load is its beginning, and as much its end."""

_CLIFF_POINTS = 10

_CONSISTENCY_POINTS = 20


def series(steps: pl.DataFrame, intervals: pl.DataFrame, capacity: float) -> pl.DataFrame:
    """Returns intervals of all operations with the columns `written` and `fills`.

    `written` counts the bytes since the purge at the interval's end, and `fills` the same in
    capacities."""
    own = intervals.filter(pl.col("step").is_in(steps["step"].implode()))
    wrote = own.filter(pl.col("operation") == "write").select(
        "step", "start_seconds", pl.col("bytes").alias("wrote"), pl.col("count").alias("writes")
    )
    begin = steps.select(
        "step", "stage", "label", (pl.col("fills_before") * capacity).alias("before")
    )
    return (
        own.filter((pl.col("operation") == "all") & (pl.col("length_seconds") >= 0.25))
        .join(wrote, on=["step", "start_seconds"], how="left")
        .join(begin, on="step")
        .sort("step", "start_seconds")
        .with_columns(pl.col("wrote").fill_null(0))
        .with_columns((pl.col("before") + pl.col("wrote").cum_sum().over("step")).alias("written"))
        .with_columns((pl.col("written") / capacity).alias("fills"), pl.col("written").alias("at"))
    )


def parts(steps: pl.DataFrame, intervals: pl.DataFrame, capacity: float) -> list[Part]:
    """Returns a test's rate and latency against the amount written, and the cliff of each long
    load."""
    known = series(steps, intervals, capacity)
    if known.is_empty() or not known["wrote"].sum():
        return []
    found: list[Part] = []
    wrote = _by_the_load(known, steps)
    if wrote.height:
        note = (
            f"A capacity is {capacity / 1e9:,.4g} GB. Without the fill, and without steps that "
            "wrote nothing."
        )
        found.append(Chart("Against what was written", _against(wrote), note))
    found += _cliffs(known)
    return found


def _by_the_load(known: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Returns the part of a series in which the test's own loads wrote.

    It is empty if that is too little to draw. A fill before a test of reads is not its load."""
    fills = (pl.col("stage") == "precondition") & pl.col("round").is_null()
    own = steps.filter(~fills)["step"].to_list()
    writers = known.filter(pl.col("wrote") > 0)["step"].unique().to_list()
    wrote = known.filter(pl.col("step").is_in(own) & pl.col("step").is_in(writers))
    if wrote.is_empty():
        return wrote
    capacities = wrote["fills"].to_numpy()
    return wrote if capacities.max() - capacities.min() >= _LEAST_FILLS else wrote.clear()


def _against(known: pl.DataFrame) -> go.Figure:
    known = gathered(known)
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.9, 1.1]
    )
    x = known["fills"].to_list()
    rate = (known["count"] / known["length_seconds"]).to_list()
    figure.add_scatter(x=x, y=rate, name="IOPS", line={"color": BLUE, "width": 1.2}, row=1, col=1)
    latency_lines(figure, x, known)
    figure.update_xaxes(title="capacities written since the purge", row=2, col=1)
    figure.update_layout(height=420, hovermode="x unified")
    return figure


def _cliffs(known: pl.DataFrame) -> list[Part]:
    """Returns rates of writes against gigabytes, for every load that wrote for some time.

    Such loads are fills, preconditionings and saturations."""
    figure = go.Figure()
    rows = []
    loads = known.filter(pl.col("stage").is_in(["precondition", "round"]) & (pl.col("wrote") > 0))
    for number, ((label,), part) in enumerate(loads.group_by(["label"], maintain_order=True)):
        if part.height < _CLIFF_POINTS:
            continue
        rates = part["wrote"] / part["length_seconds"]
        gigabytes = (part["written"] / 1e9).to_list()
        few = max(1, part.height // _ENDS)
        begin, end = float(rates[:few].mean()), float(rates[-few:].mean())  # type: ignore[arg-type]
        shown = gathered(part)
        figure.add_scatter(
            x=(shown["written"] / 1e9).to_list(),
            y=(shown["bytes"] / shown["length_seconds"]).to_list(),
            name=str(label),
            line={"color": COLOURS[number % len(COLOURS)], "width": 1.3},
        )
        below = [gb for gb, rate in zip(gigabytes, rates, strict=True) if rate < _CLIFF * begin]
        rows.append(
            [
                str(label),
                shown_rate(begin),
                shown_rate(end),
                f"{end / begin - 1:+.0%}".replace("-", "\N{MINUS SIGN}") if begin else "–",
                f"after {below[0]:.3g} GB" if below else "not seen",
            ]
        )
    if not rows:
        return []
    figure.update_xaxes(title="GB written since the purge")
    figure.update_yaxes(**axes.rate())
    figure.update_layout(height=320, showlegend=True)
    headings = ["", "at first", "at last", "change", "first second below half"]
    note = (
        "At first and at last: a tenth of the load each. A cache of flash that is written with "
        "fewer bits shows as a cliff; a drive that comes to collect garbage, as a slope."
    )
    return [
        Chart("Rate against what was written", figure),
        ("From fresh to full", Table(headings, rows, note)),
    ]


def consistency(steps: pl.DataFrame, intervals: pl.DataFrame, window: list[int]) -> list[Part]:
    """Returns every second of the load that brought the target into its state as a point.

    All seconds have a logarithmic axis, those of the window's steps a linear one."""
    own = steps.filter(
        pl.col("stage").is_in(["precondition", "round"]) & pl.col("round").is_not_null()
    )
    if own["label"].n_unique() != 1:
        return []
    begin = own.select(
        "step", (pl.col("start_seconds") - own["start_seconds"].min()).alias("begin")
    )
    points = (
        intervals.filter((pl.col("operation") == "all") & (pl.col("length_seconds") >= 0.5))
        .join(begin, on="step")
        .with_columns(
            (pl.col("begin") + pl.col("start_seconds")).alias("at"),
            (pl.col("count") / pl.col("length_seconds")).alias("iops"),
        )
        .sort("at")
    )
    if points.height < _CONSISTENCY_POINTS:
        return []
    late = points.filter(pl.col("step").is_in(window))
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.1)
    for column, part, name, colour in (
        (1, points, "all", BLUE),
        (2, late, "the window", ORANGE),
    ):
        figure.add_scatter(
            x=part["at"].to_list(),
            y=part["iops"].to_list(),
            name=name,
            mode="markers",
            marker={"size": 4, "color": colour, "opacity": 0.7},
            row=1,
            col=column,
        )
    figure.update_xaxes(title="seconds of the load")
    figure.update_yaxes(**axes.count("IOPS", log=True), row=1, col=1)
    figure.update_yaxes(**axes.count("IOPS"), row=1, col=2)
    figure.update_layout(height=330)
    note = "A point a second; left logarithmic, right the measurement window from zero."
    if late.height > 1:
        rates = late["iops"].to_numpy()
        mean, deviation = float(rates.mean()), float(rates.std())
        note += f" There the seconds' mean is {mean:,.0f} IOPS and their σ {deviation:,.3g}"
        note += f": the mean is {mean / deviation:,.3g} σ." if deviation else "."
    return [Chart("Consistency", figure, note)]
