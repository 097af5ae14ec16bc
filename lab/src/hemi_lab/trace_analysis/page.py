"""An analysis as one self-contained page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from hemi_lab.report import colours
from hemi_lab.report import figures as charts
from hemi_lab.report.page import write_page
from hemi_lab.report.parts import Chart, Table
from hemi_lab.statistics.histogram import Histogram
from hemi_lab.trace_analysis import shown
from hemi_lab.trace_analysis.figures import Row, Skew, accesses, histogram, response_times
from hemi_lab.trace_analysis.parts import Tables
from hemi_lab.trace_analysis.requests import READ, WRITE
from hemi_lab.trace_analysis.tasks import Trace
from hemi_lab.units import counted, shown_count, shown_size, shown_time

_MOST_VOLUMES = 40
_MOST_POINTS = 1500
_KINDS = {READ: ("reads", colours.BLUE), WRITE: ("writes", colours.ORANGE)}


@dataclass(frozen=True)
class Section:
    """One trace."""

    name: str
    header: list[tuple[str, str]]
    notes: list[str]
    parts: list[Chart | tuple[str, Table]]


def section(trace: Trace, tables: Tables, rows: list[Row], block: int) -> Section:
    """Returns a trace's part of the page. The charts are of all its volumes."""
    known = rows[: 1 + _MOST_VOLUMES] if len(rows) > 2 else rows[:1]
    parts: list[Chart | tuple[str, Table]] = [*shown.details(known, block)]
    parts[2:2] = [
        Chart(
            "Requests and bytes, second by second",
            over_time(tables["seconds"]),
            "Lines: the mean of some seconds where there are more than the chart has points; "
            "maximum: their busiest second.",
        )
    ]
    parts.append(Chart("Sizes of requests", sizes(tables["sizes"])))
    gaps = histogram(tables["gaps"].filter(pl.col("volume").is_null()))
    if gaps.total:
        figure = charts.distribution(
            {"all volumes": [gaps]}, "time since the request before", "requests no longer after it"
        )
        parts.append(Chart("Times between requests", figure))
    parts.append(
        Chart(
            "Skew",
            skew(accesses(tables["blocks"])),
            "How much of all accesses goes to how much of the touched blocks, the hottest first.",
        )
    )
    times = _latencies(tables["latencies"], tables["operations"])
    if times:
        parts.append(Chart("Response times", charts.distribution(times)))
    return Section(trace.name, _header(trace, rows), notes(trace, rows), parts)


def notes(trace: Trace, rows: list[Row]) -> list[str]:
    """Returns the caveats of a trace."""
    whole, said = rows[0], [f"{what}." for what in trace.lacking]
    if len(rows) - 1 > _MOST_VOLUMES:
        said.append(
            f"The tables have the {_MOST_VOLUMES} volumes with most requests of {len(rows) - 1}; "
            "all are in figures.parquet."
        )
    if whole["out_of_order"]:
        said.append(
            "Earlier than the line before them, and so without a time between requests: "
            f"{counted(whole['out_of_order'], 'request')}."
        )
    if whole["rounded"]:
        said.append(
            f"Rounded outwards to sectors of 512 bytes: {counted(whole['rounded'], 'request')}."
        )
    if whole["empty"]:
        said.append(f"Left out, since of no bytes: {counted(whole['empty'], 'request')}.")
    return said


def _header(trace: Trace, rows: list[Row]) -> list[tuple[str, str]]:
    whole = rows[0]
    return [
        ("format", trace.format),
        ("files", str(len(trace.files))),
        ("volumes", str(len(rows) - 1)),
        ("requests", f"{whole['requests']:,}"),
        ("span", shown_time(whole["span_seconds"])),
        ("read", shown_size(whole["read_bytes"])),
        ("written", shown_size(whole["written_bytes"])),
        ("touched", shown_size(whole["touched_bytes"])),
    ]


def _latencies(latencies: pl.DataFrame, operations: pl.DataFrame) -> dict[str, list[Histogram]]:
    parts = {}
    for kind, (name, _) in _KINDS.items():
        own = pl.col("operation") == kind
        bins = response_times(latencies.filter(own), operations.filter(own))
        if bins.total:
            parts[name] = [bins]
    return parts


def over_time(seconds: pl.DataFrame) -> go.Figure:
    """Returns a chart of requests and bytes per second of each kind, and of the busiest seconds."""
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    first, last = int(seconds["second"].min()), int(seconds["second"].max())  # type: ignore[arg-type]
    step = -(-(last - first + 1) // _MOST_POINTS)
    slots = pl.DataFrame({"slot": range((last - first) // step + 1)}, schema={"slot": pl.Int64})
    # The last slot may be short.
    lengths = (last - first + 1 - slots["slot"] * step).clip(upper_bound=step)
    slot = ((pl.col("second") - first) // step).alias("slot")
    at = (slots["slot"] * step).to_list()

    def gathered(part: pl.DataFrame) -> pl.DataFrame:
        summed = part.group_by("second").agg(pl.col("requests", "bytes").sum())
        slotted = summed.group_by(slot).agg(
            pl.col("requests", "bytes").sum(), pl.col("requests").max().alias("most")
        )
        return slots.join(slotted, on="slot", how="left").fill_null(0)

    for kind, (name, colour) in _KINDS.items():
        own = gathered(seconds.filter(pl.col("operation") == kind))
        for row, column, factor in ((1, "requests", 1.0), (2, "bytes", 1e-6)):
            figure.add_scatter(
                x=at,
                y=(own[column] * factor / lengths).to_list(),
                name=name,
                legendgroup=name,
                showlegend=row == 1,
                line={"color": colour, "width": 1.2},
                row=row,
                col=1,
            )
    if step > 1:
        most = gathered(seconds)["most"].to_list()
        line = {"color": colours.GREY, "width": 1, "dash": "dot"}
        figure.add_scatter(x=at, y=most, name="maximum", line=line, row=1, col=1)
    figure.update_yaxes(title="requests/s", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(title="MB/s", rangemode="tozero", row=2, col=1)
    figure.update_xaxes(title="seconds since the trace began", row=2, col=1)
    figure.update_layout(height=440, hovermode="x unified")
    return figure


def sizes(table: pl.DataFrame) -> go.Figure:
    """Returns a chart of the share of requests up to each size."""
    figure = go.Figure()
    for kind, (name, colour) in _KINDS.items():
        own = (
            table.filter(pl.col("operation") == kind)
            .group_by("size_bytes")
            .agg(pl.col("requests").sum())
            .sort("size_bytes")
        )
        if own.is_empty():
            continue
        shares = 100 * own["requests"].cum_sum() / own["requests"].sum()
        figure.add_scatter(
            x=(own["size_bytes"] / 1024).to_list(),
            y=shares.to_list(),
            name=name,
            line={"color": colour, "shape": "hv"},
            mode="lines+markers",
            marker={"size": 4},
        )
    figure.update_xaxes(title="size of a request, KiB", type="log")
    figure.update_yaxes(title="% of requests no larger", range=[0, 101])
    figure.update_layout(height=320)
    return figure


def skew(touched: pl.DataFrame) -> go.Figure:
    """Returns a chart of accesses against touched blocks."""
    figure = go.Figure()
    columns = {"reads and writes": ("both", colours.GREEN)}
    columns |= {name: (name, colour) for name, colour in _KINDS.values()}
    table = touched.with_columns((pl.col("reads") + pl.col("writes")).alias("both"))
    for name, (column, colour) in columns.items():
        own = table.filter(pl.col(column) > 0)
        x, y = Skew.of(own[column], own["length"]).curve()
        figure.add_scatter(x=x, y=y, name=name, line={"color": colour, "width": 1.5})
    figure.update_xaxes(title="% of the touched blocks", type="log")
    figure.update_yaxes(title="% of accesses", range=[0, 101])
    figure.update_layout(height=340)
    return figure


def write(sections: list[Section], version: str, path: Path) -> None:
    """Writes the page."""
    title = sections[0].name if len(sections) == 1 else f"{shown_count(len(sections))} traces"
    write_page("traces.html.j2", path, title=title, sections=sections, version=version)
