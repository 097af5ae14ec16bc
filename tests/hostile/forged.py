"""Forges metadata: legs and ledgers with wrong contents under valid checksums.

Every seed makes one image of a volume and forges some of it. `hemi inspect`, `serve`, `promote` and
`settle` are run over it. They may refuse or serve, but not panic, die from a signal, be silent
about a refusal, or take longer than the limit.

`forged.py` runs 10,000 images, prints a table, and fails where a bound is broken.
`forged.py --seed N` runs one image again. Ids are random in each run. An image that breaks a bound
is kept in the directory for temporary files, as it was before any command.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import multiprocessing
import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from hemi_harness import HEMI, Arg, Client, NbdError, Nbdkit, Process, Sandbox, Volume
from hemi_harness.hemi import MIB
from hemi_harness.sandbox import answers, run_any, sweep

# Longest that any step may take, in seconds.
LIMIT = 10.0
MEMORY = Path("/dev/shm")
PR_SET_PDEATHSIG = 1
CRASHES = ("panicked at", "rust_backtrace", "stack backtrace")

BLOCK = 4096
SECTOR = 512
SUPERBLOCKS = (0, 64 << 10)
LOST_LISTS = (128 << 10, 132 << 10)
STAMPS = tuple((192 << 10) + BLOCK * slot for slot in range(16))
REGION = 64 << 10
ENTRIES = 1736
SEQUENCE_END = 1 << 63
NO_ID = bytes(16)

# Places of superblock fields: name, sector, byte of the sector, bytes.
Field = tuple[str, int, int, int]
SUPERBLOCK_FIELDS: list[Field] = [
    ("magic", 0, 0, 8),
    ("volume id", 0, 8, 16),
    ("version", 0, 24, 4),
    ("block bytes", 0, 28, 4),
    ("features", 0, 32, 8),
    ("volume bytes", 0, 40, 8),
    ("region bytes", 0, 48, 8),
    ("data offset", 0, 56, 8),
    ("generation", 0, 64, 16),
    ("join epoch", 0, 80, 8),
    ("created", 0, 88, 8),
    ("leg", 0, 96, 1),
    ("open", 0, 97, 1),
    ("ancestors", 0, 98, 1),
    ("name bytes", 0, 99, 1),
    ("reserved", 0, 100, 4),
    ("name", 0, 104, 64),
    ("opening", 0, 168, 8),
    ("boot id", 0, 176, 16),
    *[
        (f"leg {slot}'s {name}", 1, 24 + 32 * slot + at, width)
        for slot in range(8)
        for name, at, width in (("id", 0, 16), ("epoch", 16, 8), ("state", 24, 1), ("why", 25, 1))
    ],
    *[
        (f"ancestor {16 * sector + i}'s {name}", 3 + sector, 24 + 24 * i + at, width)
        for sector, i in ((0, 0), (0, 1), (0, 15), (1, 0), (3, 15))
        for name, at, width in (("generation", 0, 16), ("sequence", 16, 8))
    ],
    *[
        (f"description {slot}'s {name}", 2 if slot < 4 else 7, 64 + 108 * (slot % 4) + at, width)
        for slot in (0, 1, 2, 7)
        for name, at, width in (("path", 0, 1), ("model", 1, 1), ("serial", 2, 1), ("text", 4, 104))
    ],
]
PAGE_FIELDS: list[Field] = [
    ("number", 0, 0, 4),
    ("generation", 0, 8, 16),
    ("join epoch", 0, 24, 8),
    *[(f"entry {i}", 1 + i // 248, 2 * (i % 248), 2) for i in (0, 1, 2, 5, 15, 31, 32, 247, 1735)],
]
LOST_FIELDS: list[Field] = [
    ("count", 0, 0, 4),
    ("generation", 0, 8, 16),
    ("join epoch", 0, 24, 8),
    *[(f"extent {e}'s start", (e + 2) // 31, 16 * ((e + 2) % 31), 8) for e in (0, 1, 28, 29, 245)],
    *[(f"extent {e}'s end", (e + 2) // 31, 16 * ((e + 2) % 31) + 8, 8) for e in (0, 1, 29, 245)],
]
STAMP_FIELDS: list[Field] = [("writer", 0, 0, 16)]
# Pairs of state and reason that exist.
MEMBERSHIPS = ((0, 0), (1, 0), (1, 0), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5))


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C (Castagnoli) of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def seal(block: bytearray, address: int, volume: bytes) -> None:
    """Gives every sector of a block the checksum that fits it."""
    seed = struct.pack("<Q", address) + volume
    for at in range(0, BLOCK, SECTOR):
        block[at + 508 : at + 512] = struct.pack("<I", crc32c(seed + block[at : at + 508]))


def sequence_of(block: bytearray) -> int:
    """Returns the sequence in a block's first sector."""
    return int.from_bytes(block[496:504], "little")


def set_sequence(block: bytearray, sequence: int) -> None:
    """Puts a sequence into every sector; the block is still to be sealed."""
    for at in range(0, BLOCK, SECTOR):
        block[at + 496 : at + 504] = struct.pack("<Q", sequence % (1 << 64))


def word_of(region: int, state: int) -> int:
    """Returns the ledger's word of a region in a state of 13 bits."""
    whole = (1 << 64) - 1
    mixed = ((region << 13 | state) + 1) * 0x9E3779B97F4A7C15 & whole
    check = 1 + (((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9 & whole) >> 32) % ((1 << 19) - 1)
    return state | check << 13


Blocks = dict[int, bytes]


@dataclass(frozen=True)
class Template:
    """Keeps a volume as hemi left it: each leg's blocks that are not zero, now and earlier."""

    name: str
    volume_bytes: int
    leg_bytes: int
    legs: list[Blocks]
    older: list[list[Blocks]]
    ledger_name: str
    ledger: bytes | None
    # Its last leg is behind an NBD server.
    remote: bool = False

    @property
    def volume_id(self) -> bytes:
        return self.legs[0][0][8:24]

    @property
    def pages(self) -> int:
        return -(-self.volume_bytes // (REGION * ENTRIES))

    def check(self) -> None:
        """Checks that blocks of every kind are sealed as this program seals them."""
        blocks = [(0, NO_ID), (LOST_LISTS[1], self.volume_id), (MIB + BLOCK, self.volume_id)]
        for leg in self.legs:
            for address, volume in blocks:
                block = bytearray(leg[address])
                seal(block, address, volume)
                assert block == leg[address], f"{self.name}: the block at {address} differs"
        if self.ledger:
            ledger = bytearray(self.ledger)
            seal_ledger(ledger)
            assert ledger == self.ledger, f"{self.name}: the ledger's checksum differs"
            word = int.from_bytes(ledger[(at := words_at(ledger)) : at + 4], "little")
            assert word == word_of(0, word & 0x1FFF), f"{self.name}: the ledger's word differs"


def words_at(ledger: bytes | bytearray) -> int:
    """Returns where a ledger's words begin."""
    objects = int.from_bytes(ledger[128:132], "little")
    return -(-(4096 + 64 * objects) // 4096) * 4096


def seal_ledger(ledger: bytearray) -> None:
    """Gives a ledger's header the checksum that fits it."""
    if len(ledger) >= 136:
        ledger[132:136] = struct.pack("<I", crc32c(bytes(ledger[8:48] + ledger[128:132])))


def blocks_of(path: Path) -> Blocks:
    """Returns the blocks of a file that are not zero."""
    blocks = {}
    with path.open("rb") as file:
        at, end = 0, path.stat().st_size
        while at < end:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
            except OSError:
                break
            block = os.pread(file.fileno(), BLOCK, at)
            if any(block):
                blocks[at] = block.ljust(BLOCK, b"\0")
            at += BLOCK
    return blocks


class _Making:
    """Makes one template: a served volume, and copies of its legs on the way."""

    def __init__(
        self,
        box: Sandbox,
        size: int = 2 * MIB,
        *,
        legs: int = 2,
        ledger: bool = False,
        remote: bool = False,
    ) -> None:
        self.size = size
        self.files = [box.file(f"leg{i}.img", size + 2 * MIB) for i in range(legs)]
        self.ledger = box.directory_in(MEMORY) if ledger else None
        self.remote = remote
        names: list[str | Path] = [*self.files]
        if remote:
            names[-1] = Nbdkit(box, self.files[-1], filters=False).uri
        options = ("--no-direct", "--ledger", self.ledger or "none")
        self.volume = Volume(box, names, options=options, inject=True)
        self.volume.create(size, "--region-size", REGION, "--no-direct")
        self.older: list[list[Blocks]] = []
        self.snapshot()
        self.volume.start()
        self.write(1)

    def snapshot(self) -> None:
        self.older.append([blocks_of(path) for path in self.files])

    def write(self, byte: int, *, flush: bool = True) -> None:
        with self.volume.client() as client:
            for region in (0, 3, 7, self.size // REGION - 1):
                client.write(region * REGION, bytes([byte]) * BLOCK)
            if flush:
                client.flush()

    def restart(self) -> None:
        self.volume.stop()
        self.snapshot()
        self.volume.start()

    def done(self, name: str) -> Template:
        ledgers = list(self.ledger.iterdir()) if self.ledger else []
        template = Template(
            name,
            self.size,
            self.size + 2 * MIB,
            [blocks_of(path) for path in self.files],
            self.older,
            ledgers[0].name if ledgers else "",
            ledgers[0].read_bytes() if ledgers else None,
            self.remote,
        )
        template.check()
        return template


def _written(box: Sandbox) -> _Making:
    making = _Making(box)
    making.restart()
    making.write(2)
    return making


def _clean(box: Sandbox) -> Template:
    making = _written(box)
    making.volume.stop()
    return making.done("clean")


def _killed(box: Sandbox) -> Template:
    making = _written(box)
    making.volume.kill()
    return making.done("killed")


def _ledger(box: Sandbox) -> Template:
    making = _Making(box, legs=3, ledger=True)
    making.restart()
    making.write(2)
    making.volume.inject(0, "--freeze", "1h")
    making.write(3, flush=False)
    making.volume.kill()
    return making.done("ledger")


def _rejoined(box: Sandbox) -> Template:
    making = _Making(box, legs=3)
    making.restart()
    making.volume.command("leg", "detach", "2")
    making.write(2)
    # It is in again, in a later epoch.
    making.volume.command("leg", "attach", making.files[2], "--wipe", "--no-direct")
    making.volume.wait_converged()
    making.write(3)
    making.volume.kill()
    return making.done("rejoined")


def _pages(box: Sandbox) -> Template:
    making = _Making(box, 2 * ENTRIES * REGION, ledger=True)
    making.restart()
    making.write(2)
    making.volume.kill()
    return making.done("pages")


def _remote(box: Sandbox) -> Template:
    making = _Making(box, ledger=True, remote=True)
    making.restart()
    making.write(2)
    making.volume.kill()
    return making.done("remote")


MAKERS = (_clean, _killed, _ledger, _rejoined, _pages, _remote)
# How often each is taken. A remote leg takes a process more.
WEIGHTS = (3, 4, 6, 4, 2, 1)


def templates() -> list[Template]:
    """Returns every template, made by hemi itself."""
    made = []
    for maker in MAKERS:
        with Sandbox(base()) as box:
            made.append(maker(box))
    return made


def base() -> Path | None:
    """Returns the directory for images: memory, where there is such a file system."""
    return MEMORY if MEMORY.is_dir() else None


@dataclass
class Image:
    """Holds a copy of a template that is being forged."""

    template: Template
    legs: list[dict[int, bytearray]]
    sizes: list[int]
    volume: bytes
    ledger: bytearray | None
    notes: list[str] = field(default_factory=list)

    @staticmethod
    def of(template: Template) -> Image:
        return Image(
            template,
            [{at: bytearray(block) for at, block in leg.items()} for leg in template.legs],
            [template.leg_bytes] * len(template.legs),
            template.volume_id,
            bytearray(template.ledger) if template.ledger else None,
        )

    def block(self, leg: int, address: int) -> bytearray:
        return self.legs[leg].setdefault(address, bytearray(BLOCK))

    def seal(self, leg: int, address: int) -> None:
        volume = NO_ID if address in SUPERBLOCKS else self.volume
        seal(self.block(leg, address), address, volume)

    def metadata(self, leg: int) -> list[int]:
        """Returns the addresses of a leg's metadata blocks that are not blank."""
        table = MIB + 2 * BLOCK * self.template.pages
        return [at for at, block in self.legs[leg].items() if at < table and any(block)]

    def write_leg(self, leg: int, path: Path) -> None:
        """Writes a leg to a sparse file."""
        size = self.sizes[leg]
        with path.open("wb") as file:
            file.truncate(size)
            for at, block in self.legs[leg].items():
                if at < size:
                    os.pwrite(file.fileno(), block[: size - at], at)

    def write(self, directory: Path) -> tuple[list[Path], Path]:
        """Writes all legs and the ledger. Returns the paths and the ledger's directory."""
        directory.mkdir()
        paths = [directory / f"leg{leg}.img" for leg in range(len(self.legs))]
        for leg, path in enumerate(paths):
            self.write_leg(leg, path)
        return paths, self.write_ledger(directory)

    def write_ledger(self, directory: Path) -> Path:
        place = directory / "ledger"
        place.mkdir()
        if self.ledger is not None:
            # It is looked for under the volume's id.
            volume = self.volume.hex()
            parts = [volume[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
            path = place / f"{'-'.join(parts)}.ledger"
            path.write_bytes(self.ledger)
            path.chmod(0o600)
        return place


class Forger:
    """Forges an image by a seed."""

    def __init__(self, rng: random.Random, image: Image) -> None:
        self.rng = rng
        self.image = image

    def forge(self) -> None:
        """Applies some forgeries."""
        names = list(FORGERIES)
        weights = [weight for weight, _ in FORGERIES.values()]
        for name in self.rng.choices(names, weights, k=self.rng.choice((1, 1, 1, 2, 2, 3, 5))):
            told = FORGERIES[name][1](self)
            self.image.notes.append(f"{name}: {told}")

    # What and where.

    def leg(self) -> int:
        return self.rng.randrange(len(self.image.legs))

    def legs(self) -> list[int]:
        """Returns one leg, or all."""
        return [self.leg()] if self.rng.random() < 0.5 else list(range(len(self.image.legs)))

    def slots(self) -> tuple[str, tuple[int, ...]]:
        """Returns both addresses of something that is kept twice, and what it is."""
        kind = self.rng.choices(("superblock", "lost list", "page", "stamp"), (5, 2, 3, 1))[0]
        if kind == "stamp" and not self.image.template.remote:
            kind = "page"
        page = self.rng.randrange(self.image.template.pages)
        pair = 2 * self.rng.randrange(8)
        return kind, {
            "superblock": SUPERBLOCKS,
            "lost list": LOST_LISTS,
            "page": (MIB + 2 * BLOCK * page, MIB + 2 * BLOCK * page + BLOCK),
            "stamp": STAMPS[pair : pair + 2],
        }[kind]

    def some(self, slots: tuple[int, ...]) -> list[tuple[int, int]]:
        """Returns legs and addresses to forge: one, both slots of a leg, or all."""
        scope = self.rng.random()
        one = (self.leg(), self.rng.choice(slots))
        if scope < 0.4:
            return [one]
        legs = [one[0]] if scope < 0.6 else range(len(self.image.legs))
        return [(leg, at) for leg in legs for at in slots]

    def finish(self, places: list[tuple[int, int]], slots: tuple[int, ...]) -> None:
        """Seals forged blocks. Makes them the newest, or damages them, in some cases."""
        newer = self.rng.random() < 0.5
        damaged = self.rng.random() < 0.08
        for leg, address in places:
            block = self.image.block(leg, address)
            if newer:
                newest = max(sequence_of(self.image.block(leg, at)) for at in slots)
                set_sequence(block, min(newest + 1, SEQUENCE_END - 1))
            self.image.seal(leg, address)
        if damaged:
            leg, address = self.rng.choice(places)
            self.image.block(leg, address)[self.rng.randrange(BLOCK)] ^= 1 << self.rng.randrange(8)

    def number(self, now: int, bits: int) -> int:
        """Returns an integer near an edge, near what is there, or anywhere."""
        edge = self.rng.choice((8, 16, 32, 63, 64, bits, bits, bits - 1))
        around = [0, 0, 1, 2, 3, 7, 8, 9, 64, 65, 512, 4096, 1 << edge, (1 << edge) - 1, -2]
        near = [now + 1, now - 1, now ^ 1 << self.rng.randrange(bits), now * 2, now // 2, -now]
        anywhere = self.rng.getrandbits(bits)
        value = self.rng.choice((self.rng.choice(around), self.rng.choice(near), anywhere))
        return value % (1 << bits)

    def bytes(self, now: bytes) -> bytes:
        """Returns other bytes: ids of this image, an edge, noise, or what is there with a flip."""
        flipped = bytearray(now)
        flipped[self.rng.randrange(len(now))] ^= 1 << self.rng.randrange(8)
        noise = self.rng.randbytes(len(now))
        block = self.image.block(self.leg(), SUPERBLOCKS[self.rng.randrange(2)])
        at = self.rng.choice((8, 64, 176, 512 + 24, 512 + 56, 512 + 88, 1536 + 24))
        known = bytes(block[at : at + len(now)])
        ends = bytes(len(now)), b"\xff" * len(now)
        return self.rng.choice((bytes(flipped), noise, known, known, *ends))

    # Forgeries. Each returns a short account.

    def field(self) -> str:
        """Gives a field another value."""
        kind, slots = self.slots()
        fields = {
            "superblock": SUPERBLOCK_FIELDS,
            "page": PAGE_FIELDS,
            "lost list": LOST_FIELDS,
            "stamp": STAMP_FIELDS,
        }[kind]
        name, sector, offset, width = self.rng.choice(fields)
        places = self.some(slots)
        at = sector * SECTOR + offset
        now = bytes(self.image.block(*places[0])[at : at + width])
        if width <= 8:
            value = self.number(int.from_bytes(now, "little"), 8 * width).to_bytes(width, "little")
        else:
            value = self.bytes(now)
        for place in places:
            self.image.block(*place)[at : at + width] = value
            if name == "volume id":
                for other in (1, 3, 4, 5, 6):
                    at_other = other * SECTOR + 8
                    self.image.block(*place)[at_other : at_other + 16] = value
        self.finish(places, slots)
        return f"{kind}, {name} = {value.hex()}, at {places}"

    def sequences(self) -> str:
        kind, slots = self.slots()
        places = self.some(slots)
        now = sequence_of(self.image.block(*places[0]))
        end = SEQUENCE_END
        choices = (0, 1, now + 1, now - 1, end, end - 1, end - 1, end - 2, end - 3, (1 << 64) - 1)
        value = self.rng.choice(choices)
        for place in places:
            set_sequence(self.image.block(*place), value)
            self.image.seal(*place)
        return f"{kind}, sequence {value}, at {places}"

    def epochs(self) -> str:
        value = self.rng.choice((0, 1, 2, SEQUENCE_END - 1, SEQUENCE_END - 2, SEQUENCE_END))
        member = self.rng.randrange(8)
        places = self.some(SUPERBLOCKS)
        both = self.rng.random() < 0.5
        for place in places:
            block = self.image.block(*place)
            block[80:88] = struct.pack("<Q", value)
            if both:
                at = SECTOR + 24 + 32 * member + 16
                block[at : at + 8] = struct.pack("<Q", value)
        self.finish(places, SUPERBLOCKS)
        return f"epoch {value}, {f'of leg {member} too, ' if both else ''}at {places}"

    def members(self) -> str:
        places = self.some(SUPERBLOCKS)
        states = [self.rng.choice(MEMBERSHIPS) for _ in range(8)]
        ids = [self.rng.randbytes(16) for _ in range(8)]
        count = self.rng.choice((1, 2, 3, 8))
        for place in places:
            block = self.image.block(*place)
            for member in range(count):
                at = SECTOR + 24 + 32 * member
                if states[member][0] == 0:
                    block[at : at + 32] = bytes(32)
                    continue
                if not any(block[at : at + 16]):
                    block[at : at + 16] = ids[member]
                    block[at + 16 : at + 24] = struct.pack("<Q", 1)
                block[at + 24 : at + 26] = bytes(states[member])
        self.finish(places, SUPERBLOCKS)
        return f"{states[:count]}, at {places}"

    def ancestry(self) -> str:
        places = self.some(SUPERBLOCKS)
        generations = [self.rng.randbytes(16) for _ in range(64)]
        count = self.rng.choice((0, 1, 2, 63, 64))
        style = self.rng.choice(("random", "all alike", "its own", "another leg's"))
        for leg, address in places:
            block = self.image.block(leg, address)
            other = self.image.block((leg + 1) % len(self.image.legs), 0)
            known = {"its own": block[64:80], "another leg's": other[64:80]}.get(style)
            block[98] = count
            for i in range(count):
                generation = generations[0] if style == "all alike" else generations[i]
                if known and i in (0, count - 1):
                    generation = bytes(known)
                sequence = self.rng.choice((0, 1, 64 - i, SEQUENCE_END - 1, (1 << 64) - 1))
                at = (3 + i // 16) * SECTOR + 24 + 24 * (i % 16)
                block[at : at + 24] = generation + struct.pack("<Q", sequence)
        self.finish(places, SUPERBLOCKS)
        return f"{count} generations, {style}, at {places}"

    def generations(self) -> str:
        """Gives each leg, or one, a generation of its own, with or without the old one behind."""
        legs = self.legs()
        follows = self.rng.random() < 0.5
        places = [(leg, at) for leg in legs for at in SUPERBLOCKS]
        for leg in legs:
            generation = self.rng.randbytes(16)
            for address in SUPERBLOCKS:
                block = self.image.block(leg, address)
                if follows:
                    at = 3 * SECTOR + 24
                    block[at : at + 24] = block[64:80] + struct.pack("<Q", sequence_of(block))
                    block[98] = max(block[98], 1)
                block[64:80] = generation
        self.finish(places, SUPERBLOCKS)
        return f"of legs {legs}, {'with' if follows else 'without'} the past one"

    def entries(self) -> str:
        template = self.image.template
        page = self.rng.randrange(template.pages)
        slots = (MIB + 2 * BLOCK * page, MIB + 2 * BLOCK * page + BLOCK)
        places = self.some(slots)
        regions = min(ENTRIES, template.volume_bytes // REGION - page * ENTRIES)
        mask = self.rng.choice((0xFFF, 0xFFF, 0x1FF, 0xFF, 0x100, 0xE00, 0xFFFF))
        one = self.rng.getrandbits(16) & mask
        same = self.rng.random() < 0.5
        last = self.rng.choice((1, regions, regions, ENTRIES))
        for place in places:
            block = self.image.block(*place)
            for i in range(last):
                at = (1 + i // 248) * SECTOR + 2 * (i % 248)
                value = one if same else self.rng.getrandbits(16) & mask
                block[at : at + 2] = struct.pack("<H", value)
        self.finish(places, slots)
        return f"{last} of page {page}, mask {mask:#x}, {f'{one:#x}' if same else 'any'}, {places}"

    def lost(self) -> str:
        """Makes a lost list, most often one that makes sense."""
        sectors = self.image.template.volume_bytes // SECTOR
        count = self.rng.choice((1, 2, 5, 30, 246, 246, 247, 1 << 31))
        written = min(count, 246)
        edges = sorted(self.rng.sample(range(sectors + 1), 2 * written))
        style = self.rng.choice(("sorted", "sorted", "adjacent", "whole", "beyond", "overlapping"))
        if style == "adjacent":
            edges = [i // 2 + i % 2 for i in range(2 * written)]
        elif style == "whole":
            count, edges = 1, [0, sectors]
        elif style == "beyond":
            edges[-1] = self.rng.choice((sectors + 1, (1 << 64) - 1, 1 << 63))
        elif style == "overlapping":
            edges[0], edges[-1] = edges[-1], edges[0]
        places = self.some(LOST_LISTS)
        for place in places:
            block = self.image.block(*place)
            block[0:4] = struct.pack("<I", count)
            for e in range(len(edges) // 2):
                at = (e + 2) // 31 * SECTOR + 16 * ((e + 2) % 31)
                block[at : at + 16] = struct.pack("<QQ", edges[2 * e], edges[2 * e + 1])
        self.finish(places, LOST_LISTS)
        return f"{count} extents, {style}, at {places}"

    def geometry(self) -> str:
        """Gives legs another size and regions, with the data offset that follows."""
        region = 1 << self.rng.choice((16, 16, 17, 20, 24, 30, 15, 31))
        count = self.rng.choice((1, 2, 31, 33, 1735, 1736, 1737, 5000))
        if self.rng.random() < 0.03:
            count = self.rng.choice((1 << 24, (1 << 24) + 1, 1 << 20))
        volume = count * region - self.rng.choice((0, 0, 4096, 512))
        pages = -(-count // ENTRIES)
        data = -(-(MIB + 8192 * pages) // MIB) * MIB
        legs = self.legs()
        places = [(leg, at) for leg in legs for at in SUPERBLOCKS]
        fits = self.rng.random() < 0.8
        for leg, address in places:
            self.image.block(leg, address)[40:64] = struct.pack("<QQQ", volume, region, data)
            if fits:
                self.image.sizes[leg] = data + volume
        for leg in legs if count <= 5000 else ():
            for page in range(pages):
                for address in (MIB + 8192 * page, MIB + 8192 * page + BLOCK):
                    # As the first page, with its own number.
                    block = bytearray(self.image.block(leg, MIB))
                    block[0:4] = struct.pack("<I", page)
                    self.image.legs[leg][address] = block
                    self.image.seal(leg, address)
        self.finish(places, SUPERBLOCKS)
        return f"{count} regions of {region}, volume {volume}, {'fits, ' if fits else ''}{legs}"

    def mark(self) -> str:
        """Lets superblocks rely on a ledger, or on none."""
        places = self.some(SUPERBLOCKS)
        relies = self.rng.random() < 0.7
        known = bytes(self.image.ledger[32:48]) if self.image.ledger else this_boot()
        boot = self.rng.choice((known, known, NO_ID, self.rng.randbytes(16)))
        opening = self.rng.choice((0, 1, 2, 3, (1 << 64) - 1, SEQUENCE_END))
        opened = self.rng.randrange(2)
        for place in places:
            block = self.image.block(*place)
            block[32:40] = struct.pack("<Q", int(relies))
            block[97] = opened
            if relies:
                block[168:192] = struct.pack("<Q", opening) + boot
        self.finish(places, SUPERBLOCKS)
        return f"{'relies' if relies else 'does not rely'}, opening {opening}, open {opened}"

    def ledger_field(self) -> str:
        ledger = self.need_ledger()
        fields = [
            *[(name, at, 4) for name, at in (("version", 8), ("regions", 12), ("objects", 128))],
            *[(name, at, 8) for name, at in (("magic", 0), ("opening", 48), ("next", 56))],
            *[(f"epoch {slot}", 64 + 8 * slot, 8) for slot in range(8)],
            *[("volume", 16, 16), ("boot", 32, 16)],
            *[(f"stamp of {slot}", 256 + 48 * slot, 8) for slot in range(4)],
            *[(f"writer of {slot}", 264 + 48 * slot, 16) for slot in range(4)],
            *[
                (f"object {i // 4} on {i % 4}", 4096 + 64 * (i // 4) + 8 * (i % 4), 8)
                for i in range(12)
            ],
        ]
        name, at, width = self.rng.choice(fields)
        now = bytes(ledger[at : at + width])
        if width <= 8:
            value = self.number(int.from_bytes(now, "little"), 8 * width).to_bytes(width, "little")
        else:
            value = self.bytes(now)
        ledger[at : at + width] = value
        seal_ledger(ledger)
        return f"{name} = {value.hex()}"

    def ledger_words(self) -> str:
        """Puts valid words of other states into a ledger, or words that are not valid."""
        ledger = self.need_ledger()
        start = words_at(ledger)
        regions = min(int.from_bytes(ledger[12:16], "little"), (len(ledger) - start) // 4)
        mask = self.rng.choice((0x1FFF, 0xFFF, 0x1EFF, 0x100, 0xFF))
        one = self.rng.getrandbits(13) & mask
        same = self.rng.random() < 0.4
        count = self.rng.choice((1, 3, 32, 32))
        for region in range(min(count, regions)):
            state = one if same else self.rng.getrandbits(13) & mask
            if not state & 0x100 and self.rng.random() < 0.9:
                # Only a dirty region can be touched.
                state &= 0xFFF
            at = start + 4 * region
            ledger[at : at + 4] = struct.pack("<I", word_of(region, state))
        if self.rng.random() < 0.05:
            ledger[start : start + 4] = self.rng.randbytes(4)
        return f"{count} words, mask {mask:#x}, {f'{one:#x}' if same else 'any'}"

    def ledger_file(self) -> str:
        ledger = self.need_ledger()
        length = self.rng.choice((0, 1, 8, 47, 131, 4095, 4096, 8192, 8195, len(ledger) - 1))
        if self.rng.random() < 0.3:
            ledger += bytes(self.rng.choice((1, 4096, 1 << 20)))
        elif self.rng.random() < 0.3:
            ledger[:] = self.rng.randbytes(len(ledger))
        else:
            del ledger[length:]
        return f"{len(ledger)} bytes"

    def need_ledger(self) -> bytearray:
        """Returns the ledger; makes one where there is none."""
        image = self.image
        if image.ledger is None:
            regions, objects = image.template.volume_bytes // REGION, image.template.pages + 2
            ledger = bytearray(4096 + 4096 + -(-4 * regions // 4096) * 4096)
            ledger[0:16] = b"HEMILGR\0" + struct.pack("<II", 1, regions)
            ledger[16:48] = image.volume + this_boot()
            ledger[48:64] = struct.pack("<QQ", 1, 1)
            ledger[64:128] = struct.pack("<8Q", *[1] * 8)
            ledger[128:132] = struct.pack("<I", objects)
            seal_ledger(ledger)
            for region in range(regions):
                at = 8192 + 4 * region
                ledger[at : at + 4] = struct.pack("<I", word_of(region, 0x3))
            image.ledger = ledger
        if len(image.ledger) < 4096:
            image.ledger += bytes(8192 - len(image.ledger))
        return image.ledger

    def swapped(self) -> str:
        """Exchanges two blocks of a kind, or copies one over the other, sealed for their places."""
        kind, slots = self.slots()
        places = [(leg, at) for leg in range(len(self.image.legs)) for at in slots]
        first, second = self.rng.sample(places, 2)
        copied = self.rng.random() < 0.5
        one, two = bytes(self.image.block(*first)), bytes(self.image.block(*second))
        self.image.block(*second)[:] = one
        if not copied:
            self.image.block(*first)[:] = two
        sealed = self.rng.random() < 0.8
        for place in (first, second) if sealed else ():
            self.image.seal(*place)
        return f"{kind}, {'copied' if copied else 'swapped'}, {first} and {second}"

    def other_kind(self) -> str:
        """Puts a block of one kind in the place of another."""
        _, slots = self.slots()
        _, others = self.slots()
        leg = self.leg()
        place, source = (leg, self.rng.choice(slots)), (self.leg(), self.rng.choice(others))
        self.image.block(*place)[:] = bytes(self.image.block(*source))
        self.image.seal(*place)
        return f"{source} at {place}"

    def same_leg(self) -> str:
        """Copies all of a leg over another, perhaps with the other's name."""
        image = self.image
        first, second = self.rng.sample(range(len(image.legs)), 2)
        renamed = self.rng.random() < 0.6
        names = [image.block(second, at)[96] for at in SUPERBLOCKS]
        image.legs[second] = {at: bytearray(block) for at, block in image.legs[first].items()}
        for address, name in zip(SUPERBLOCKS, names, strict=True):
            if renamed:
                image.block(second, address)[96] = name
                image.seal(second, address)
        return f"{first} over {second}, {'renamed' if renamed else 'as it is'}"

    def stale(self) -> str:
        """Puts a leg, or some of its blocks, back to an earlier state."""
        image = self.image
        leg = self.leg()
        older = self.rng.choice(image.template.older)[leg]
        whole = self.rng.random() < 0.4
        if whole:
            image.legs[leg] = {at: bytearray(block) for at, block in older.items()}
            told = "all"
        else:
            told, slots = self.slots()
            for address in slots if self.rng.random() < 0.5 else slots[:1]:
                image.legs[leg][address] = bytearray(older.get(address, bytes(BLOCK)))
        return f"{told} of leg {leg}"

    def cut(self) -> str:
        leg = self.leg()
        size = self.image.sizes[leg]
        places = (0, 1, 511, 512, 4095, 4096, 65536, 131072, MIB, MIB + 4096, 2 * MIB, size - 1)
        value = self.rng.choice((*places, size - 512, size - 4096, size + 1, size + 512, 2 * size))
        self.image.sizes[leg] = max(value, 0)
        return f"leg {leg} has {value} bytes"

    def noise(self) -> str:
        """Fills payloads with random bytes, under valid trailers."""
        kind, slots = self.slots()
        places = self.some(slots)
        sectors = self.rng.sample(range(8), self.rng.choice((1, 1, 2, 8)))
        first = self.rng.choice((0, 24, 24, 104))
        for place in places:
            block = self.image.block(*place)
            for sector in sectors:
                at = sector * SECTOR
                block[at + first : at + 496] = self.rng.randbytes(496 - first)
        self.finish(places, slots)
        return f"{kind}, sectors {sectors} from {first}, at {places}"

    def flips(self) -> str:
        """Flips bits, of the trailers too, under valid checksums in most cases."""
        kind, slots = self.slots()
        places = self.some(slots)
        bits = [self.rng.randrange(8 * BLOCK) for _ in range(self.rng.choice((1, 2, 8)))]
        sealed = self.rng.random() < 0.8
        for place in places:
            for bit in bits:
                self.image.block(*place)[bit // 8] ^= 1 << bit % 8
            if sealed:
                self.image.seal(*place)
        return f"{kind}, bits {bits}, {'sealed' if sealed else 'damaged'}, at {places}"

    def torn(self) -> str:
        """Gives some sectors of blocks another sequence."""
        kind, slots = self.slots()
        places = self.some(slots)
        count = self.rng.randrange(1, 8)
        for place in places:
            block = self.image.block(*place)
            value = self.rng.choice((0, sequence_of(block) + 1, SEQUENCE_END - 1))
            for sector in range(count):
                at = sector * SECTOR + 496
                block[at : at + 8] = struct.pack("<Q", min(value, SEQUENCE_END - 1))
            self.image.seal(*place)
        return f"{kind}, {count} sectors, at {places}"

    def blank(self) -> str:
        kind, slots = self.slots()
        places = self.some(slots)
        for place in places:
            self.image.block(*place)[:] = bytes(BLOCK)
        return f"{kind}, at {places}"

    def renamed(self) -> str:
        """Gives the volume another id, on all legs and in the ledger."""
        image = self.image
        image.volume = self.rng.choice((NO_ID, b"\xff" * 16, self.rng.randbytes(16)))
        for leg in range(len(image.legs)):
            for address in image.metadata(leg):
                if address in SUPERBLOCKS:
                    for sector in (0, 1, 3, 4, 5, 6):
                        at = sector * SECTOR + 8
                        image.block(leg, address)[at : at + 16] = image.volume
                image.seal(leg, address)
        if image.ledger is not None and len(image.ledger) >= 136:
            image.ledger[16:32] = image.volume
            seal_ledger(image.ledger)
        return image.volume.hex()


FORGERIES: dict[str, tuple[int, Callable[[Forger], str]]] = {
    "field": (24, Forger.field),
    "sequences": (6, Forger.sequences),
    "epochs": (4, Forger.epochs),
    "members": (5, Forger.members),
    "ancestry": (4, Forger.ancestry),
    "generations": (4, Forger.generations),
    "entries": (8, Forger.entries),
    "lost list": (6, Forger.lost),
    "geometry": (4, Forger.geometry),
    "mark": (4, Forger.mark),
    "ledger's field": (6, Forger.ledger_field),
    "ledger's words": (6, Forger.ledger_words),
    "ledger's file": (1, Forger.ledger_file),
    "blocks swapped": (4, Forger.swapped),
    "block of another kind": (1, Forger.other_kind),
    "one leg twice": (2, Forger.same_leg),
    "stale": (5, Forger.stale),
    "cut": (2, Forger.cut),
    "noise": (5, Forger.noise),
    "flips": (5, Forger.flips),
    "torn": (4, Forger.torn),
    "blank": (3, Forger.blank),
    "volume renamed": (1, Forger.renamed),
}


def this_boot() -> bytes:
    """Returns the boot id of this machine."""
    return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""))


class Broken(Exception):
    """Says which bound a run broke."""


@dataclass
class Run:
    """Records a command's run: its exit code, whether it served, and its slowest step's time."""

    command: str
    code: int
    served: bool
    seconds: float


@dataclass
class Outcome:
    """Collects the runs over one image, and the bounds that were broken."""

    seed: int
    template: str
    notes: list[str]
    runs: list[Run] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class Trial:
    """Runs the commands over one image."""

    def __init__(self, seed: int, templates: list[Template], box: Sandbox) -> None:
        self.rng = random.Random(f"forged {seed}")
        template = self.rng.choices(templates, WEIGHTS)[0]
        self.image = Image.of(template)
        forger = Forger(self.rng, self.image)
        forger.forge()
        self.box = box
        self.outcome = Outcome(seed, template.name, self.image.notes)

    def run(self) -> Outcome:
        """Runs everything; each command begins with the image as it was forged."""
        for step in (self.inspect_and_serve, self.promote, self.settle):
            try:
                step()
            except Broken as error:
                self.outcome.broken.append(str(error))
        return self.outcome

    def inspect_and_serve(self) -> None:
        names, ledger = self.volume("a")
        form = ("--json",) if self.rng.random() < 0.5 else ()
        code, out = self.command("inspect", *form, *names, "--ledger", ledger)
        if form and code in (0, 1):
            try:
                json.loads(out)
            except ValueError as error:
                raise Broken(f"inspect --json printed what is no JSON ({error}):\n{out}") from error
        self.serve(names, ledger)

    def promote(self) -> None:
        directory = self.box.path("p")
        directory.mkdir()
        leg = self.rng.randrange(len(self.image.legs))
        path = directory / f"leg{leg}.img"
        self.image.write_leg(leg, path)
        ledger = self.image.write_ledger(directory)
        rest: list[Arg] = ["--no-direct", "--ledger", ledger]
        if self.rng.random() < 0.25:
            self.command("promote", path, *rest)
        code, _ = self.command("promote", path, "--accept-loss", *rest)
        if code == 0 and self.rng.random() < 0.25:
            self.serve([path], ledger)

    def settle(self) -> None:
        if self.image.ledger is None or self.rng.random() < 0.6:
            return
        names, ledger = self.volume("s")
        self.command("settle", self.config(names), "--ledger", ledger)

    def config(self, names: list[Arg], socket: Path | None = None) -> Path:
        """Writes a configuration of these legs. No server has anything left to write."""
        path = self.box.path("hemi.toml")
        # A JSON string is a TOML string.
        legs = [
            f"{{ path = {json.dumps(str(name))}, "
            + ("direct = false }" if isinstance(name, Path) else 'quarantine = "0s" }')
            for name in names
        ]
        lines = [f"legs = [{', '.join(legs)}]"]
        if socket:
            lines.append(f"exports = [{{ nbd = {json.dumps(f'unix:{socket}')} }}]")
        path.write_text("\n".join([*lines, ""]))
        return path

    def volume(self, name: str) -> tuple[list[Arg], Path]:
        """Writes the image; returns the legs' names and the ledger's directory."""
        paths, ledger = self.image.write(self.box.path(name))
        names: list[Arg] = [*paths]
        if self.image.template.remote:
            names[-1] = Nbdkit(self.box, paths[-1], filters=False).uri
        return names, ledger

    def command(self, command: str, *argv: Arg) -> tuple[int, str]:
        """Runs a command that ends by itself. Returns its exit code and standard output."""
        begun = time.monotonic()
        try:
            code, out, err = run_any(HEMI, command, *argv, timeout=LIMIT)
        except AssertionError as error:
            raise Broken(f"no end in time: {error}") from error
        self.check(command, code, out, err, time.monotonic() - begun)
        return code, out

    def check(
        self, command: str, code: int, out: str, err: str, seconds: float, served: bool = False
    ) -> None:
        """Holds a run that has ended against the bounds."""
        printed = f"hemi {command} exited {code}:\n{out[-3000:]}{err[-3000:]}"
        self.outcome.runs.append(Run(command, code, served, seconds))
        self.outcome.said.append(printed)
        if code < 0:
            raise Broken(f"a signal: {printed}")
        low = (out + err).lower()
        # 2 would mean that this program names options which do not exist.
        if code not in (0, 1, 3) or any(crash in low for crash in CRASHES):
            raise Broken(f"a crash: {printed}")
        if code != 0 and not err.strip():
            raise Broken(f"a refusal without a word: {printed}")
        if seconds > LIMIT:
            raise Broken(f"took {seconds:.1f} s: {printed}")

    def serve(self, names: list[Arg], ledger: Path) -> None:
        """Serves, asks for the status, reads and perhaps writes a block, and stops."""
        volume = Volume(self.box, [str(name) for name in names])
        volume.socket, volume.control = self.box.path("n.sock"), self.box.path("c.sock")
        volume.serve_with(self.config(names, volume.socket))
        volume.options += ["--control", volume.control]
        volume.options += ["--drain-on-stop", "100ms", "--buffer-budget", "16MiB"]
        volume.options += ["--ledger", "none" if self.rng.random() < 0.2 else ledger]
        if self.rng.random() < 0.3:
            volume.options.append("--accept-loss")
        policy = self.rng.choice(("first", "first", "paper", "all", "write-behind"))
        volume.options += ["--policy", policy]
        writes, shown = self.rng.random() < 0.5, self.rng.random() < 0.1
        volume.launch()
        process = volume.process
        steps = Steps()
        try:
            with steps.step():
                served = self.wait(volume)
            if served:
                with steps.step():
                    self.use(volume, writes)
            if served and shown and process.running:
                code, _ = self.command("status", "--control", volume.control)
                if code != 0 and process.running:
                    raise Broken(f"hemi status exited {code} while hemi served")
            with steps.step():
                code = self.stop(process)
        finally:
            process.kill()
        self.check("serve", code, "", process.output(), steps.slowest, served)

    @staticmethod
    def wait(volume: Volume) -> bool:
        """Waits until hemi serves, or has ended; says whether it serves."""
        end = time.monotonic() + LIMIT
        while volume.process.running:
            if answers(volume.socket) and answers(volume.control):
                return True
            if time.monotonic() > end:
                raise Broken(f"neither serves nor ends:\n{volume.process.output()}")
            time.sleep(0.003)
        return False

    @staticmethod
    def use(volume: Volume, writes: bool) -> None:
        """Asks a served volume for its status and uses it. It may end by its own will."""
        try:
            status = volume.status()
            assert status["legs"], f"a status without legs: {status}"
            with Client(volume.uri, timeout=LIMIT) as client:
                last = client.size() - BLOCK
                for offset in (0, last):
                    with contextlib.suppress(NbdError):
                        client.read(offset, BLOCK)
                    if writes:
                        with contextlib.suppress(NbdError):
                            client.write(offset, b"f" * BLOCK)
                if writes:
                    with contextlib.suppress(NbdError):
                        client.flush()
        except TimeoutError as error:
            raise Broken(f"{error}\n{volume.process.output()}") from error
        except (AssertionError, NbdError) as error:
            # A hemi that has just ended is judged by how it ended.
            time.sleep(0.1)
            if volume.process.running:
                raise Broken(f"{error}\n{volume.process.output()}") from error

    @staticmethod
    def stop(process: Process) -> int:
        try:
            return process.terminate(LIMIT)
        except AssertionError as error:
            raise Broken(f"no end after TERM: {error}") from error


class Steps:
    """Times the steps of a served volume."""

    def __init__(self) -> None:
        self.slowest = 0.0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.slowest = max(self.slowest, time.monotonic() - begun)


def trial(seed: int, templates: list[Template]) -> Outcome:
    """Runs all commands over the image of a seed. Keeps it if a bound is broken."""
    with Sandbox(base()) as box:
        test = Trial(seed, templates, box)
        outcome = test.run()
        if outcome.broken:
            kept = Path(tempfile.mkdtemp(prefix=f"forged-{seed}-"))
            test.image.write(kept / "image")
            outcome.broken.append(f"the image is kept in {kept}")
    return outcome


_TEMPLATES: list[Template] = []


def _begin(templates: list[Template]) -> None:
    """Prepares a worker. It dies with its parent, and from TERM without a word."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _TEMPLATES[:] = templates


def _trial(seed: int) -> Outcome:
    return trial(seed, _TEMPLATES)


def trials(seeds: range, jobs: int, seconds: float | None = None) -> Iterator[Outcome]:
    """Runs the images of some seeds, until the time is over if there is a limit."""
    end = None if seconds is None else time.monotonic() + seconds
    with multiprocessing.get_context("fork").Pool(jobs, _begin, (templates(),)) as pool:
        for outcome in pool.imap_unordered(_trial, seeds, chunksize=4):
            yield outcome
            if end is not None and time.monotonic() > end:
                break
    # A worker that was ended in the middle leaves its files.
    sweep(base())


def account(outcome: Outcome) -> str:
    """Returns what was forged and which bounds were broken."""
    lines = [f"forged.py --seed {outcome.seed} (template {outcome.template})", *outcome.notes]
    return "\n".join([*lines, *outcome.broken])


def table(outcomes: list[Outcome]) -> str:
    """Returns the figures of all runs."""
    runs = [run for outcome in outcomes for run in outcome.runs]
    lines = [
        "| command | runs | done | refused | slowest, s |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    commands = ("inspect", "serve", "promote", "settle", "status")
    for command, some in [(c, [r for r in runs if r.command == c]) for c in commands]:
        done = sum(run.code == 0 for run in some)
        slowest = max((run.seconds for run in some), default=0)
        lines.append(f"| {command} | {len(some)} | {done} | {len(some) - done} | {slowest:.2f} |")
    served = sum(run.served for run in runs)
    broken = sum(bool(outcome.broken) for outcome in outcomes)
    lines.append("")
    lines.append(
        f"{len(outcomes)} images, {len(runs)} runs, {sum(run.code != 0 for run in runs)} refused, "
        f"{served} served, {broken} images broke a bound"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, help="end after this time")
    parser.add_argument("--seed", type=int, help="run this image alone, and show all it says")
    asked = parser.parse_args()
    sweep(base())
    if asked.seed is not None:
        outcome = trial(asked.seed, templates())
        print(account(outcome), *outcome.said, sep="\n\n")
        raise SystemExit(bool(outcome.broken))
    outcomes = []
    seeds = range(asked.first_seed, asked.first_seed + asked.images)
    for outcome in trials(seeds, asked.jobs, asked.seconds):
        outcomes.append(replace(outcome, said=[]))
        if outcome.broken:
            print(account(outcome), end="\n\n", flush=True)
        if len(outcomes) % 1000 == 0:
            print(f"{len(outcomes)} images", file=sys.stderr, flush=True)
    print(table(outcomes))
    broken = sorted(outcome.seed for outcome in outcomes if outcome.broken)
    if broken:
        raise SystemExit(f"bounds are broken by the images of the seeds {broken}")


if __name__ == "__main__":
    main()
