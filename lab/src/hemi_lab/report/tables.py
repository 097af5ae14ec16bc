"""The tables of a report: headings and cells as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from hemi_lab.results.model import Result
from hemi_lab.statistics.confidence import batch_means, of_mean
from hemi_lab.units import shown_count, shown_rate, shown_size, shown_time


@dataclass(frozen=True)
class Table:
    """Headings, rows, and what stands under it."""

    headings: list[str]
    rows: list[list[str]]
    note: str = ""


def _time(value: float | None) -> str:
    return "–" if value is None else shown_time(value)


def points(steps: pl.DataFrame, intervals: pl.DataFrame) -> Table:
    """Steps with rates and latencies, a row each."""
    joules = steps["energy_joules"].is_not_null().any()
    headings = [
        "",
        "IOPS",
        "± 95 %",
        "rate",
        "mean",
        "σ",
        "99 %",
        "99.9 %",
        "99.99 %",
        "99.999 %",
        "max",
    ]
    rows = []
    for step in steps.iter_rows(named=True):
        row = [
            step["label"],
            shown_count(step["iops"]),
            _within(step["step"], intervals),
            shown_rate(step["bytes_per_second"]),
            *(
                _time(step[f"{name}_seconds"])
                for name in (
                    "mean",
                    "standard_deviation",
                    "p99",
                    "p999",
                    "p9999",
                    "p99999",
                    "maximum",
                )
            ),
        ]
        if joules:
            used, count = step["energy_joules"], step["count"]
            row.append(f"{1e6 * used / count:.3g} µJ" if used and count else "–")
        rows.append(row)
    if joules:
        headings.append("energy a request")
    note = (
        "± 95 %: of the IOPS, from means of ten batches of seconds (Student's t); none below ten "
        "seconds. Percentiles are of merged bins, at most 1.6 % high; – where fewer than one "
        "request would lie beyond."
    )
    return Table(headings, rows, note)


def _within(step: int, intervals: pl.DataFrame) -> str:
    own = intervals.filter(
        (pl.col("step") == step) & (pl.col("operation") == "all") & (pl.col("length_seconds") > 0.9)
    ).sort("start_seconds")
    if own.height < 10:
        return "–"
    rates = (own["count"] / own["length_seconds"]).to_list()
    found = batch_means(rates)
    return f"{found.half_width / found.mean:.1%}" if found.mean else "–"


def cells(table: pl.DataFrame) -> Table:
    """Mean, 99.9 % and maximum of a matrix's cells, in the steady window."""
    rows = [
        [
            row["label"],
            shown_count(row["iops"]),
            shown_rate(row["bytes_per_second"]),
            *(
                _time(row[name])
                for name in ("mean", "p50", "p99", "p999", "p9999", "p99999", "maximum")
            ),
        ]
        for row in table.iter_rows(named=True)
    ]
    headings = ["", "IOPS", "rate", "mean", "50 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "max"]
    return Table(
        headings, rows, "Means over the steady window; percentiles of its rounds' merged bins."
    )


def run_to_run(runs: list[tuple[Result, pl.DataFrame]]) -> Table:
    """The same step over several runs: how far they agree."""
    values: dict[tuple[str, str], list[float]] = {}
    for _, steps in runs:
        measured = steps.filter(pl.col("stage") == "measure")
        for row in measured.iter_rows(named=True):
            values.setdefault((row["test"], row["label"]), []).append(row["iops"])
    rows = []
    for (test, label), known in values.items():
        if len(known) < 2:
            continue
        found = of_mean(known)
        rows.append(
            [
                f"{test}, {label}",
                str(found.count),
                shown_count(found.mean),
                f"{shown_count(found.low)} to {shown_count(found.high)}",
                f"{shown_count(min(known))} to {shown_count(max(known))}",
            ]
        )
    return Table(
        ["", "runs", "mean IOPS (databases: tps)", "95 % interval", "least to most"],
        rows,
        "Student's t over the runs.",
    )


def header(result: Result) -> list[tuple[str, str]]:
    """The box at the top, line by line."""
    target: dict[str, Any] = result.target
    lines = [
        ("target", str(target["text"])),
        ("model", _joined(target.get("model"), target.get("firmware"))),
        ("capacity", shown_size(target["bytes"]) if target.get("bytes") else "–"),
    ]
    if result.simulated:
        legs = ", ".join(target.get("legs") or [])
        scale = target.get("scale")
        lines += [
            ("policy", f"{target.get('policy')} over {legs}"),
            (
                "scale",
                f"flash divided by {scale}, beside its preset's own"
                if scale != 1
                else "as its preset",
            ),
        ]
    else:
        lines += [
            ("scheduler", str(target.get("scheduler") or "–")),
            ("write cache", str(target.get("write_cache") or "not known")),
            ("file system", str(target.get("file_system") or "none")),
        ]
    if target.get("policy") and not result.simulated:
        lines.append(("policy", f"{target['policy']} over {', '.join(target.get('legs') or [])}"))
    lines += [
        ("host", f"{result.host.processor}, {result.host.cores} cores, {result.host.kernel}"),
        ("engine", f"{result.engine.name} {result.engine.version}"),
        ("seed", str(result.seed)),
        ("run", f"{result.id}, {result.started:%Y-%m-%d %H:%M} UTC, hemi-lab {result.lab_version}"),
    ]
    if result.ceiling:
        lines.append(("generator", f"{result.ceiling.iops:,.0f} IOPS at most, with one thread"))
    return lines


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part) or "not known"
