"""Tables of requests that merge, one set for each part of a trace.

Everything in them is a count, a sum, a minimum or a maximum of whole numbers. So parts add up to
exactly the tables of the whole, however it was cut. Data that cross a seam are kept in `edges`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from hemi_lab.trace_analysis.requests import FLUSH, READ, SECTOR, WRITE, unsigned

ALIGNMENT = 4096
BACKWARDS = -1
"""The bin of requests whose time is before that of the previous one."""

_LONGEST = (1 << 62) - 1
"""Nanoseconds beyond which all times share a bin: 146 years."""


@dataclass(frozen=True)
class Shape:
    """A table: the keys of its rows, and the way its figures add up."""

    keys: Mapping[str, type[pl.DataType]]
    sums: Mapping[str, type[pl.DataType]]
    minima: tuple[str, ...] = ()
    maxima: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, type[pl.DataType] | pl.DataType]:
        """Returns its columns."""
        ends = dict.fromkeys((*self.minima, *self.maxima), pl.UInt64)
        return {**self.keys, **self.sums, **ends}


_VOLUME = {"volume": pl.String}
_BY_OPERATION = {**_VOLUME, "operation": pl.String}

SHAPES = {
    "operations": Shape(
        _BY_OPERATION,
        dict.fromkeys(
            ("requests", "bytes", "fua", "rounded", "empty", "aligned", "timed", "latency_ns"),
            pl.UInt64,
        ),
        ("first_ns",),
        ("last_ns", "longest_ns"),
    ),
    "sizes": Shape({**_BY_OPERATION, "size_bytes": pl.UInt64}, {"requests": pl.UInt64}),
    "seconds": Shape(
        {**_VOLUME, "second": pl.Int64, "operation": pl.String},
        {"requests": pl.UInt64, "bytes": pl.UInt64},
    ),
    "gaps": Shape({**_VOLUME, "bin": pl.Int32}, {"count": pl.UInt64}),
    "latencies": Shape({**_BY_OPERATION, "bin": pl.Int32}, {"count": pl.UInt64}),
    "runs": Shape(
        {**_BY_OPERATION, "requests": pl.UInt64}, {"runs": pl.UInt64, "bytes": pl.UInt64}
    ),
    "blocks": Shape({**_VOLUME, "block": pl.UInt64}, {"reads": pl.Int64, "writes": pl.Int64}),
}
"""`operations` includes empty requests, which count nowhere else. `sizes` has exact sizes.
`seconds` has whole seconds of the trace's clock. `gaps` has times between requests in fio's bins,
with a null volume for all volumes together. `runs` has sequences of requests of one kind that each
begin at the end of the last, by their length. `blocks` has the difference of each block's accesses
to the block before, so that a large request takes two rows instead of one for each block."""

EDGES = {
    "volume": pl.String,
    "first_ns": pl.UInt64,
    "last_ns": pl.UInt64,
    "runs": pl.UInt64,
    **{
        f"{side}_{name}": kind
        for side in ("head", "tail")
        for name, kind in (
            ("operation", pl.String),
            ("start", pl.UInt64),
            ("end", pl.UInt64),
            ("requests", pl.UInt64),
        )
    },
}
"""A volume's data that may continue in the next part: its first and last time, and its first and
last run (in sectors). A null volume is all of them. Runs at the edges are not in `runs`."""

SCHEMAS: dict[str, dict[str, type[pl.DataType] | pl.DataType]] = {
    "edges": dict(EDGES),
    **{name: SHAPES[name].schema for name in reversed(SHAPES)},
}
"""Every table's columns, in the order in which they are written."""

Tables = dict[str, pl.DataFrame]


def added(name: str, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Merges rows of equal keys and sorts them, so that the order of the input does not matter."""
    shape = SHAPES[name]
    summed = rows.group_by(*shape.keys).agg(
        *(pl.col(column).sum() for column in shape.sums),
        *(pl.col(column).min() for column in shape.minima),
        *(pl.col(column).max() for column in shape.maxima),
    )
    if name == "blocks":
        summed = summed.filter((pl.col("reads") != 0) | (pl.col("writes") != 0))
    typed = [pl.col(column).cast(kind) for column, kind in shape.schema.items()]
    return summed.select(typed).sort(*shape.keys)


def tables(requests: pl.DataFrame, block: int) -> Tables:
    """Returns all tables of some requests, in their order, for blocks of `block` bytes."""
    empty = (pl.col("sectors") == unsigned(0)) & (pl.col("operation") != FLUSH)
    all_ = requests.with_columns(
        (pl.col("sectors") * unsigned(SECTOR)).alias("bytes"), empty.alias("empty")
    )
    real = all_.filter(~pl.col("empty"))
    moved = real.filter(pl.col("operation").is_in([READ, WRITE]))
    timed = real.with_columns(
        pl.col("at_ns").shift(1).over("volume").alias("before"),
        pl.col("at_ns").shift(1).alias("before_of_all"),
    )
    runs, edges = _runs(moved, timed)
    found = {
        "operations": _operations(all_),
        "sizes": real.filter(pl.col("operation") != FLUSH).select(
            "volume",
            "operation",
            pl.col("bytes").alias("size_bytes"),
            unsigned(1).alias("requests"),
        ),
        "seconds": real.select(
            "volume",
            "operation",
            "bytes",
            (pl.col("at_ns") // unsigned(1_000_000_000)).cast(pl.Int64).alias("second"),
            unsigned(1).alias("requests"),
        ),
        "gaps": pl.concat(
            [
                _gaps(timed.select("volume", "at_ns", "before")),
                _gaps(
                    timed.select(
                        pl.lit(None, pl.String).alias("volume"),
                        "at_ns",
                        pl.col("before_of_all").alias("before"),
                    )
                ),
            ]
        ),
        "latencies": real.filter(pl.col("latency_ns").is_not_null()).select(
            "volume",
            "operation",
            pl.col("latency_ns").map_batches(bins, return_dtype=pl.Int32).alias("bin"),
            unsigned(1).alias("count"),
        ),
        "runs": runs,
        "blocks": _blocks(moved, block),
    }
    done = {name: added(name, frame.lazy()).collect() for name, frame in found.items()}
    return {**done, "edges": edges}


def bins(values: pl.Series) -> pl.Series:
    """Returns the numbers of fio's bins (`statistics.histogram.fio_index`) for nanoseconds."""
    known = values.clip(upper_bound=_LONGEST)
    number = known.to_numpy().astype(np.uint64)
    significant = 63 - np.minimum(known.bitwise_leading_zeros().to_numpy().astype(np.int64), 63)
    error = np.maximum(significant - 6, 0).astype(np.uint64)
    six, mask = np.uint64(6), np.uint64(63)
    coarse = ((error + np.uint64(1)) << six) + ((number >> error) & mask)
    index = np.where(significant <= 6, number, coarse)
    return pl.Series(values.name, index.astype(np.int32), dtype=pl.Int32)


def _operations(all_: pl.DataFrame) -> pl.DataFrame:
    real = ~pl.col("empty")
    sectors = ALIGNMENT // SECTOR
    aligned = (
        real
        & ~pl.col("rounded")
        & (pl.col("start") % unsigned(sectors) == 0)
        & (pl.col("sectors") % unsigned(sectors) == 0)
        & (pl.col("operation") != FLUSH)
    )
    counted = {
        "requests": real,
        "fua": real & pl.col("fua"),
        "rounded": real & pl.col("rounded"),
        "empty": pl.col("empty"),
        "aligned": aligned,
        "timed": real & pl.col("latency_ns").is_not_null(),
    }
    return all_.select(
        "volume",
        "operation",
        "bytes",
        *(expr.cast(pl.UInt64).alias(name) for name, expr in counted.items()),
        pl.when(real).then("latency_ns").alias("latency_ns"),
        pl.when(real).then("latency_ns").alias("longest_ns"),
        pl.when(real).then("at_ns").alias("first_ns"),
        pl.when(real).then("at_ns").alias("last_ns"),
    )


def _gaps(times: pl.DataFrame) -> pl.DataFrame:
    known = times.filter(pl.col("before").is_not_null())
    forward = pl.col("at_ns") >= pl.col("before")
    gap = pl.when(forward).then(pl.col("at_ns") - pl.col("before")).otherwise(unsigned(0))
    number = gap.map_batches(bins, return_dtype=pl.Int32)
    return known.select(
        "volume",
        pl.when(forward).then(number).otherwise(pl.lit(BACKWARDS, pl.Int32)).alias("bin"),
        unsigned(1).alias("count"),
    )


def _runs(moved: pl.DataFrame, timed: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the finished runs, and the edges, which may continue."""
    end = pl.col("start") + pl.col("sectors")
    goes_on = (pl.col("start") == end.shift(1).over("volume")) & (
        pl.col("operation") == pl.col("operation").shift(1).over("volume")
    )
    runs = (
        moved.with_columns(goes_on.fill_null(False).alias("goes_on"))
        .with_columns((~pl.col("goes_on")).cum_sum().over("volume").alias("run"))
        .group_by("volume", "run")
        .agg(
            pl.col("operation").first(),
            pl.col("start").first(),
            end.last().alias("end"),
            pl.len().cast(pl.UInt64).alias("requests"),
        )
        .with_columns(pl.col("run").max().over("volume").cast(pl.UInt64).alias("runs"))
    )
    over = runs.filter((pl.col("run") > 1) & (pl.col("run") < pl.col("runs"))).select(
        "volume",
        "operation",
        "requests",
        unsigned(1).alias("runs"),
        ((pl.col("end") - pl.col("start")) * unsigned(SECTOR)).alias("bytes"),
    )
    times = timed.group_by("volume").agg(
        pl.col("at_ns").first().alias("first_ns"), pl.col("at_ns").last().alias("last_ns")
    )
    names = ("operation", "start", "end", "requests")
    heads = runs.filter(pl.col("run") == 1).select(
        "volume", "runs", *(pl.col(name).alias(f"head_{name}") for name in names)
    )
    tails = runs.filter(pl.col("run") == pl.col("runs")).select(
        "volume", *(pl.col(name).alias(f"tail_{name}") for name in names)
    )
    edges = times.join(heads, on="volume", how="left").join(tails, on="volume", how="left")
    whole = timed.select(
        pl.lit(None, pl.String).alias("volume"),
        pl.col("at_ns").first().alias("first_ns"),
        pl.col("at_ns").last().alias("last_ns"),
    ).head(1)
    edges = (
        pl.concat([edges, whole], how="diagonal")
        .filter(pl.col("first_ns").is_not_null())
        .with_columns(pl.col("runs").fill_null(0))
    )
    return over, edges.select(pl.col(name).cast(kind) for name, kind in EDGES.items()).sort(
        "volume"
    )


def _blocks(moved: pl.DataFrame, block: int) -> pl.DataFrame:
    sectors = unsigned(block // SECTOR)
    last = pl.col("start") + pl.col("sectors") - unsigned(1)
    reads = (pl.col("operation") == READ).cast(pl.Int64)
    sides = [
        moved.select(
            "volume",
            at.alias("block"),
            (sign * reads).alias("reads"),
            (sign * (1 - reads)).alias("writes"),
        )
        for at, sign in ((pl.col("start") // sectors, 1), (last // sectors + unsigned(1), -1))
    ]
    return pl.concat(sides)
