"""Charts and tables of freezes: the clients' latencies, and the debt of the leg until it
drained."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from hemi_lab.report import axes
from hemi_lab.report.colours import BLUE, COLOURS, GREEN, ORANGE, RED
from hemi_lab.report.parts import Table
from hemi_lab.units import shown_count, shown_size, shown_time

_CAUSES = (
    ("backlog_bytes", "owed MiB", 1 / (1 << 20)),
    ("exposure_bytes", "exp. MiB", 1 / (1 << 20)),
)


def stalls(freezes: pl.DataFrame) -> Table:
    """Returns the effect of each freeze on clients and on the legs."""
    rows = [
        [
            row["label"] + (": MISSED, over before the load began" * (row["ended_seconds"] <= 0)),
            shown_time(row["longest_request_seconds"]),
            shown_time(row["longest_silence_seconds"]),
            shown_count(row["before_iops"]),
            shown_count(row["during_iops"]),
            shown_count(row["after_iops"]),
            _size(row["backlog_peak_bytes"]),
            _size(row["exposure_peak_bytes"]),
            _drain(row),
        ]
        for row in freezes.iter_rows(named=True)
    ]
    headings = [
        "",
        "slowest",
        "silence",
        "IOPS before",
        "during",
        "after",
        "owed",
        "exposed",
        "drained in",
    ]
    note = (
        "Slowest: the longest request of those in flight at any time of the freeze. Silence: the "
        "longest in which no request was done. Owed: what the frozen leg lacked at most. Exposed: "
        "acknowledged and on one leg only, at most. Drained: from the thaw until the leg owed no "
        "more than before, to within about 0.3 s, as often as the status changes."
    )
    return Table(headings, rows, note)


def phases(freezes: pl.DataFrame) -> Table:
    """Returns the latencies before, during and after each freeze."""
    rows = []
    for row in freezes.iter_rows(named=True):
        for phase in ("before", "during", "after"):
            cells = [
                _time(row[f"{phase}_{name}_seconds"]) for name in ("p50", "p99", "p999", "maximum")
            ]
            rows.append([f"{row['label']}: {phase}", f"{row[f'{phase}_count']:,}", *cells])
    headings = ["", "requests", "50 %", "99 %", "99.9 %", "max"]
    note = (
        "Exact, of every request. Before: done before the freeze. During: in flight at any time "
        "of it, whenever done. After: meant to go after the thaw. – where fewer than one request "
        "would lie beyond. Ends are known to the millisecond where fio made the load."
    )
    return Table(headings, rows, note)


def longest(freezes: pl.DataFrame) -> go.Figure:
    """Returns the longest request against the length of the freeze, for each leg.

    Requests that wait for the leg lie on the dotted line."""
    figure = go.Figure()
    for number, leg in enumerate(freezes["leg"].unique().sort().to_list()):
        own = freezes.filter(pl.col("leg") == leg).sort("seconds")
        figure.add_scatter(
            x=own["seconds"].to_list(),
            y=own["longest_request_seconds"].to_list(),
            name=f"leg {leg} frozen",
            mode="lines+markers",
            line={"color": COLOURS[number % len(COLOURS)], "width": 1.5},
        )
    along_the_freeze(figure, freezes["seconds"].to_list(), RED)
    figure.update_layout(height=300)
    return figure


def along_the_freeze(figure: go.Figure, seconds: list[float], colour: str) -> None:
    """Adds the axes of longest requests, and the line of those that wait for the leg."""
    ends = [min(seconds), max(seconds)]
    figure.add_scatter(
        x=ends,
        y=ends,
        name="as long as the freeze",
        mode="lines",
        line={"color": colour, "dash": "dot", "width": 1.2},
    )
    figure.update_xaxes(**axes.seconds("length of the freeze"))
    figure.update_yaxes(**axes.seconds("longest request"))


def around(freeze: dict[str, object], intervals: pl.DataFrame, causes: pl.DataFrame) -> go.Figure:
    """Returns one freeze: rate, latency, debt and exposure on one axis that begins with it."""
    begin, end = float(str(freeze["began_seconds"])), float(str(freeze["ended_seconds"]))
    known = [
        (title, factor, part)
        for name, title, factor in _CAUSES
        if (part := causes.filter(pl.col("name") == name)).height and part["value"].max()
    ]
    rows = 2 + len(known)
    figure = make_subplots(
        rows=rows,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.045,
        row_heights=[0.8, 1.0, *[0.5] * len(known)],
    )
    series = filled(intervals)
    at = (series["start_seconds"] + series["length_seconds"] / 2 - begin).to_list()
    rate = (series["count"] / series["length_seconds"]).to_list()
    figure.add_scatter(x=at, y=rate, name="IOPS", line={"color": BLUE, "width": 1.2}, row=1, col=1)
    for column, name, colour in (
        ("maximum_seconds", "slowest", RED),
        ("mean_seconds", "mean", GREEN),
    ):
        line = {"color": colour, "width": 1.2}
        figure.add_scatter(x=at, y=series[column].to_list(), name=name, line=line, row=2, col=1)
    figure.update_yaxes(**axes.count("IOPS"), row=1, col=1)
    figure.update_yaxes(**axes.seconds("latency"), row=2, col=1)
    for row, (title, factor, part) in enumerate(known, 3):
        for number, leg in enumerate(part["leg"].unique().sort().to_list()):
            own = part.filter(pl.col("leg").eq_missing(leg)).sort("start_seconds")
            when = own["start_seconds"] + own["length_seconds"] - begin
            word = {"backlog_bytes": "owed", "exposure_bytes": "exposed"}[own["name"][0]]
            figure.add_scatter(
                x=when.to_list(),
                y=(own["value"] * factor).to_list(),
                name=word if leg is None else f"{word} by leg {leg}",
                line={"color": (ORANGE, GREEN)[number % 2], "width": 1.2},
                row=row,
                col=1,
            )
        figure.update_yaxes(title=title, rangemode="tozero", row=row, col=1)
    figure.add_vrect(
        x0=0, x1=end - begin, fillcolor=RED, opacity=0.1, line_width=0, row="all", col=1
    )
    first = float(series["start_seconds"].min()) - begin if series.height else 0.0  # type: ignore[arg-type]
    last = max(at, default=end) + 0.1
    figure.update_xaxes(range=[first, last])
    figure.update_xaxes(title="seconds since the leg froze", row=rows, col=1)
    figure.update_layout(height=330 + 120 * len(known), hovermode="x unified")
    return figure


def filled(intervals: pl.DataFrame) -> pl.DataFrame:
    """Returns intervals of all operations, filled up with those in which nothing was done.

    A silence is a rate of zero, without a latency."""
    own = intervals.filter(pl.col("operation") == "all")
    if own.is_empty():
        return own
    length = float(own["length_seconds"].max())  # type: ignore[arg-type]
    number = (pl.col("start_seconds") / length).round().cast(pl.Int64).alias("bin")
    numbered = own.with_columns(number)
    most = max(numbered["bin"].to_list())
    every = pl.DataFrame({"bin": pl.Series(range(most + 1), dtype=pl.Int64)})
    return (
        # The last interval is a sliver in which the load ends. Its rate means nothing.
        every.filter(pl.col("bin") < most)
        .join(numbered, on="bin", how="left")
        .with_columns(
            (pl.col("bin") * length).alias("start_seconds"),
            pl.col("length_seconds").fill_null(length),
            pl.col("count").fill_null(0),
        )
        .sort("bin")
    )


def _size(value: float | None) -> str:
    return "–" if value is None else shown_size(value)


def _time(value: float | None) -> str:
    return "–" if value is None else shown_time(value)


def _drain(row: dict[str, float | None]) -> str:
    if row["backlog_peak_bytes"] is None:
        return "–"
    if not row["backlog_peak_bytes"]:
        return "owed nothing"
    return "not in the step" if row["drain_seconds"] is None else shown_time(row["drain_seconds"])
