"""Reads hemi's own recordings through `hemi trace convert`."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from hemi_lab import tool
from hemi_lab.errors import LabError, UsageError
from hemi_lab.trace_analysis.reading import pieces
from hemi_lab.trace_analysis.requests import of_bytes

_CSV = {
    "at_ns": pl.UInt64,
    "operation": pl.String,
    "fua": pl.UInt8,
    "offset": pl.UInt64,
    "length": pl.UInt64,
    "latency_ns": pl.UInt64,
}
_HEADER, _NAME_AT = 40, 64


def volume(path: Path) -> str:
    """Returns the volume's name from a recording's first block (docs/design/capture-format.md)."""
    with path.open("rb") as file:
        begin = file.read(_NAME_AT)
        if len(begin) < _NAME_AT:
            raise UsageError(f"{path} ends within its first block", "Give a whole recording.")
        (length,) = struct.unpack_from("<I", begin, _NAME_AT - 4)
        return file.read(min(length, 1 << 16)).decode(errors="replace")


def read(hemi: str, path: Path, size: int) -> Iterator[pl.DataFrame]:
    """Yields the requests in the order of their times, the first at zero.

    Pieces have about `size` bytes of text."""
    name = volume(path)
    with tempfile.TemporaryDirectory(prefix="hemi-lab-trace-") as folder:
        csv = Path(folder) / "trace.csv"
        command = [hemi, "trace", "convert", str(path), str(csv), "--from", "hemi", "--to", "csv"]
        if tool.run(command).interrupted:
            raise KeyboardInterrupt
        try:
            with csv.open("rb") as stream:
                for piece in pieces(stream, size, str(path)):
                    yield from_csv(piece.text, piece.first_line == 0, name)
        except pl.exceptions.PolarsError as error:
            raise LabError(f"{path}: hemi trace convert wrote what is no table: {error}") from error


def from_csv(text: bytes, headed: bool, name: str) -> pl.DataFrame:
    """Reads the output of `hemi trace convert --to csv`. With `headed` it begins with the names."""
    table = pl.read_csv(text, has_header=headed, schema=_CSV)
    return table.select(
        "at_ns",
        pl.lit(name).alias("volume"),
        "operation",
        pl.col("fua").cast(pl.Boolean),
        *of_bytes(pl.col("offset"), pl.col("length")),
        "latency_ns",
    )
