"""Writes an analysis: figures, distributions and the page."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import polars as pl

from hemi_lab.errors import LabError
from hemi_lab.statistics.histogram import fio_bin
from hemi_lab.trace_analysis import page
from hemi_lab.trace_analysis.analysis import Store, whole
from hemi_lab.trace_analysis.figures import Row, rows
from hemi_lab.trace_analysis.parts import BACKWARDS, Tables
from hemi_lab.trace_analysis.tasks import Trace

DISTRIBUTIONS = ("sizes", "seconds", "gaps", "latencies", "runs")


def figures(traces: list[Trace], store: Store) -> list[Row]:
    """Returns the figures of traces. Writes nothing."""
    block = traces[0].tasks[0].block
    return [row for trace in traces for row in rows(trace.name, whole(trace, store), block)]


def write(traces: list[Trace], store: Store, folder: Path) -> tuple[Path, list[Row]]:
    """Merges each trace and writes everything into a directory named by a hash of the tasks.

    Returns the directory and the figures."""
    keys = [[trace.name, *(task.key for task in trace.tasks)] for trace in traces]
    name = hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:16]
    out = folder / "analyses" / name
    block = traces[0].tasks[0].block
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{out}: {error.strerror}", "Give another --out.") from error
    found: list[Row] = []
    sections = []
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in DISTRIBUTIONS}
    for trace in traces:
        tables = whole(trace, store)
        own = rows(trace.name, tables, block)
        found += own
        sections.append(page.section(trace, tables, own, block))
        for name, table in _distributions(trace, tables).items():
            frames[name].append(table)
    versions = sorted({task.version for trace in traces for task in trace.tasks})
    _put(out / "figures.parquet", pl.DataFrame(found, infer_schema_length=None))
    for name in DISTRIBUTIONS:
        _put(out / f"{name}.parquet", pl.concat(frames[name]))
    said = {
        "version": versions,
        "block_bytes": block,
        "traces": [
            {"name": trace.name, "files": trace.files, "format": trace.format} for trace in traces
        ],
        "figures": found,
    }
    path = out / "figures.json"
    try:
        temporary = path.with_name(".figures.json")
        temporary.write_text(json.dumps(said, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", "Make room, or give another --out.") from error
    page.write(sections, ", ".join(versions), out / "report.html")
    return out, found


def _distributions(trace: Trace, tables: Tables) -> dict[str, pl.DataFrame]:
    """Returns merged tables for other readers: bins by their ends, the trace's name in each row."""
    found = {}
    for name in DISTRIBUTIONS:
        table = tables[name]
        if "bin" in table.columns:
            numbers = [number for number in table["bin"].unique() if number != BACKWARDS]
            ends = pl.DataFrame(
                [(number, *fio_bin(number)) for number in numbers],
                schema={"bin": pl.Int32, "low_ns": pl.Int64, "high_ns": pl.Int64},
                orient="row",
            )
            # Requests that go back in time have no bin.
            table = (
                table.join(ends, on="bin", how="left", maintain_order="left")
                .drop("bin")
                .select(pl.exclude("count"), "count")
            )
        found[name] = table.select(pl.lit(trace.name).alias("trace"), pl.all())
    return found


def _put(path: Path, frame: pl.DataFrame) -> None:
    temporary = path.with_name(f".{path.name}")
    try:
        frame.write_parquet(temporary, compression="zstd")
        temporary.replace(path)
    except OSError as error:
        raise LabError(f"{path}: {error}", "Make room, or give another --out.") from error
