"""Figures of a trace, for each volume and for all.

docs/lab/traces.md has the meaning and the source of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from hemi_lab.statistics.histogram import Histogram, fio_bin
from hemi_lab.trace_analysis.parts import BACKWARDS, Tables
from hemi_lab.trace_analysis.requests import FLUSH, READ, TRIM, WRITE

HOTTEST = (1, 5, 10, 20)
"""Percent of the touched blocks."""
_MOVED = [READ, WRITE]
Row = dict[str, Any]
"""Figures by name. Missing ones are `None`."""


@dataclass(frozen=True)
class Skew:
    """Touched blocks from the hottest on, as runs of blocks with equal accesses."""

    blocks: NDArray[np.int64]
    accesses: NDArray[np.int64]
    """Accesses to each block of the run."""

    @staticmethod
    def of(accesses: pl.Series, blocks: pl.Series) -> Skew:
        """Builds it from runs of blocks in any order."""
        number, length = accesses.to_numpy(), blocks.to_numpy()
        order = np.argsort(-number, kind="stable")
        return Skew(length[order].astype(np.int64), number[order].astype(np.int64))

    def share(self, percent: int) -> float | None:
        """Returns the share of all accesses that go to the hottest `percent` of the blocks.

        A part of a block counts as a whole one."""
        touched, accesses = int(self.blocks.sum()), int((self.blocks * self.accesses).sum())
        if not accesses:
            return None
        hot = -(-touched * percent // 100)
        sums = np.cumsum(self.blocks)
        index = int(np.searchsorted(sums, hot))
        before = int(sums[index - 1]) if index else 0
        whole = int((self.blocks[:index] * self.accesses[:index]).sum())
        return (whole + (hot - before) * int(self.accesses[index])) / accesses

    def curve(self, points: int = 200) -> tuple[list[float], list[float]]:
        """Returns percentages of blocks, the hottest first, and the percentages of their
        accesses."""
        blocks, hits = np.cumsum(self.blocks), np.cumsum(self.blocks * self.accesses)
        if not blocks.size:
            return [], []
        at = np.concatenate([np.geomspace(1, blocks[-1], points), [blocks[-1]]])
        shares = np.interp(at, np.concatenate([[0], blocks]), np.concatenate([[0], hits]))
        return (100 * at / blocks[-1]).tolist(), (100 * shares / hits[-1]).tolist()


def accesses(blocks: pl.DataFrame) -> pl.DataFrame:
    """Returns runs of `length` blocks with equal accesses, from the table of differences.

    Untouched blocks are left out."""
    summed = blocks.sort("volume", "block").with_columns(
        pl.col("reads").cum_sum().over("volume"),
        pl.col("writes").cum_sum().over("volume"),
        (pl.col("block").shift(-1).over("volume") - pl.col("block")).cast(pl.Int64).alias("length"),
    )
    return summed.filter((pl.col("reads") > 0) | (pl.col("writes") > 0)).select(
        "volume", "length", "reads", "writes"
    )


def histogram(bins: pl.DataFrame) -> Histogram:
    """Returns fio's bins, from any number of rows, as times."""
    known = bins.filter(pl.col("bin") != BACKWARDS)
    return Histogram.of(
        (*fio_bin(number), count) for number, count in known.select("bin", "count").iter_rows()
    )


def response_times(latencies: pl.DataFrame, operations: pl.DataFrame) -> Histogram:
    """Returns the latencies' bins, limited to the longest in the operations."""
    longest = operations["longest_ns"].max()
    bins = histogram(latencies)
    return bins.cut(longest / 1e9) if isinstance(longest, int) else bins


def rank(values: pl.Series, counts: pl.Series, quantile: float) -> float | None:
    """Returns the smallest value that this share of the counts does not exceed (nearest rank)."""
    order = values.arg_sort()
    sums = np.cumsum(counts.gather(order).to_numpy())
    if not sums.size or not sums[-1]:
        return None
    wanted = max(1, math.ceil(quantile * int(sums[-1]) - 1e-9))
    return float(values.gather(order)[int(np.searchsorted(sums, wanted))])


def per_second(seconds: pl.DataFrame) -> pl.DataFrame:
    """Returns requests and bytes of each second that has any."""
    summed = pl.col("requests", "bytes").sum()
    return seconds.group_by("second").agg(summed).sort("second")


@dataclass(frozen=True)
class _Rates:
    """Statistics of a count in every second from the first to the last, with empty ones
    included."""

    seconds: int
    mean: float
    p99: float
    maximum: float
    dispersion: float | None
    """Variance divided by mean: 1 for a Poisson process."""

    @staticmethod
    def of(values: pl.Series, seconds: int) -> _Rates:
        number = values.to_numpy().astype(np.float64)
        total = math.fsum(number)
        mean = total / seconds
        spread = math.fsum((number - mean) ** 2) + (seconds - number.size) * mean**2
        # Empty seconds come first in the order.
        place = max(1, math.ceil(0.99 * seconds - 1e-9)) - (seconds - number.size)
        p99 = float(np.sort(number)[place - 1]) if place > 0 else 0.0
        dispersion = spread / seconds / mean if mean else None
        return _Rates(seconds, mean, p99, float(number.max(initial=0.0)), dispersion)


def rows(trace: str, tables: Tables, block: int) -> list[Row]:
    """Returns the figures of all volumes together, then of each, by falling number of requests.

    The row of all volumes has no name."""
    touched = accesses(tables["blocks"])
    parts = {**tables, "blocks": touched}
    every = [{"trace": trace, "volume": None, **_figures(parts, block, None)}]
    split = {name: dict(_by_volume(table)) for name, table in parts.items()}
    each = []
    for volume in split["operations"]:
        own = {name: split[name].get(volume, table.clear()) for name, table in parts.items()}
        if own["operations"]["requests"].sum():
            each.append({"trace": trace, "volume": volume, **_figures(own, block, volume)})
    return every + sorted(each, key=_order)


def _order(row: Row) -> tuple[int, str]:
    return -row["requests"], row["volume"]


def _by_volume(table: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    named = table.filter(pl.col("volume").is_not_null())
    for key, part in named.partition_by("volume", as_dict=True, maintain_order=True).items():
        yield str(key[0]), part


def _share(part: float, of: float) -> float | None:
    return part / of if of else None


def _figures(tables: Tables, block: int, volume: str | None) -> Row:
    return {
        **_amounts(tables["operations"]),
        **_sizes(tables["sizes"]),
        **_rates(tables["seconds"]),
        **_gaps(tables["gaps"].filter(pl.col("volume").eq_missing(pl.lit(volume, pl.String)))),
        **_runs(tables["runs"]),
        **_blocks(tables["blocks"], block),
        **_latencies(tables["latencies"], tables["operations"]),
    }


def _sum(table: pl.DataFrame, column: str, operations: list[str] | None = None) -> int:
    if operations is not None:
        table = table.filter(pl.col("operation").is_in(operations))
    return int(table[column].sum())


def _amounts(operations: pl.DataFrame) -> Row:
    first, last = operations["first_ns"].min(), operations["last_ns"].max()
    assert isinstance(first, int) and isinstance(last, int)

    def count(*names: str) -> int:
        return _sum(operations, "requests", list(names))

    def size(*names: str) -> int:
        return _sum(operations, "bytes", list(names))

    moved = count(READ, WRITE)
    return {
        "requests": _sum(operations, "requests"),
        "reads": count(READ),
        "writes": count(WRITE),
        "trims": count(TRIM),
        "flushes": count(FLUSH),
        "fua_writes": _sum(operations, "fua"),
        "bytes": size(READ, WRITE),
        "read_bytes": size(READ),
        "written_bytes": size(WRITE),
        "trimmed_bytes": size(TRIM),
        "read_share": _share(count(READ), moved),
        "read_bytes_share": _share(size(READ), size(READ, WRITE)),
        "aligned_share": _share(_sum(operations, "aligned", _MOVED), moved),
        "rounded": _sum(operations, "rounded"),
        "empty": _sum(operations, "empty"),
        "first_ns": first,
        "last_ns": last,
        "span_seconds": (last - first) / 1e9,
    }


def _sizes(sizes: pl.DataFrame) -> Row:
    found: Row = {}
    for prefix, kinds in (("", _MOVED), ("read_", [READ]), ("write_", [WRITE])):
        own = sizes.filter(pl.col("operation").is_in(kinds))
        count = int(own["requests"].sum())
        whole = int((own["requests"] * own["size_bytes"]).sum())
        found[f"{prefix}size_mean_bytes"] = _share(whole, count)
        for quantile in (50, 90, 99, 100):
            name = f"p{quantile}" if quantile < 100 else "maximum"
            value = rank(own["size_bytes"], own["requests"], quantile / 100)
            found[f"{prefix}size_{name}_bytes"] = None if value is None else int(value)
    return found


def _rates(seconds: pl.DataFrame) -> Row:
    summed = per_second(seconds)
    first, last = summed["second"].min(), summed["second"].max()
    assert isinstance(first, int) and isinstance(last, int)
    whole = last - first + 1
    requests = _Rates.of(summed["requests"], whole)
    moved = per_second(seconds.filter(pl.col("operation").is_in(_MOVED)))
    bytes_ = _Rates.of(moved["bytes"], whole)
    return {
        "seconds": whole,
        "seconds_without_requests": whole - summed.height,
        "rate_mean": requests.mean,
        "rate_p99": requests.p99,
        "rate_maximum": requests.maximum,
        "rate_peak_to_mean": requests.maximum / requests.mean,
        "rate_dispersion": requests.dispersion,
        "bytes_per_second_mean": bytes_.mean,
        "bytes_per_second_p99": bytes_.p99,
        "bytes_per_second_maximum": bytes_.maximum,
    }


def _percentiles(bins: Histogram, prefix: str) -> Row:
    known = bool(bins.total)
    quantiles = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
    return {
        f"{prefix}_{name}_seconds": bins.percentile(quantile) if known else None
        for name, quantile in quantiles.items()
    }


def _gaps(gaps: pl.DataFrame) -> Row:
    back = gaps.filter(pl.col("bin") == BACKWARDS)
    bins = histogram(gaps)
    return {
        **_percentiles(bins, "gap"),
        "gap_maximum_seconds": bins.percentile(1) if bins.total else None,
        "out_of_order": int(back["count"].sum()),
    }


def _runs(runs: pl.DataFrame) -> Row:
    requests = int((runs["requests"] * runs["runs"]).sum())
    count = _sum(runs, "runs")
    longest = runs["requests"].max()
    return {
        "sequential_share": _share(requests - count, requests),
        "run_mean_bytes": _share(_sum(runs, "bytes"), count),
        "run_maximum_requests": longest,
    }


def _blocks(touched: pl.DataFrame, block: int) -> Row:
    length, reads, writes = touched["length"], touched["reads"], touched["writes"]
    both = reads + writes
    skew = Skew.of(both, length)
    written = int(length.filter(writes > 0).sum())
    written_times = int((length * writes).sum())
    return {
        "touched_bytes": int(length.sum()) * block,
        "touched_by_reads_bytes": int(length.filter(reads > 0).sum()) * block,
        "touched_by_writes_bytes": written * block,
        "touched_by_both_bytes": int(length.filter((reads > 0) & (writes > 0)).sum()) * block,
        **{f"hottest_{percent}_percent_share": skew.share(percent) for percent in HOTTEST},
        "rewritten_share": _share(written_times - written, written_times),
        "updated_blocks_share": _share(int(length.filter(writes > 1).sum()), written),
    }


def _latencies(latencies: pl.DataFrame, operations: pl.DataFrame) -> Row:
    found: Row = {}
    for prefix, kinds in (("", None), ("read_", [READ]), ("write_", [WRITE])):
        wanted = pl.lit(True) if kinds is None else pl.col("operation").is_in(kinds)
        own = operations.filter(wanted)
        timed = int(own["timed"].sum())
        longest = own["longest_ns"].max()
        mean = _share(int(own["latency_ns"].sum()), timed)
        found[f"{prefix}latency_mean_seconds"] = None if mean is None else mean / 1e9
        most = longest / 1e9 if isinstance(longest, int) else None
        found |= _percentiles(response_times(latencies.filter(wanted), own), f"{prefix}latency")
        found[f"{prefix}latency_maximum_seconds"] = most
    return found
