"""Reads a log of dm-log-writes, and computes the content of drives after a power cut.

The log begins with a superblock. Each entry is a header of one log sector, followed by the data if
it is a write. Writes without FUA are logged at the next flush, in the order in which they
completed. A flush is logged when it has completed. So the writes between two flushes in the log
were in the drive's cache at a cut there.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
_MAGIC = 0x6A736677736872
_SUPER = struct.Struct("<QQQI")
_ENTRY = struct.Struct("<QQQQ")
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


@dataclass(frozen=True)
class Entry:
    """One entry. `sector` is of the logged device. A mark's `data` is its name."""

    sector: int
    sectors: int
    flags: int
    data: bytes

    @property
    def flush(self) -> bool:
        return bool(self.flags & FLUSH)

    @property
    def mark(self) -> str | None:
        return self.data.rstrip(b"\0").decode() if self.flags & MARK else None


def read_log(path: Path) -> Iterator[Entry]:
    """Yields all entries in order."""
    with path.open("rb") as f:
        magic, version, count, log_sector = _SUPER.unpack(f.read(_SUPER.size))
        assert (magic, version) == (_MAGIC, 1), f"{path} is no log of dm-log-writes"
        at = log_sector
        for _ in range(count):
            f.seek(at)
            sector, sectors, flags, length = _ENTRY.unpack(f.read(_ENTRY.size))
            at += log_sector
            content = b""
            if flags & MARK:
                # A mark's name follows its header in the same sector.
                content = f.read(length)
            elif not flags & DISCARD and sectors:
                f.seek(at)
                content = f.read(sectors * SECTOR)
                at += -(-len(content) // log_sector) * log_sector
            yield Entry(sector, sectors, flags, content)


@dataclass
class Drive:
    """One leg's drive, `first` sectors into the logged device.

    With a volatile cache, writes since its last flush are `pending`. Without, all writes are
    durable."""

    first: int
    sectors: int
    cached: bool
    durable: bytearray = field(init=False)
    pending: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.durable = bytearray(self.sectors * SECTOR)

    def holds(self, entry: Entry) -> bool:
        return self.first <= entry.sector < self.first + self.sectors

    def write(self, entry: Entry) -> None:
        content = entry.data or bytes(entry.sectors * SECTOR)
        at = (entry.sector - self.first) * SECTOR
        if self.cached:
            self.pending.append((at, content))
        else:
            self.durable[at : at + len(content)] = content

    def flush(self) -> None:
        for at, content in self.pending:
            self.durable[at : at + len(content)] = content
        self.pending.clear()

    def after_cut(self, rng: random.Random | None) -> bytes:
        """Returns its content after a power cut.

        Without `rng` all of its cache is kept, else of every sector in it the last write, any
        write, or none."""
        image = bytearray(self.durable)
        keep = 1.0 if rng is None else rng.choice([0.0, 0.1, 0.5, 0.9])
        for at, content in self.pending:
            for i in range(0, len(content), SECTOR):
                if rng is None or rng.random() < keep:
                    image[at + i : at + i + SECTOR] = content[i : i + SECTOR]
        return bytes(image)
