"""Requests as a table into which every format is read, and the arithmetic of its fields.

It agrees with hemi's own readers (`hemi trace convert`): the same lines are requests, bytes are
rounded outwards to whole sectors, and the same lines are refused."""

from __future__ import annotations

import polars as pl

from hemi_lab.trace_analysis.formats import Format

SECTOR = 512
READ, WRITE, TRIM, FLUSH = "read", "write", "trim", "flush"

REQUESTS = {
    "at_ns": pl.UInt64,
    "volume": pl.String,
    "operation": pl.String,
    "fua": pl.Boolean,
    "start": pl.UInt64,
    "sectors": pl.UInt64,
    "rounded": pl.Boolean,
    "latency_ns": pl.UInt64,
}
"""A row is a request, in the order of the lines. It has its time on the trace's own clock, its
first sector and number of sectors (0 for a flush), whether it had to be rounded to sectors, and its
latency, which is null if the trace does not have it."""

_MOST = (1 << 64) - 1
_MOST_SECTORS = (1 << 32) - 1
"""Largest request that hemi's traces can hold, in sectors."""


class BadLineError(Exception):
    """A line that does not parse."""

    def __init__(self, number: int, text: str, format_: Format) -> None:
        super().__init__(number, text)
        self.number = number
        """Number of the line, from 0."""
        self.text = text
        self.format = format_


def unsigned(value: int) -> pl.Expr:
    """Returns a constant of 64 bits."""
    return pl.lit(value, dtype=pl.UInt64)


def number(name: str) -> pl.Expr:
    """Returns digits as a number, or null beyond 64 bits."""
    return pl.col(name).cast(pl.UInt64, strict=False)


def number_of(name: str, unit: int) -> pl.Expr:
    """Returns a whole number times `unit`, or null beyond 64 bits."""
    value = number(name)
    return pl.when(value <= unsigned(_MOST // unit)).then(value * unsigned(unit))


def decimal(whole: str, fraction: str, unit: int) -> pl.Expr:
    """Returns a number with or without a fraction, in units of `unit` nanoseconds (a power of ten).

    Digits below a nanosecond are cut off. There is no floating point, so times stay exact."""
    places = len(str(unit)) - 1
    digits = pl.col(fraction).fill_null("")
    empty = (pl.col(whole) == "") & (digits == "")
    units = pl.when(pl.col(whole) == "").then(unsigned(0)).otherwise(number(whole))
    part = unsigned(0)
    if places:
        part = digits.str.slice(0, places).str.pad_end(places, "0").cast(pl.UInt64, strict=False)
    good = ~empty & (units <= (unsigned(_MOST) - part) // unsigned(unit))
    return pl.when(good).then(units * unsigned(unit) + part)


def of_bytes(offset: pl.Expr, length: pl.Expr) -> list[pl.Expr]:
    """Returns `start`, `sectors` and `rounded` of bytes, rounded outwards, or null beyond 64
    bits."""
    good = offset <= unsigned(_MOST) - length
    end = offset + length
    sector = unsigned(SECTOR)
    first = offset // sector
    after = end // sector + (end % sector != unsigned(0)).cast(pl.UInt64)
    none = length == unsigned(0)
    uneven = (offset % sector != unsigned(0)) | (end % sector != unsigned(0))
    return [
        pl.when(good & none).then(unsigned(0)).when(good).then(first).alias("start"),
        pl.when(good & none).then(unsigned(0)).when(good).then(after - first).alias("sectors"),
        (good & ~none & uneven).fill_null(False).alias("rounded"),
    ]


def of_sectors(start: pl.Expr, count: pl.Expr) -> list[pl.Expr]:
    """Returns `start`, `sectors` and `rounded` of sectors, or null if their bytes exceed 64
    bits."""
    most = unsigned(_MOST // SECTOR)
    good = (count <= most) & (start <= most - count)
    return [
        pl.when(good & (count == unsigned(0)))
        .then(unsigned(0))
        .when(good)
        .then(start)
        .alias("start"),
        pl.when(good).then(count).alias("sectors"),
        pl.lit(False).alias("rounded"),
    ]


def fields(lines: pl.Series, pattern: str) -> pl.DataFrame:
    """Returns the named groups of a pattern as columns of text, with the line's number in `row`.

    Blank lines are left out. In a line that does not match, all groups are null."""
    return (
        lines.alias("line")
        .to_frame()
        .with_row_index("row")
        .filter(pl.col("line").str.contains(r"\S"))
        .select("row", pl.col("line").str.extract_groups(pattern).alias("groups"))
        .unnest("groups")
    )


def checked(frame: pl.DataFrame, lines: pl.Series, bad: pl.Expr, format_: Format) -> pl.DataFrame:
    """Returns the frame, or raises `BadLineError` for its first bad line."""
    wrong = frame.filter(bad.fill_null(True)).head(1)
    if wrong.height:
        row = int(wrong["row"][0])
        raise BadLineError(row, str(lines[row]), format_)
    return frame


def requests(frame: pl.DataFrame, lines: pl.Series, format_: Format) -> pl.DataFrame:
    """Returns the columns of requests, or raises `BadLineError` for the first bad line."""
    known = [name for name in REQUESTS if name in frame.columns and name != "latency_ns"]
    bad = pl.any_horizontal(pl.col(known).is_null()) | (pl.col("sectors") > unsigned(_MOST_SECTORS))
    columns = {"fua": pl.lit(False), "latency_ns": pl.lit(None, dtype=pl.UInt64)}
    return (
        checked(frame, lines, bad, format_)
        .with_columns(
            value.alias(name) for name, value in columns.items() if name not in frame.columns
        )
        .select(pl.col(name).cast(kind) for name, kind in REQUESTS.items())
    )


def none() -> pl.DataFrame:
    """Returns an empty table."""
    return pl.DataFrame(schema=REQUESTS)
