"""Makes volumes of every kind with hemi itself, as templates of forgeries."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hemi_harness import Nbdkit, Sandbox, Volume
from hemi_harness.hemi import MIB
from metadata_format import (
    BLOCK,
    ENTRIES,
    LOST_LISTS,
    NO_ID,
    REGION,
    seal,
    seal_ledger,
    word_of,
    words_at,
)

MEMORY = Path("/dev/shm")

Blocks = dict[int, bytes]


@dataclass(frozen=True)
class Template:
    """A volume as hemi left it: each leg's blocks that are not zero, now and earlier."""

    name: str
    volume_bytes: int
    leg_bytes: int
    legs: list[Blocks]
    older: list[list[Blocks]]
    ledger_name: str
    ledger: bytes | None
    # True if its last leg is behind an NBD server.
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
    """Makes one template: a served volume, with copies of its legs on the way."""

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
# Weights of the makers. A remote leg needs another process.
WEIGHTS = (3, 4, 6, 4, 2, 1)


def templates() -> list[Template]:
    """Returns every template, made by hemi itself."""
    made = []
    for maker in MAKERS:
        with Sandbox(base()) as box:
            made.append(maker(box))
    return made


def base() -> Path | None:
    """Returns the directory for images, in memory if there is such a file system."""
    return MEMORY if MEMORY.is_dir() else None
