"""Where a file lies on its file system, and copies that lie contiguously or in fragments."""

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
    """Copies a file into pieces with gaps of the same size between them.

    Twice the space is asked for at once, then every other piece is cut out
    (FALLOC_FL_COLLAPSE_RANGE, on ext4 and XFS): what is left of the space stays where it is, so
    that the layout does not depend on the mood of the allocator. The content is the same as the
    source's, byte for byte. `piece_bytes`: a multiple of the file system's block.
    """
    size = source.stat().st_size
    pieces = -(-size // piece_bytes)
    with copy.open("xb") as out:
        descriptor = out.fileno()
        os.posix_fallocate(descriptor, 0, 2 * pieces * piece_bytes)
        # What ends at the end of a file cannot be cut out, only cut off.
        os.ftruncate(descriptor, (2 * pieces - 1) * piece_bytes)
        # From the end, so that little has to move up.
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
    # The server reads around the page cache; nothing of the copy needs to stay there.
    os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)
