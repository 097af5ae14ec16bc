"""The tables of a report, with headings and cells as text."""

from __future__ import annotations

import polars as pl

from hemi_lab.report import within
from hemi_lab.report.parts import Table
from hemi_lab.statistics.histogram import Histogram
from hemi_lab.statistics.quantiles import percentile_interval
from hemi_lab.units import shown_count, shown_rate, shown_size, shown_time


def _time(value: float | None) -> str:
    return "–" if value is None else shown_time(value)


def points(steps: pl.DataFrame, intervals: pl.DataFrame) -> Table:
    """Returns a row for each step, with its rates and latencies."""
    headings = [
        "",
        "IOPS",
        "± 95 %",
        "rate",
        "mean",
        "σ",
        "50 %",
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
                    "p50",
                    "p99",
                    "p999",
                    "p9999",
                    "p99999",
                    "maximum",
                )
            ),
        ]
        rows.append(row)
    note = (
        "± 95 %: of the IOPS, from means of ten batches of seconds (Student's t); none below ten "
        "seconds. Percentiles are of merged bins, at most 1.6 % high; – where fewer than one "
        "request would lie beyond."
    )
    return Table(headings, rows, note)


def _within(step: int, intervals: pl.DataFrame) -> str:
    found = within.rate(step, intervals)
    return "–" if found is None or not found.mean else f"{found.half_width / found.mean:.1%}"


def cells(table: pl.DataFrame) -> Table:
    """Returns rate and latencies of a matrix's cells in the steady window."""
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


def energy(steps: pl.DataFrame) -> Table | None:
    """Returns the energy of each load's requests, or `None` if no energy is known."""
    rows = []
    known = steps.filter((pl.col("energy_joules") > 0) & (pl.col("count") > 0))
    for (label,), part in known.group_by(["label"], maintain_order=True):
        used, count, moved, length = (
            float(part[column].to_numpy().sum())
            for column in ("energy_joules", "count", "bytes", "length_seconds")
        )
        watts = used / length
        rows.append(
            [
                str(label),
                f"{watts:.3g} W",
                shown_energy(used / count),
                shown_count(count / used),
                f"{moved / 1e6 / used:.3g} MB",
                f"{used:.3g} J",
            ]
        )
    if not rows:
        return None
    headings = ["", "power", "a request", "IOPS a watt", "moved a joule", "in all"]
    return Table(headings, rows, "Of all legs, what they take when idle included.")


def shown_energy(joules: float) -> str:
    """Returns a text such as `12.3 µJ`."""
    for unit, factor in (("J", 1.0), ("mJ", 1e-3)):
        if joules >= factor:
            return f"{joules / factor:.3g} {unit}"
    return f"{joules / 1e-6:.3g} µJ"


def legs(steps: pl.DataFrame, causes: pl.DataFrame) -> Table | None:
    """Returns each leg's work in each step, with the largest debt and exposure.

    `None` for a target of one leg."""
    rows = []
    for step in steps.iter_rows(named=True):
        own = causes.filter(pl.col("step") == step["step"])
        for leg in own["leg"].drop_nulls().unique().sort().to_list():
            part = own.filter(pl.col("leg") == leg)
            moved = _weighted(part, "bytes_per_second")
            rows.append(
                [
                    f"{step['label']}: leg {leg}",
                    _share(_weighted(part, "share", own, "bytes_per_second")),
                    "–" if moved is None else shown_rate(moved),
                    _time(_weighted(part, "read_seconds", part, "reads_per_second")),
                    _time(_weighted(part, "write_seconds", part, "writes_per_second")),
                    _share(_weighted(part, "busy")),
                    _plain(_weighted(part, "write_amplification", part, "bytes_per_second")),
                    _size(_peak(part, "backlog_bytes")),
                    _count(part, "freezes"),
                    _time(_sum(part, "frozen_seconds")),
                    _size(_peak(own, "exposure_bytes")),
                    _time(_peak(own, "exposure_age_seconds")),
                    _count_of(_peak(own, "dirty_regions")),
                ]
            )
    if len({row[0].rsplit(" ", 1)[1] for row in rows}) < 2:
        return None
    names = ["", "share", "rate", "reads in", "writes in", "busy", "write ampl."]
    headings = [*names, "owed", "freezes", "frozen", "exposed", "for", "dirty"]
    known = [0, *(n for n in range(1, len(headings)) if any(row[n] != "–" for row in rows))]
    note = (
        "Share: of the bytes that legs moved. Reads and writes in: the leg's mean time to answer. "
        "Owed (by the leg), exposed (acknowledged and on one leg only, of the whole volume; for "
        "how long) and dirty (regions of the volume, to be compared after a crash) are peaks."
    )
    return Table([headings[n] for n in known], [[row[n] for n in known] for row in rows], note)


def _of(causes: pl.DataFrame, name: str) -> pl.DataFrame:
    return causes.filter(pl.col("name") == name)


def _weighted(
    part: pl.DataFrame, name: str, other: pl.DataFrame | None = None, weight: str | None = None
) -> float | None:
    """Returns the mean of a cause over time, or weighted by another cause in the same intervals."""
    own = _of(part, name)
    if own.is_empty():
        return None
    weights = own["length_seconds"]
    if other is not None and weight is not None:
        by = _of(other, weight).group_by("start_seconds").agg(pl.col("value").sum().alias("weight"))
        joined = own.join(by, on="start_seconds", how="left")
        weights = joined["length_seconds"] * joined["weight"].fill_null(0.0)
        own = joined
    whole = float(weights.sum())
    return float((own["value"] * weights).sum()) / whole if whole else None


def _peak(part: pl.DataFrame, name: str) -> float | None:
    values = _of(part, name)["value"]
    return float(values.max()) if values.len() else None  # type: ignore[arg-type]


def _sum(part: pl.DataFrame, name: str) -> float | None:
    values = _of(part, name)["value"]
    return float(values.sum()) if values.len() else None


def _count(part: pl.DataFrame, name: str) -> str:
    return _count_of(_sum(part, name))


def _count_of(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _size(value: float | None) -> str:
    return "–" if value is None else shown_size(value)


_NINES = ((0.5, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %"))


def quality(parts: dict[str, Histogram]) -> Table:
    """Returns percentiles with their intervals, for judging latency objectives."""
    rows = []
    for label, bins in parts.items():
        row = [label, f"{bins.total:,}"]
        for quantile, _ in _NINES:
            known = bins.known_percentile(quantile)
            if known is None:
                row.append("–")
                continue
            low, high = percentile_interval(bins, quantile)
            row.append(f"{shown_time(known)}\n{shown_time(low)} to {shown_time(high)}")
        rows.append(row)
    headings = ["", "requests", *(name for _, name in _NINES)]
    note = (
        "Below each: its 95 % interval, by the ranks of the requests (the binomial's). Requests "
        "count as independent; where slow ones come together, the truth is wider."
    )
    return Table(headings, rows, note)
