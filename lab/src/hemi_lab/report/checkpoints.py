"""Charts of checkpoint bursts: reads and page writes on one axis."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from hemi_lab.report import axes
from hemi_lab.report.colours import BLUE, GREEN, ORANGE, RED


def series(intervals: pl.DataFrame) -> go.Figure:
    """Returns a chart of reads and writes in each second, with the reads' latency."""
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06, row_heights=[0.9, 1.1]
    )
    for kind, name, colour in (("read", "reads", BLUE), ("write", "page writes", ORANGE)):
        own = _whole(intervals, kind)
        figure.add_scatter(
            x=own["start_seconds"].to_list(),
            y=(own["count"] / own["length_seconds"]).to_list(),
            name=name,
            line={"color": colour, "width": 1.3},
            row=1,
            col=1,
        )
    reads = intervals.filter(pl.col("operation") == "read").sort("start_seconds")
    for column, name, colour in (
        ("maximum_seconds", "slowest read", RED),
        ("mean_seconds", "reads' mean", GREEN),
    ):
        figure.add_scatter(
            x=reads["start_seconds"].to_list(),
            y=reads[column].to_list(),
            name=name,
            line={"color": colour, "width": 1.3},
            row=2,
            col=1,
        )
    figure.update_yaxes(title="a second", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(**axes.seconds("latency of reads"), row=2, col=1)
    figure.update_xaxes(title="seconds", row=2, col=1)
    figure.update_layout(height=440, hovermode="x unified")
    return figure


def _whole(intervals: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Returns the intervals of a kind, with zeros where none was done."""
    every = intervals.filter(pl.col("operation") == "all").select("start_seconds", "length_seconds")
    own = intervals.filter(pl.col("operation") == kind).select("start_seconds", "count")
    return (
        every.join(own, on="start_seconds", how="left")
        .with_columns(pl.col("count").fill_null(0))
        .sort("start_seconds")
    )
