"""Requests of a trace: the rows of the Parquet table that `hemi trace convert` writes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from hemi_lab.errors import UsageError

SECTOR = 512
READ, WRITE, TRIM, FLUSH = "read", "write", "trim", "flush"

COLUMNS = {
    "at_ns": pl.UInt64,
    "volume": pl.String,
    "operation": pl.String,
    "fua": pl.Boolean,
    "offset": pl.UInt64,
    "length": pl.UInt64,
    "rounded": pl.Boolean,
    "latency_ns": pl.UInt64,
}
"""Columns of the table. A row is a request, in the trace's order: its time on the trace's own
clock, its bytes in whole sectors (0 for a flush), whether they had to be rounded to sectors, and
its latency, which is null if the trace does not have it."""

FORMAT_KEY = "hemi.trace.format"
"""Key of the trace's format in the table's metadata."""

LACKING_KEY = "hemi.trace.lacking"
"""Key of what the trace is known to lack, a line for each reason."""


@dataclass(frozen=True)
class Described:
    """A table by its metadata."""

    rows: int
    format: str
    """The format it was converted from."""
    lacking: list[str]
    """Clauses without a subject, one for each reason why the trace is known to lack requests."""


def unsigned(value: int) -> pl.Expr:
    """Returns a constant of 64 bits."""
    return pl.lit(value, dtype=pl.UInt64)


def read(path: Path, first: int, count: int) -> pl.DataFrame:
    """Returns some rows of a table."""
    return pl.scan_parquet(path).slice(first, count).collect()


def digest(rows: pl.DataFrame) -> str:
    """Returns a hash of rows. It is the same wherever they are in a table."""
    return hashlib.sha256(rows.hash_rows().to_numpy().tobytes()).hexdigest()


def in_sectors(rows: pl.DataFrame) -> pl.DataFrame:
    """Returns rows with `start` and `sectors` instead of bytes."""
    sector = unsigned(SECTOR)
    return rows.with_columns(
        (pl.col("offset") // sector).alias("start"), (pl.col("length") // sector).alias("sectors")
    ).drop("offset", "length")


def described(path: Path, named: str) -> Described:
    """Returns a table's description."""
    try:
        scanned = pl.scan_parquet(path)
        schema = scanned.collect_schema()
        if schema == pl.Schema(COLUMNS):
            rows = scanned.select(pl.len()).collect().item()
            known = pl.read_parquet_metadata(path)
            format_ = str(known.get(FORMAT_KEY, "parquet"))
            return Described(int(rows), format_, str(known.get(LACKING_KEY, "")).splitlines())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UsageError(
            f"{named} cannot be read as a table: {error}", "Convert it again."
        ) from error
    raise UsageError(
        f"{named} has the columns {', '.join(schema)}; a trace's table has {', '.join(COLUMNS)}",
        "Give what `hemi trace convert --to parquet` writes.",
    )
