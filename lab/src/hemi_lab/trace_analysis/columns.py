"""Formats in which every line is one request: MSR, SPC, Alibaba, Tencent, DiskSim."""

from __future__ import annotations

import polars as pl

from hemi_lab.trace_analysis.formats import TIME_UNITS, Format
from hemi_lab.trace_analysis.requests import (
    READ,
    SECTOR,
    WRITE,
    decimal,
    fields,
    number,
    number_of,
    of_bytes,
    of_sectors,
    requests,
)

_MICROSECOND, _SECOND = 1_000, 1_000_000_000


def _by_commas(*parts: str, rest: str = "") -> str:
    return r"^\s*" + r"\s*,\s*".join(parts) + r"\s*" + rest + "$"


def _digits(name: str) -> str:
    return f"(?P<{name}>[0-9]+)"


_TIME = r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
_LETTER = "(?P<kind>[RrWw])"

_MSR = _by_commas(
    _digits("at"),
    r"(?P<host>[^,\s](?:[^,]*[^,\s])?)",
    _digits("disk"),
    "(?P<kind>Read|Write)",
    _digits("offset"),
    _digits("size"),
    _digits("took"),
)
_SPC = _by_commas(
    _digits("unit"), _digits("address"), _digits("size"), _LETTER, _TIME, rest="(?:,.*)?"
)
_ALIBABA = _by_commas(
    _digits("device"), _LETTER, _digits("offset"), _digits("length"), _digits("at")
)
_TENCENT = _by_commas(
    _digits("at"), _digits("offset"), _digits("size"), "(?P<kind>[01])", _digits("id")
)
_DISKSIM = (
    rf"^\s*{_TIME}\s+{_digits('device')}\s+{_digits('block')}\s+{_digits('count')}\s+"
    r"(?:0x)*0*(?P<flags>[0-9a-fA-F]{1,8})\s*$"
)


def _operation(writes: pl.Expr) -> pl.Expr:
    chosen = pl.when(writes).then(pl.lit(WRITE)).when(~writes).then(pl.lit(READ))
    return chosen.alias("operation")


def _name(column: str) -> pl.Expr:
    """Returns a number as a volume's name: `007` is `7`."""
    return number(column).cast(pl.String)


def msr(lines: pl.Series, format_: Format) -> pl.DataFrame:
    """Reads MSR Cambridge's format. A volume is called `host.disk`."""
    frame = fields(lines, _MSR).select(
        "row",
        number_of("at", 100).alias("at_ns"),
        (pl.col("host") + "." + _name("disk")).alias("volume"),
        _operation(pl.col("kind") == "Write"),
        *of_bytes(number("offset"), number("size")),
        number_of("took", 100).alias("latency_ns"),
    )
    return requests(frame, lines, format_)


def spc(lines: pl.Series, format_: Format) -> pl.DataFrame:
    """Reads SPC's format, as used by UMass. The volume is the ASU."""
    frame = fields(lines, _SPC).select(
        "row",
        decimal("whole", "fraction", _SECOND).alias("at_ns"),
        _name("unit").alias("volume"),
        _operation(pl.col("kind").str.to_uppercase() == "W"),
        *of_bytes(number_of("address", SECTOR), number("size")),
    )
    return requests(frame, lines, format_)


def alibaba(lines: pl.Series, format_: Format) -> pl.DataFrame:
    """Reads Alibaba's format of 2020."""
    frame = fields(lines, _ALIBABA).select(
        "row",
        number_of("at", _MICROSECOND).alias("at_ns"),
        _name("device").alias("volume"),
        _operation(pl.col("kind").str.to_uppercase() == "W"),
        *of_bytes(number("offset"), number("length")),
    )
    return requests(frame, lines, format_)


def tencent(lines: pl.Series, format_: Format) -> pl.DataFrame:
    """Reads Tencent CBS's format. All requests of a second are at its beginning."""
    frame = fields(lines, _TENCENT).select(
        "row",
        number_of("at", _SECOND).alias("at_ns"),
        _name("id").alias("volume"),
        _operation(pl.col("kind") == "1"),
        *of_sectors(number("offset"), number("size")),
    )
    return requests(frame, lines, format_)


def disksim(lines: pl.Series, format_: Format) -> pl.DataFrame:
    """Reads the ASCII format of DiskSim and MQSim."""
    unit = TIME_UNITS[str(format_.time_unit)]
    frame = fields(lines, _DISKSIM).select(
        "row",
        decimal("whole", "fraction", unit).alias("at_ns"),
        _name("device").alias("volume"),
        _operation(pl.col("flags").str.contains("[02468aceACE]$")),
        *of_sectors(number("block"), number("count")),
    )
    return requests(frame, lines, format_)
