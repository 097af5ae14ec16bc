"""A replayed trace: latency and lateness at each queue depth, and the rate over time."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from hemi_lab.report.colours import COLOURS
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.results.store import Reader
from hemi_lab.units import shown_count, shown_rate, shown_time

_KINDS = (("read", "reads"), ("write", "writes"))


def parts(steps: pl.DataFrame, intervals: pl.DataFrame, reader: Reader) -> list[Part]:
    """Returns the figures of every queue depth, reads and writes apart."""
    rows = []
    for step in steps.filter(pl.col("stage") == "measure").iter_rows(named=True):
        own = intervals.filter(pl.col("step") == step["step"])
        for kind, name in _KINDS:
            part = own.filter((pl.col("operation") == kind) & (pl.col("count") > 0))
            bins = reader.histogram([step["step"]], kind)
            if part.is_empty() or not bins.total:
                continue
            count = float(part["count"].sum())
            mean = float((part["mean_seconds"] * part["count"]).sum()) / count
            most = float(part["maximum_seconds"].max())  # type: ignore[arg-type]
            p99 = bins.known_percentile(0.99)
            rows.append(
                [
                    f"{step['label']}: {name}",
                    f"{bins.total:,}",
                    shown_count(count / step["length_seconds"]),
                    shown_rate(float(part["bytes"].sum()) / step["length_seconds"]),
                    shown_time(mean),
                    "–" if p99 is None else shown_time(p99),
                    shown_time(most),
                    _late(step["lateness_p50_seconds"]),
                    _late(step["lateness_p99_seconds"]),
                ]
            )
    if not rows:
        return []
    headings = ["", "requests", "IOPS", "rate", "mean", "99 %", "max", "late 50 %", "late 99 %"]
    note = (
        "Latency counts from the trace's own time: a request that waits for a place in the queue "
        "waits in it. Late: how long after a request could go the engine sent it; simulated "
        "engines are never late."
    )
    return [
        ("Replayed", Table(headings, rows, note)),
        Chart("Data rate", _rates(steps, intervals), "Reads above, writes below the line."),
    ]


def _late(seconds: float | None) -> str:
    return "–" if seconds is None else shown_time(seconds)


def _rates(steps: pl.DataFrame, intervals: pl.DataFrame) -> go.Figure:
    figure = go.Figure()
    measured = steps.filter(pl.col("stage") == "measure")
    for number, step in enumerate(measured.iter_rows(named=True)):
        for kind, name in _KINDS:
            part = intervals.filter(
                (pl.col("step") == step["step"])
                & (pl.col("operation") == kind)
                & (pl.col("length_seconds") >= 0.25)
            ).sort("start_seconds")
            sign = 1 if kind == "read" else -1
            figure.add_scatter(
                x=part["start_seconds"].to_list(),
                y=(sign * part["bytes"] / part["length_seconds"] / 1e6).to_list(),
                name=f"{step['label']}: {name}",
                line={
                    "color": COLOURS[number % len(COLOURS)],
                    "width": 1.3,
                    "dash": "solid" if kind == "read" else "dot",
                },
            )
    figure.update_xaxes(title="seconds of the trace")
    figure.update_yaxes(title="MB/s")
    figure.update_layout(height=320, hovermode="x unified")
    return figure
