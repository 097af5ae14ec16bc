"""The possible contents of a disk, given the writes that overlapped: the kill test's checker.

The volume is a row of units (4 KiB, or one sector). Every sector of a write holds its own number
and the number of the write, so that a read shows the write it saw. For each unit the writes are
kept that could be its content. A write leaves this list when another that was sent after its
acknowledgement is itself acknowledged. A read may see the writes in the list when it was sent, and
those sent while it ran. Anything else is a loss (P1), a stale value (P2) or a value that never
existed.

A write that a newer one replaced may come back if hemi has to start without the ledger that it was
served with (`lose_ledger`). A flush sent after the newer write's acknowledgement rules that out
once it is answered.

Unlike in `journal`, any number of overlapping requests may be in flight.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

SECTOR = 512
ZEROS = 0
_HEAD = struct.Struct("<QQ8s")
_MAGIC = b"hemikil1"
_COPIES = SECTOR // _HEAD.size + 1
_EMPTY = bytes(SECTOR)


class Lost(AssertionError):
    """A read that no correct disk could have answered."""


def sector_data(number: int, write: int) -> bytes:
    """Returns the data of write `write` in sector `number`."""
    if write == ZEROS:
        return _EMPTY
    return (_HEAD.pack(number, write, _MAGIC) * _COPIES)[:SECTOR]


def data(first_sector: int, sectors: int, write: int) -> bytes:
    """Returns the data of write `write` in a range."""
    return b"".join(sector_data(first_sector + i, write) for i in range(sectors))


def seen_in(number: int, sector: bytes) -> int:
    """Returns the number of the write that a sector holds."""
    if sector == _EMPTY:
        return ZEROS
    got, write, magic = _HEAD.unpack_from(sector)
    if magic != _MAGIC or got != number or sector != sector_data(number, write):
        raise Lost(
            f"sector {number} holds neither zeros nor a write of this test: {sector[:32].hex()}…"
        )
    return int(write)


@dataclass(eq=False, slots=True)
class Write:
    """One write: the content of its units from `first` on."""

    number: int
    first: int
    units: int
    # Write-zeroes and discards put zeros. A discard may also leave the old content.
    zeros: bool = False
    discard: bool = False
    fua: bool = False
    acknowledged: bool = False
    # Count of replaced contents when it was sent.
    mark: int = 0
    # Contents of each unit that it follows, which its acknowledgement replaces.
    follows: list[list[_Held]] = field(default_factory=list)

    @property
    def value(self) -> int:
        return ZEROS if self.zeros else self.number


@dataclass(eq=False, slots=True)
class _Held:
    """A possible content of one unit: one write's, or one for each sector as read after a kill."""

    value: int | tuple[int, ...]
    write: Write | None

    @property
    def settled(self) -> bool:
        return self.write is None or self.write.acknowledged

    def at(self, sector: int) -> int:
        return self.value if isinstance(self.value, int) else self.value[sector]


@dataclass(eq=False, slots=True)
class Read:
    """One read in flight, with the contents it may see in each unit."""

    first: int
    units: int
    allowed: list[list[_Held]]
    # For each unit, the length of `allowed` if nothing was in flight there when the read was sent,
    # else 0.
    quiet: list[int]


class History:
    """The possible contents of every unit of a volume that began as zeros."""

    def __init__(self, units: int, unit_bytes: int) -> None:
        self.units = units
        self.unit_bytes = unit_bytes
        self.sectors = unit_bytes // SECTOR
        self._held: list[list[_Held]] = [[_Held(ZEROS, None)] for _ in range(units)]
        self._readers: dict[int, list[Read]] = {}
        # For each unit, contents replaced but not flushed, with the count of all replaced before
        # them.
        self._unflushed: dict[int, list[tuple[int, _Held]]] = {}
        self._past = 0
        self._next = 1
        self.checked = 0

    def write(
        self,
        first: int,
        units: int,
        *,
        zeros: bool = False,
        discard: bool = False,
        fua: bool = False,
    ) -> Write:
        """Notes that a write is about to be sent."""
        write = Write(self._next, first, units, zeros or discard, discard, fua, mark=self._past)
        self._next += 1
        for unit in range(first, first + units):
            held = self._held[unit]
            # A discard may do nothing, so it replaces nothing.
            write.follows.append([] if discard else [h for h in held if h.settled])
            new = _Held(write.value, write)
            held.append(new)
            for reader in self._readers.get(unit, ()):
                reader.allowed[unit - reader.first].append(new)
        return write

    def payload(self, write: Write) -> bytes:
        """Returns the bytes of a write."""
        return data(write.first * self.sectors, write.units * self.sectors, write.value)

    def acknowledge(self, write: Write) -> None:
        """Notes that the server has answered a write."""
        write.acknowledged = True
        for unit, past in enumerate(write.follows, write.first):
            if not past:
                continue
            self._held[unit] = [h for h in self._held[unit] if h not in past]
            if write.fua:
                self._forget(unit, write.mark)
            else:
                self._let_go(unit, past)
        write.follows = []

    def flush(self) -> int:
        """Notes that a flush is about to be sent. Returns the mark for `flushed`."""
        return self._past

    def flushed(self, mark: int) -> None:
        """Notes that the server has answered a flush."""
        for unit in list(self._unflushed):
            self._forget(unit, mark)

    def lose_ledger(self) -> None:
        """Notes that hemi will start from flushed data, so that later writes may be undone."""
        for unit, past in self._unflushed.items():
            self._held[unit] = [held for _, held in past] + self._held[unit]
        self._unflushed.clear()

    def _let_go(self, unit: int, past: list[_Held]) -> None:
        """Replaces contents of the unit. They may come back only if the ledger is lost."""
        gone = self._unflushed.setdefault(unit, [])
        gone.extend((self._past, held) for held in past)
        self._past += 1

    def _forget(self, unit: int, mark: int) -> None:
        """Forgets contents replaced before `mark` was taken, which cannot come back."""
        left = [(count, held) for count, held in self._unflushed.get(unit, []) if count >= mark]
        if left:
            self._unflushed[unit] = left
        else:
            self._unflushed.pop(unit, None)

    def read(self, first: int, units: int) -> Read:
        """Notes that a read is about to be sent."""
        held = self._held[first : first + units]
        quiet = [len(h) if all(e.settled for e in h) else 0 for h in held]
        read = Read(first, units, [list(h) for h in held], quiet)
        for unit in range(first, first + units):
            self._readers.setdefault(unit, []).append(read)
        return read

    def answer(self, read: Read, content: bytes | None) -> None:
        """Checks a read's answer, or notes (`None`) that it will never be answered."""
        for unit in range(read.first, read.first + read.units):
            readers = self._readers[unit]
            readers.remove(read)
            if not readers:
                del self._readers[unit]
        if content is None:
            return
        for i, allowed in enumerate(read.allowed):
            unit = read.first + i
            seen = self._check(
                unit, content[i * self.unit_bytes : (i + 1) * self.unit_bytes], allowed
            )
            # Nothing was in flight nor has been sent since, so the read shows the content.
            if 1 < len(allowed) == read.quiet[i] and self._held[unit] == allowed:
                self._let_go(unit, allowed)
                self._held[unit] = [_Held(seen, None)]

    def forget_reads(self) -> None:
        """Forgets all reads in flight."""
        self._readers.clear()

    def check(self, first: int, content: bytes, *, settle: bool = False) -> None:
        """Checks content read while nothing is in flight.

        With `settle` it must stay from now on, as after a kill, when each write in flight has
        either happened or not."""
        for i in range(len(content) // self.unit_bytes):
            unit = first + i
            held = self._held[unit]
            seen = self._check(unit, content[i * self.unit_bytes : (i + 1) * self.unit_bytes], held)
            if settle and (len(held) > 1 or not held[0].settled):
                self._let_go(unit, held)
                self._held[unit] = [_Held(seen, None)]

    def uncertain(self) -> int:
        """Returns the number of units that may hold one of several writes."""
        return sum(len(held) > 1 for held in self._held)

    def _check(self, unit: int, content: bytes, allowed: list[_Held]) -> int | tuple[int, ...]:
        self.checked += 1
        first = unit * self.sectors
        for held in allowed:
            if isinstance(held.value, int) and content == data(first, self.sectors, held.value):
                return held.value
        seen = tuple(
            seen_in(first + i, content[i * SECTOR : (i + 1) * SECTOR]) for i in range(self.sectors)
        )
        for i, value in enumerate(seen):
            if all(held.at(i) != value for held in allowed):
                raise Lost(self._story(unit, i, value, allowed))
        return seen

    def _story(self, unit: int, sector: int, value: int, allowed: Iterable[_Held]) -> str:
        may = ", ".join(_describe(held, sector) for held in allowed)
        number = unit * self.sectors + sector
        return (
            f"sector {number} (byte {number * SECTOR}) "
            f"reads as {'zeros' if value == ZEROS else f'write {value}'}; it may be: {may}"
        )


def _describe(held: _Held, sector: int) -> str:
    value = held.at(sector)
    what = "zeros" if value == ZEROS else f"write {value}"
    if held.write is None:
        return f"{what} (as last read, or from the beginning)"
    if held.write.zeros:
        what = f"zeros of {'discard' if held.write.discard else 'write-zeroes'} {held.write.number}"
    return f"{what} ({'acknowledged' if held.write.acknowledged else 'never acknowledged'})"
