"""Where a file lies on its file system, and copies that lie contiguously or in fragments."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .tools import CommandLog, LabError

_COPY_BYTES = 1 << 20
_EXTENT = re.compile(
    r"^ *\d+: *(?P<first>\d+)\.\. *\d+: *(?P<physical>\d+)\.\. *\d+: *(?P<length>\d+):",
    re.MULTILINE,
)
_SIZE = re.compile(
    r"^File size of .* is (?P<size>\d+) \(\d+ blocks? of (?P<block>\d+) bytes\)$", re.M
)


@dataclass(frozen=True)
class Fragment:
    """A stretch of a file that is contiguous on the medium."""

    at: int
    """Offset in the file, bytes; the same unit below."""
    lies_at: int
    """Offset on the file system's device."""
    length: int


@dataclass(frozen=True)
class Layout:
    """How a file lies, summed up."""

    file_bytes: int
    fragments: int
    mean_fragment_bytes: int
    backward_jumps: int
    """How often the next fragment lies before the one just read."""
    jumped_bytes: int
    """Sum of the distances between the end of one fragment and the start of the next."""
    first_fragments: list[Fragment]
    """As an example."""


def layout_of(log: CommandLog, file: Path) -> Layout:
    """Asks filefrag (FIEMAP) how a file lies."""
    return summed_up(*parse_filefrag(log.run("filefrag", "-v", file)))


def parse_filefrag(printed: str) -> tuple[int, list[Fragment]]:
    """The file's size and fragments from `filefrag -v`; extents that touch are one fragment.

    (A file system may keep a contiguous stretch as several extents: written and unwritten parts,
    or more than an extent may hold.)
    """
    size = _SIZE.search(printed)
    if size is None:
        raise LabError(f"filefrag printed something unexpected:\n{printed[:2000]}")
    block = int(size["block"])
    fragments: list[Fragment] = []
    for found in _EXTENT.finditer(printed):
        at, lies_at, length = (int(found[n]) * block for n in ("first", "physical", "length"))
        last = fragments[-1] if fragments else None
        if last and (last.at + last.length, last.lies_at + last.length) == (at, lies_at):
            fragments[-1] = Fragment(last.at, last.lies_at, last.length + length)
        else:
            fragments.append(Fragment(at, lies_at, length))
    return int(size["size"]), fragments


def summed_up(file_bytes: int, fragments: list[Fragment]) -> Layout:
    """The summary of fragments in file order."""
    jumps = [
        after.lies_at - (before.lies_at + before.length)
        for before, after in itertools.pairwise(fragments)
    ]
    return Layout(
        file_bytes=file_bytes,
        fragments=len(fragments),
        mean_fragment_bytes=sum(f.length for f in fragments) // max(1, len(fragments)),
        backward_jumps=sum(jump < 0 for jump in jumps),
        jumped_bytes=sum(abs(jump) for jump in jumps),
        first_fragments=fragments[:8],
    )


def copy_contiguous(source: Path, copy: Path) -> None:
    """Copies a file into space asked for at once, as contiguous as the file system can."""
    size = source.stat().st_size
    with copy.open("xb") as out:
        os.posix_fallocate(out.fileno(), 0, size)
        _copy_into(source, out.fileno())


def copy_fragmented(source: Path, copy: Path, piece_bytes: int) -> None:
    """Copies a file into pieces of space asked for in turn with another file.

    The other file takes the place behind each piece and is removed afterwards: what is left are
    pieces with gaps of the same size. The content is the same, byte for byte.
    """
    size = source.stat().st_size
    between = copy.with_suffix(".between")
    try:
        with copy.open("xb") as out, between.open("xb") as other:
            for at, length in _pieces(size, piece_bytes):
                os.posix_fallocate(out.fileno(), at, length)
                os.posix_fallocate(other.fileno(), at, length)
            _copy_into(source, out.fileno())
    finally:
        between.unlink(missing_ok=True)


def _copy_into(source: Path, target: int) -> None:
    with source.open("rb") as data:
        while piece := data.read(_COPY_BYTES):
            left = memoryview(piece)
            while left:
                left = left[os.write(target, left) :]
    os.fsync(target)
    # The server reads around the page cache; nothing of the copy needs to stay there.
    os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)


def _pieces(total: int, size: int) -> Iterator[tuple[int, int]]:
    for at in range(0, total, size):
        yield at, min(size, total - at)
