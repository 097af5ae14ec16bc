"""Reads a trace's text into requests, in pieces of any length that end at lines."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import polars as pl

from hemi_lab.errors import LabError, UsageError
from hemi_lab.trace_analysis import columns, events
from hemi_lab.trace_analysis.events import IologState
from hemi_lab.trace_analysis.formats import Format
from hemi_lab.trace_analysis.requests import BadLineError, none

_READERS: dict[str, Callable[[pl.Series, Format], pl.DataFrame]] = {
    "msr": columns.msr,
    "spc": columns.spc,
    "alibaba": columns.alibaba,
    "tencent": columns.tencent,
    "disksim": columns.disksim,
    "blkparse": events.blkparse,
}


class Text:
    """Reads a trace's text piece by piece."""

    def __init__(self, format_: Format, iolog_version: int | None = None) -> None:
        self._format = format_
        self._iolog = IologState(iolog_version)
        self.ended = False
        """True if the rest is not part of the trace."""

    def read(self, text: bytes) -> pl.DataFrame:
        """Returns the requests of whole lines, in the columns of `requests.REQUESTS`."""
        if self._format.name == "blkparse":
            summary = events.SUMMARY.search(text)
            if summary is not None:
                text, self.ended = text[: summary.start()], True
        try:
            lines = text.decode().split("\n")
        except UnicodeDecodeError as error:
            number = text.count(b"\n", 0, error.start)
            begin = text.rfind(b"\n", 0, error.start) + 1
            shown = text[begin:].split(b"\n", 1)[0].decode(errors="backslashreplace")
            raise BadLineError(number, shown, self._format) from error
        if not text.strip():
            return none()
        series = pl.Series("line", lines, dtype=pl.String)
        if self._format.name == "fio_iolog":
            frame, self._iolog = events.fio_iolog(series, self._format, self._iolog)
            return frame
        return _READERS[self._format.name](series, self._format)


_LONGEST_LINE = 1 << 16
"""Longest line of a trace in bytes."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Returns at most `size` of the next bytes, or none at the end."""


_COMPRESSED: dict[bytes, tuple[str, Callable[[Path], Any]]] = {
    b"\x1f\x8b": ("gzip", gzip.open),
    b"BZh": ("bzip2", bz2.open),
    b"\xfd7zXZ\x00": ("xz", lzma.open),
}
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "unzip"}


def compression(path: Path, begins: bytes) -> str | None:
    """Returns a file's compression from its first bytes. Raises if it cannot be read here."""
    for magic, program in _OTHERS.items():
        if begins.startswith(magic):
            raise UsageError(
                f"{path} is compressed in a way that is not read here",
                f"Decompress it first ({program}): then it is also read in parts, by all cores.",
            )
    return next(
        (name for magic, (name, _) in _COMPRESSED.items() if begins.startswith(magic)), None
    )


def decompressed(path: Path, kind: str) -> BinaryIO:
    """Opens a compressed file's content."""
    stream: BinaryIO = next(opened for name, opened in _COMPRESSED.values() if name == kind)(path)
    return stream


@dataclass(frozen=True)
class Piece:
    """Some whole lines of a stream."""

    text: bytes
    first_line: int
    """Number of lines before it."""


def pieces(stream: Readable, size: int, named: str) -> Iterator[Piece]:
    """Yields a stream in pieces of about `size` bytes that end at lines."""
    line = 0
    rest = b""
    try:
        while block := stream.read(size):
            end = block.rfind(b"\n") + 1
            if end:
                text = rest + block[:end]
                yield Piece(text, line)
                line += text.count(b"\n")
                rest = block[end:]
            else:
                rest += block
            if len(rest) > size + _LONGEST_LINE:
                raise UsageError(
                    f"{named}, line {line + 1} has more than 64 KiB: no line of a trace has",
                    "Check --format.",
                )
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise LabError(
            f"{named}: {error}", "The compressed file is damaged or cut: get it again."
        ) from error
    if rest:
        yield Piece(rest, line)


def said(error: BadLineError, named: str, lines_before: int) -> UsageError:
    """Returns the error for a bad line."""
    text = error.text.strip()
    shown = text if len(text) <= 120 else text[:120] + "…"
    return UsageError(
        f"{named}, line {lines_before + error.number + 1} is `{shown}`: {error.format.expected}",
        "Check --format; correct the line, or take it out.",
    )
