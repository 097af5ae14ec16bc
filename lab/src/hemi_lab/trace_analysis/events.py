"""Formats in which some lines are requests: blkparse's text, and fio's logs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from hemi_lab.trace_analysis.formats import Format
from hemi_lab.trace_analysis.requests import (
    FLUSH,
    READ,
    TRIM,
    WRITE,
    BadLineError,
    checked,
    decimal,
    fields,
    none,
    number,
    number_of,
    of_bytes,
    of_sectors,
    requests,
    unsigned,
)

_BLKPARSE = (
    r"^\s*(?P<volume>[0-9]+,[0-9]+)\s+[0-9]+\s+[0-9]+\s+"
    r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?\s+[0-9]+\s+(?P<action>\S+)"
    r"(?:\s+(?P<letters>\S+))?(?:\s+(?P<sector>\S+))?(?:\s+(?P<plus>\S+))?"
    r"(?:\s+(?P<count>\S+))?"
)
SUMMARY = re.compile(rb"^[ \t\r]*(?:CPU|Total)", re.MULTILINE)
"""The beginning of the summary after the events of blkparse's text."""


def blkparse(lines: pl.Series, format_: Format) -> pl.DataFrame:
    """Reads blkparse's text, in which one of a request's many events counts.

    In the RWBS letters an F before the operation asks for a flush first, and one after it for force
    unit access. A lone flush has no sectors."""
    frame = fields(lines, _BLKPARSE).with_columns(
        decimal("whole", "fraction", 1_000_000_000).alias("at_ns")
    )
    bad = pl.col("action").is_null() | pl.col("at_ns").is_null()
    frame = checked(frame, lines, bad, format_).filter(pl.col("action") == format_.event)
    rest = pl.col("letters").str.strip_prefix("F")
    has_data = rest.str.contains("^[RWD][FSAMEB]*$")
    first = pl.col("letters").str.starts_with("F")
    no_data = rest.str.contains("^[NS][FSAMEB]*$") | (
        first & rest.str.contains("^(?:F[FSAMEB]*)?$")
    )
    frame = checked(frame, lines, ~(has_data | no_data), format_)
    bare = pl.col("sector").str.starts_with("[")
    zero = unsigned(0)
    plain = (pl.col("plus") == "+") & pl.all_horizontal(
        pl.col("sector", "count").str.contains("^[0-9]+$")
    )
    begin = pl.when(bare).then(zero).when(plain).then(number("sector"))
    count = pl.when(bare).then(zero).when(plain).then(number("count"))
    data = frame.filter(has_data).with_columns(
        pl.lit(1).alias("turn"),
        rest.str.slice(0, 1)
        .replace_strict({"R": READ, "W": WRITE, "D": TRIM}, return_dtype=pl.String)
        .alias("operation"),
        rest.str.contains("^W.*F").alias("fua"),
        *of_sectors(begin, count),
    )
    flushes = frame.filter(first).with_columns(
        pl.lit(0).alias("turn"),
        pl.lit(FLUSH).alias("operation"),
        pl.lit(False).alias("fua"),
        *of_sectors(zero, zero),
    )
    both = pl.concat([flushes, data]).sort("row", "turn", maintain_order=True)
    return requests(both, lines, format_)


@dataclass(frozen=True)
class IologState:
    """The state of reading one of fio's logs."""

    version: int | None = None
    waited_ns: int = 0
    """Sum of the waits so far, in version 2."""


_HEADER = {"fio version 2 iolog": 2, "fio version 3 iolog": 3}
_IOLOG = r"(?P<file>\S+)\s+(?P<action>\S+)(?:\s+(?P<a>[0-9]+))?(?:\s+(?P<b>[0-9]+))?\s*$"
_ACTIONS = {"read": READ, "write": WRITE, "trim": TRIM, "sync": FLUSH, "datasync": FLUSH}


def iolog_version(line: str) -> int | None:
    """Returns the version that a log's first line names."""
    return _HEADER.get(line.strip())


def fio_iolog(
    lines: pl.Series, format_: Format, state: IologState
) -> tuple[pl.DataFrame, IologState]:
    """Reads one of fio's logs.

    Version 3 begins every line with its time. In version 2 the time is the sum of the waits so far.
    Lines that add, open or close files are no requests."""
    version, skipped = state.version, 0
    if version is None:
        skipped = next((n for n, line in enumerate(lines) if line.strip()), len(lines))
        if skipped == len(lines):
            return none(), state
        version = iolog_version(lines[skipped])
        if version is None:
            raise BadLineError(skipped, lines[skipped], format_)
        skipped += 1
    body = pl.concat([pl.Series([""] * skipped, dtype=pl.String), lines.slice(skipped)])
    frame = _iolog_rows(body, version, state.waited_ns)
    waits = pl.col("action") == "wait" if version == 2 else pl.lit(False)
    files = pl.col("action").is_in(["add", "open", "close"])
    asked = pl.col("action").is_in(list(_ACTIONS))
    good = (asked | (files & pl.col("a").is_null()) | (waits & pl.col("a").is_not_null())) & (
        pl.col("at_ns").is_not_null()
    )
    frame = checked(frame, body, ~good, format_)
    waited = state.waited_ns
    if version == 2 and frame.height:
        waited = int(frame["at_ns"][-1])
    frame = frame.filter(asked).with_columns(
        pl.col("action").replace_strict(_ACTIONS, return_dtype=pl.String).alias("operation")
    )
    flush = pl.col("operation") == FLUSH
    zero = unsigned(0)
    offset = pl.when(flush).then(zero).otherwise(number("a"))
    length = pl.when(flush).then(zero).otherwise(number("b"))
    frame = frame.with_columns(pl.col("file").alias("volume"), *of_bytes(offset, length))
    return requests(frame, body, format_), IologState(version, waited)


def _iolog_rows(lines: pl.Series, version: int, waited: int) -> pl.DataFrame:
    if version == 3:
        frame = fields(lines, rf"^\s*(?P<at>[0-9]+)\s+{_IOLOG}")
        return frame.with_columns(number_of("at", 1_000).alias("at_ns"))
    frame = fields(lines, rf"^\s*{_IOLOG}")
    wait = pl.when(pl.col("action") == "wait").then(number_of("a", 1_000)).otherwise(unsigned(0))
    return frame.with_columns((wait.cum_sum() + unsigned(waited)).alias("at_ns"))
