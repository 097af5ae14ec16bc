"""Tests of many cells: tables, heat maps and lines over the steady window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from hemi_lab.report import figures, tables
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.results.model import Outcome
from hemi_lab.results.store import Reader
from hemi_lab.units import shown_count, shown_size, shown_time

_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("IOPS", "iops", shown_count),
    ("Mean latency", "mean", shown_time),
)


def matrix(test: Outcome, own: pl.DataFrame, reader: Reader) -> list[Part]:
    """Returns a matrix of shares of reads × sizes as tables, heat maps and lines.

    All cells and the way to the steady window follow."""
    parts: list[Part] = []
    rounds = own.filter(pl.col("stage") == "round")
    window = in_window(test, rounds)
    table = _merged(window, reader)
    shares = table["read_percent"].unique().sort(descending=True).to_list()
    sizes = table["size_bytes"].unique().sort(descending=True).to_list()
    if len(shares) > 1 and len(sizes) > 1:
        rows = [shown_size(size) for size in sizes]
        columns = [f"{share:g} % read" for share in shares]
        parts += _grids(table, ("size_bytes", sizes, rows), ("read_percent", shares, columns))
        parts.append(Chart("IOPS against size", figures.matrix_lines(table)))
    parts.append(("Cells", tables.cells(table)))
    parts.append(Chart("Convergence", figures.convergence(rounds)))
    tracked = {
        tracked.label: [
            reader.histogram([step])
            for step in window.filter(pl.col("label") == tracked.label)["step"].to_list()
        ]
        for tracked in test.tracked
    }
    note = "Bands: from the lowest to the highest of the window's rounds; lines: all merged."
    parts.append(Chart("Distribution of latencies", figures.distribution(tracked), note))
    return parts


def demand(test: Outcome, own: pl.DataFrame, reader: Reader) -> list[Part]:
    """Returns threads × queue depths, and throughput against latency."""
    table = _merged(in_window(test, own.filter(pl.col("stage") == "round")), reader)
    threads = table["threads"].unique().sort().to_list()
    depths = table["queue_depth"].unique().sort().to_list()
    parts = maps(table, threads, depths)
    points = table.rename(
        {"mean": "mean_seconds", "p99": "p99_seconds", "maximum": "maximum_seconds"}
    )
    parts.append(Chart("Throughput against latency", figures.knee(points)))
    return parts


def maps(table: pl.DataFrame, threads: list[int], depths: list[int]) -> list[Part]:
    """Returns rate and mean latency (`iops`, `mean`) of threads × queue depths."""
    return _grids(
        table,
        ("threads", threads, [f"{count} thread{'s' if count > 1 else ''}" for count in threads]),
        ("queue_depth", depths, [f"{depth} deep" for depth in depths]),
    )


_Axis = tuple[str, Sequence[Any], list[str]]
"""A column, its values, and their names."""


def _grids(table: pl.DataFrame, down: _Axis, across: _Axis) -> list[Part]:
    """Returns rate and mean latency of every cell, as a table and as a heat map."""
    parts: list[Part] = []
    for title, column, shown in _FIGURES:
        known = {(row[down[0]], row[across[0]]): row[column] for row in table.iter_rows(named=True)}
        values = [[known.get((y, x)) for x in across[1]] for y in down[1]]
        cells = [
            [name, *("–" if value is None else shown(value) for value in row)]
            for name, row in zip(down[2], values, strict=True)
        ]
        parts.append(Chart(title, figures.heat(down[2], across[2], values, shown)))
        parts.append((f"{title} in numbers", Table(["", *across[2]], cells)))
    return parts


def in_window(test: Outcome, rounds: pl.DataFrame) -> pl.DataFrame:
    first = test.tracked[0].first if test.tracked else None
    return rounds.filter(pl.col("round") >= first) if first else rounds


def _merged(rounds: pl.DataFrame, reader: Reader) -> pl.DataFrame:
    """Returns a matrix's cells over their rounds: means of rates, percentiles of merged bins."""
    rows = []
    for (label,), part in rounds.group_by(["label"], maintain_order=True):
        bins = reader.histogram(part["step"].to_list())
        count = int(part["count"].sum())
        weighted = float((part["mean_seconds"] * part["count"]).sum())
        rows.append(
            {
                "label": label,
                "read_percent": part["read_percent"][0],
                "size_bytes": part["size_bytes"][0],
                "threads": part["threads"][0],
                "queue_depth": part["queue_depth"][0],
                "iops": part["iops"].mean(),
                "bytes_per_second": part["bytes_per_second"].mean(),
                "mean": weighted / count,
                "p50": bins.known_percentile(0.5),
                "p99": bins.known_percentile(0.99),
                "p999": bins.known_percentile(0.999),
                "p9999": bins.known_percentile(0.9999),
                "p99999": bins.known_percentile(0.99999),
                "maximum": part["maximum_seconds"].max(),
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)
