"""Figures of traces as tables of text, for a terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable

from hemi_lab.report.parts import Table
from hemi_lab.trace_analysis.figures import HOTTEST, Row
from hemi_lab.units import shown_count, shown_rate, shown_size, shown_time

_NONE = "–"
Shown = Callable[[Row], str]


def _as(name: str, shown: Callable[[float], str]) -> Shown:
    return lambda row: _NONE if row[name] is None else shown(row[name])


def _count(name: str) -> Shown:
    return _as(name, lambda value: f"{value:,}" if isinstance(value, int) else shown_count(value))


def _percent(name: str) -> Shown:
    return _as(name, lambda value: f"{100 * value:.3g} %")


def _size(name: str) -> Shown:
    return _as(name, shown_size)


def _time(name: str) -> Shown:
    return _as(name, shown_time)


def _factor(name: str) -> Shown:
    return _as(name, lambda value: f"{value:,.3g}")


_SUMMARY: dict[str, Shown] = {
    "requests": _count("requests"),
    "read": _percent("read_share"),
    "mean size": _size("size_mean_bytes"),
    "req/s": _count("rate_mean"),
    "99 %": _count("rate_p99"),
    "max": _count("rate_maximum"),
    "peak/mean": _factor("rate_peak_to_mean"),
    "apart 50 %": _time("gap_p50_seconds"),
    "sequential": _percent("sequential_share"),
    "touched": _size("touched_bytes"),
    "hottest 10 %": _percent("hottest_10_percent_share"),
    "rewritten": _percent("rewritten_share"),
    "4K aligned": _percent("aligned_share"),
    "response 99 %": _time("latency_p99_seconds"),
}
_LOAD: dict[str, Shown] = {
    "requests": _count("requests"),
    "reads": _count("reads"),
    "writes": _count("writes"),
    "trims": _count("trims"),
    "flushes": _count("flushes"),
    "read": _percent("read_share"),
    "bytes read": _size("read_bytes"),
    "written": _size("written_bytes"),
    "trimmed": _size("trimmed_bytes"),
}
_RATES: dict[str, Shown] = {
    "req/s": _count("rate_mean"),
    "99 %": _count("rate_p99"),
    "max": _count("rate_maximum"),
    "peak/mean": _factor("rate_peak_to_mean"),
    "dispersion": _factor("rate_dispersion"),
    "rate": _as("bytes_per_second_mean", shown_rate),
    "max rate": _as("bytes_per_second_maximum", shown_rate),
    "seconds": _count("seconds"),
    "without requests": _count("seconds_without_requests"),
}
_APART: dict[str, Shown] = {
    "apart 50 %": _time("gap_p50_seconds"),
    "90 %": _time("gap_p90_seconds"),
    "99 %": _time("gap_p99_seconds"),
    "max": _time("gap_maximum_seconds"),
    "out of order": _count("out_of_order"),
}
_SIZES: dict[str, Shown] = {
    **{
        f"{kind} {label}".strip(): _size(f"{prefix}size_{name}_bytes")
        for kind, prefix in (("read", "read_"), ("write", "write_"))
        for label, name in (("mean", "mean"), ("50 %", "p50"), ("99 %", "p99"), ("max", "maximum"))
    },
}
_RUNS: dict[str, Shown] = {
    "4K aligned": _percent("aligned_share"),
    "rounded": _count("rounded"),
    "sequential": _percent("sequential_share"),
    "mean run": _size("run_mean_bytes"),
    "longest run": _count("run_maximum_requests"),
}
_SPACE: dict[str, Shown] = {
    "touched": _size("touched_bytes"),
    "by reads": _size("touched_by_reads_bytes"),
    "by writes": _size("touched_by_writes_bytes"),
    "by both": _size("touched_by_both_bytes"),
    **{f"hottest {percent} %": _percent(f"hottest_{percent}_percent_share") for percent in HOTTEST},
    "rewritten": _percent("rewritten_share"),
    "blocks updated": _percent("updated_blocks_share"),
}
_RESPONSE: dict[str, Shown] = {
    f"{kind} {label}": _time(f"{prefix}latency_{name}_seconds")
    for kind, prefix in (("read", "read_"), ("write", "write_"))
    for label, name in (
        ("mean", "mean"),
        ("50 %", "p50"),
        ("99 %", "p99"),
        ("99.9 %", "p999"),
        ("max", "maximum"),
    )
}


def _table(rows: list[Row], columns: dict[str, Shown], note: str = "") -> Table:
    cells = [
        [row["volume"] or "all volumes", *(shown(row) for shown in columns.values())]
        for row in rows
    ]
    return Table(["", *columns], cells, note)


def summary(rows: list[Row]) -> Table:
    """Returns a row for each volume, without columns that are empty throughout."""
    known = {
        name: shown for name, shown in _SUMMARY.items() if any(shown(row) != _NONE for row in rows)
    }
    return _table(rows, known)


def details(rows: list[Row], block: int) -> list[tuple[str, Table]]:
    """Returns all figures in several tables."""
    parts = [
        (
            "Load",
            _LOAD,
            "Requests and bytes; read: share of the reads among reads and writes.",
        ),
        (
            "Rates",
            _RATES,
            "Of whole seconds of the trace's clock, from the first request's to the "
            "last's, those without requests among them. Dispersion: their variance through "
            "their mean, 1 for a Poisson process.",
        ),
        (
            "Times between requests",
            _APART,
            "In the order of the file's lines; where time goes back, it is out of order and "
            "counted apart.",
        ),
        (
            "Sizes",
            _SIZES,
            "Exact sizes, after rounding to sectors.",
        ),
        (
            "Runs and alignment",
            _RUNS,
            "Sequential: a request of the same kind as the one before it in its volume that "
            "begins where that one ended. 4K aligned: begins and ends at multiples of 4 KiB. "
            "Rounded: did not begin and end at sectors, and is counted as if.",
        ),
        (
            "Space",
            _SPACE,
            f"Blocks of {shown_size(block)}; a request accesses each block it touches once. "
            "Hottest: share of the accesses that go to so many percent of the touched blocks. "
            "Rewritten: share of the writes to blocks that find the block written before. "
            "Updated: share of the written blocks that are written more than once.",
        ),
    ]
    if any(row["latency_mean_seconds"] is not None for row in rows):
        note = "As the trace says them; percentiles of merged bins, at most 1.6 % too high."
        parts.append(("Response times", _RESPONSE, note))
    return [(title, _table(rows, columns, note)) for title, columns, note in parts]
