"""Charts and tables of stalls: the clients' latencies in each phase and over time.

Several runs are shown together."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from hemi_lab.report import axes
from hemi_lab.report.colours import BLUE, COLOURS, GREEN, GREY, ORANGE, RED
from hemi_lab.report.freezes import filled
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.results.store import Reader
from hemi_lab.units import shown_count, shown_size, shown_time

_CAUSES = (
    ("backlog_bytes", "owed MiB", "owed"),
    ("exposure_bytes", "exp. MiB", "exposed"),
)
_MIB = 1 << 20

_MOST_POINTS = 3000
"""Largest number of points of a line. A longer series is gathered into this many bins, each with
its slowest request."""

NOTE = (
    "Of requests by when they were meant to go, whenever they were done; IOPS count what was done "
    "in the phase. Exact, of every request. – where fewer than one request would lie beyond. Owed "
    "and exposed: at most, as the target's status told."
)


def phases(stalls: pl.DataFrame) -> Table:
    """Returns a row for each phase, for all of them together, and for before and after."""
    rows = [
        [
            _name(row),
            shown_time(row["ended_seconds"] - row["began_seconds"]),
            f"{row['count']:,}",
            shown_count(row["iops"]),
            *(_time(row[f"{name}_seconds"]) for name in ("p50", "p99", "p999", "maximum")),
            _time(row["reads_maximum_seconds"]),
            _time(row["writes_maximum_seconds"]),
            _size(row["backlog_peak_bytes"]),
            _size(row["exposure_peak_bytes"]),
        ]
        for row in stalls.iter_rows(named=True)
    ]
    headings = [
        "",
        "for",
        "requests",
        "IOPS",
        "50 %",
        "99 %",
        "99.9 %",
        "longest",
        "read",
        "write",
        "owed",
        "exposed",
    ]
    return Table(headings, rows, NOTE)


def over_time(stalls: pl.DataFrame, intervals: pl.DataFrame, causes: pl.DataFrame) -> go.Figure:
    """Returns rate, latency, debt and exposure on one axis that begins with the first phase.

    The phases are marked."""
    begin = _begin(stalls)
    known = [
        (title, word, part)
        for name, title, word in _CAUSES
        if (part := causes.filter(pl.col("name") == name)).height and part["value"].max()
    ]
    rows = 2 + len(known)
    figure = make_subplots(
        rows=rows,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=0.045,
        row_heights=[0.5, 1.2, *[0.5] * len(known)],
    )
    series = gathered(intervals)
    at = [value - begin for value in series["at"]]
    for column, name, colour, row in (
        ("iops", "IOPS", BLUE, 1),
        ("maximum_seconds", "slowest", RED, 2),
        ("mean_seconds", "mean", GREEN, 2),
    ):
        line = {"color": colour, "width": 1.2}
        figure.add_scatter(x=at, y=series[column].to_list(), name=name, line=line, row=row, col=1)
    figure.update_yaxes(**axes.count("IOPS"), row=1, col=1)
    figure.update_yaxes(**axes.seconds("latency"), row=2, col=1)
    for row, (title, word, part) in enumerate(known, 3):
        for number, leg in enumerate(part["leg"].unique().sort().to_list()):
            own = part.filter(pl.col("leg").eq_missing(leg)).sort("start_seconds")
            figure.add_scatter(
                x=(own["start_seconds"] + own["length_seconds"] - begin).to_list(),
                y=(own["value"] / _MIB).to_list(),
                name=word if leg is None else f"{word} by leg {leg}",
                line={"color": (ORANGE, GREEN)[number % 2], "width": 1.2},
                row=row,
                col=1,
            )
        figure.update_yaxes(title=title, rangemode="tozero", row=row, col=1)
    _mark(figure, stalls, begin, rows)
    figure.update_xaxes(title="seconds since the first phase began", row=rows, col=1)
    figure.update_layout(height=360 + 110 * len(known), hovermode="x unified")
    return figure


def together(runs: list[tuple[str, Reader]]) -> list[Part]:
    """Compares each test that several runs have.

    Returns the slowest requests over time in one chart, and the phases in one table."""
    found: list[Part] = []
    tables = [(letter, reader, reader.table("stalls")) for letter, reader in runs]
    tests = dict.fromkeys(test for _, _, stalls in tables for test in stalls["test"].to_list())
    for test in tests:
        own = [
            (f"{letter}: {reader.result.target['text']}", reader, part)
            for letter, reader, stalls in tables
            if (part := stalls.filter(pl.col("test") == test)).height
        ]
        if len(own) < 2:
            continue
        found.append(
            Chart(
                f"{test}: the slowest requests of each run",
                _beside(own),
                "Shaded: phases in which requests of a leg stalled. By when requests were done.",
            )
        )
        rows = [
            [f"{letter[0]}, {_name(row)}", *_figures(row)]
            for phase in _order(own[0][2])
            for letter, _, stalls in own
            for row in stalls.filter(phase).iter_rows(named=True)
        ]
        headings = ["", "requests", "IOPS", "50 %", "99 %", "99.9 %", "longest"]
        found.append((f"{test}: the runs by phase", Table(headings, rows, NOTE)))
    return found


def _order(stalls: pl.DataFrame) -> list[pl.Expr]:
    return [
        (pl.col("label") == row["label"]) & pl.col("phase").eq_missing(row["phase"])
        for row in stalls.iter_rows(named=True)
    ]


def _figures(row: dict[str, float | None]) -> list[str]:
    times = [_time(row[f"{name}_seconds"]) for name in ("p50", "p99", "p999", "maximum")]
    return [f"{row['count']:,}", shown_count(row["iops"] or 0.0), *times]


def _beside(runs: list[tuple[str, Reader, pl.DataFrame]]) -> go.Figure:
    figure = go.Figure()
    for number, (name, reader, stalls) in enumerate(runs):
        begin = _begin(stalls)
        steps = stalls["step"].unique().to_list()
        series = gathered(reader.table("intervals").filter(pl.col("step").is_in(steps)))
        figure.add_scatter(
            x=[value - begin for value in series["at"]],
            y=series["maximum_seconds"].to_list(),
            name=name,
            line={"color": COLOURS[number % len(COLOURS)], "width": 1.2},
        )
    first = runs[0][2]
    _mark(figure, first, _begin(first), None)
    figure.update_yaxes(**axes.seconds("slowest request"))
    figure.update_xaxes(title="seconds since the first phase began")
    figure.update_layout(height=360, hovermode="x unified")
    return figure


def gathered(intervals: pl.DataFrame) -> pl.DataFrame:
    """Returns `at`, `iops`, `mean_seconds` and `maximum_seconds` over time.

    Points of a long step span several intervals, with the slowest request of all of them."""
    series = filled(intervals)
    if series.is_empty():
        return pl.DataFrame(
            schema=dict.fromkeys(("at", "iops", "mean_seconds", "maximum_seconds"), pl.Float64)
        )
    each = -(-series.height // _MOST_POINTS)
    total = pl.col("count").sum()
    return (
        series.with_columns((pl.col("bin") // each).alias("point"))
        .group_by("point", maintain_order=True)
        .agg(
            (pl.col("start_seconds") + pl.col("length_seconds") / 2).mean().alias("at"),
            (total / pl.col("length_seconds").sum()).alias("iops"),
            # Where nothing was done there is no latency.
            pl.when(total > 0)
            .then((pl.col("mean_seconds") * pl.col("count")).sum() / total)
            .alias("mean_seconds"),
            pl.col("maximum_seconds").max(),
        )
        .sort("point")
    )


def _begin(stalls: pl.DataFrame) -> float:
    return float(stalls.filter(pl.col("phase") == 0)["began_seconds"][0])


def _mark(figure: go.Figure, stalls: pl.DataFrame, begin: float, rows: int | None) -> None:
    """Shades the phases in which requests stall, in two alternating shades, and labels all
    phases."""
    own = stalls.filter(pl.col("phase") > 0).sort("phase")
    every = {} if rows is None else {"row": "all", "col": 1}
    for row in own.iter_rows(named=True):
        stalled = row["read_share"] > 0 or row["write_share"] > 0
        start, end = row["began_seconds"] - begin, row["ended_seconds"] - begin
        colour = RED if stalled else GREY
        opacity = (0.14 if row["phase"] % 2 else 0.08) if stalled else 0.0
        figure.add_vrect(x0=start, x1=end, fillcolor=colour, opacity=opacity, line_width=0, **every)
        figure.add_annotation(
            x=(start + end) / 2,
            xref="x",
            y=1.0,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            font={"size": 10},
            text=shown_time(row["delay_seconds"]) if stalled else "health",
        )


def _name(row: dict[str, object]) -> str:
    return f"{row['phase']}: {row['label']}" if row["phase"] else str(row["label"])


def _size(value: float | None) -> str:
    return "–" if value is None else shown_size(value)


def _time(value: float | None) -> str:
    return "–" if value is None else shown_time(value)
