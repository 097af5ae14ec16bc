"""The layout of a file on its file system, and copies that are contiguous or fragmented."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path

from hemi_lab.errors import LabError

from .tools import CommandLog

_LIBC = ctypes.CDLL(None, use_errno=True)
_COLLAPSE_RANGE = 0x08
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
    """Offset in the file in bytes, as are the fields below."""
    lies_at: int
    """Offset on the file system's device."""
    length: int


@dataclass(frozen=True)
class Layout:
    """A summary of a file's layout."""

    file_bytes: int
    fragments: int
    mean_fragment_bytes: int
    backward_jumps: int
    """Number of fragments that lie before the one just read."""
    jumped_bytes: int
    """Sum of the distances between the end of one fragment and the start of the next."""
    first_fragments: list[Fragment]
    """The first eight, as examples."""


def layout_of(log: CommandLog, file: Path) -> Layout:
    """Returns a file's layout, as filefrag (FIEMAP) reports it."""
    return summed_up(*parse_filefrag(log.run("filefrag", "-v", file)))


def parse_filefrag(printed: str) -> tuple[int, list[Fragment]]:
    """Returns the file's size and fragments from `filefrag -v`.

    Extents that touch are one fragment. A file system may keep a contiguous stretch as several
    extents, such as written and unwritten parts, or parts of the largest size of an extent.
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
    """Summarizes fragments in file order."""
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
    """Copies a file into space allocated at once, as contiguous as the file system allows."""
    size = source.stat().st_size
    with copy.open("xb") as out:
        os.posix_fallocate(out.fileno(), 0, size)
        _copy_into(source, out.fileno())


def copy_fragmented(source: Path, copy: Path, piece_bytes: int) -> None:
    """Copies a file into pieces with gaps of the same size between them.

    Twice the space is allocated at once, then every other piece is cut out
    (FALLOC_FL_COLLAPSE_RANGE, on ext4 and XFS). The rest of the space stays in its place, so the
    layout does not depend on the allocator. The content is identical to the source's. `piece_bytes`
    is a multiple of the file system's block.
    """
    size = source.stat().st_size
    pieces = -(-size // piece_bytes)
    with copy.open("xb") as out:
        descriptor = out.fileno()
        os.posix_fallocate(descriptor, 0, 2 * pieces * piece_bytes)
        # A range at the end of a file cannot be collapsed, only truncated.
        os.ftruncate(descriptor, (2 * pieces - 1) * piece_bytes)
        # Backwards, so that little has to move.
        for piece in range(pieces - 2, -1, -1):
            _collapse(copy, descriptor, (2 * piece + 1) * piece_bytes, piece_bytes)
        os.ftruncate(descriptor, size)
        _copy_into(source, descriptor)


def _collapse(file: Path, descriptor: int, at: int, length: int) -> None:
    if _LIBC.fallocate(descriptor, _COLLAPSE_RANGE, ctypes.c_int64(at), ctypes.c_int64(length)):
        error = ctypes.get_errno()
        raise LabError(
            f"{file} cannot be fragmented: fallocate(FALLOC_FL_COLLAPSE_RANGE, {at}, {length}): "
            f"{os.strerror(error)}; ext4 and XFS can do it"
        )


def _copy_into(source: Path, target: int) -> None:
    with source.open("rb") as data:
        while piece := data.read(_COPY_BYTES):
            left = memoryview(piece)
            while left:
                left = left[os.write(target, left) :]
    os.fsync(target)
    # The server bypasses the page cache, so the copy need not stay there.
    os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)
