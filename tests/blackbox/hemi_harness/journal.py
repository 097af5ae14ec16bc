"""A client that remembers acknowledged writes across kills of the server.

Every 512-byte sector written holds its own number and the number of the write, so that a read shows
the write it saw. A read must see a write no older than the last one acknowledged before the read
was sent, and none that was never sent (P1, P2).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import nbd

from .client import NbdError
from .sandbox import PATIENCE, wait_until

SECTOR = 512
_HEAD = struct.Struct("<QQ8s")
_MAGIC = b"hemiblk1"


def _sector(number: int, sequence: int) -> bytes:
    head = _HEAD.pack(number, sequence, _MAGIC)
    return (head * (SECTOR // len(head) + 1))[:SECTOR]


def block_data(block: int, sequence: int, size: int) -> bytes:
    """Returns the data of write `sequence` in block `block`."""
    first = block * (size // SECTOR)
    return b"".join(_sector(first + i, sequence) for i in range(size // SECTOR))


def sequences(block: int, data: bytes) -> list[int]:
    """Returns the write that each sector of a block holds (0: none yet). Fails on other content."""
    found = []
    per_block = len(data) // SECTOR
    for i in range(per_block):
        sector = data[i * SECTOR : (i + 1) * SECTOR]
        number = block * per_block + i
        if sector == bytes(SECTOR):
            found.append(0)
            continue
        got, sequence, magic = _HEAD.unpack_from(sector)
        if magic != _MAGIC or got != number or sector != _sector(number, sequence):
            raise AssertionError(
                f"sector {number} holds neither zeros nor a write of this journal: "
                f"{sector[:32].hex()}…"
            )
        found.append(sequence)
    return found


@dataclass
class _Pending:
    kind: str
    block: int
    sequence: int
    # For reads: the oldest write they may see.
    lowest: int
    buffer: Any


class Journal:
    """Writes blocks at random, `depth` at once, and checks everything it reads.

    At most one write is in flight to a block, so that the allowed content of reads is known
    exactly.
    """

    def __init__(
        self,
        uri: str,
        *,
        blocks: int = 4096,
        block_bytes: int = 4096,
        depth: int = 16,
        seed: int = 1,
        reads: float = 0.2,
        flush_every: int = 64,
        offset: int = 0,
        connections: int = 1,
    ) -> None:
        self.uri = uri
        self.blocks = blocks
        self.block_bytes = block_bytes
        self.depth = depth
        self.reads = reads
        self.flush_every = flush_every
        self.offset = offset
        self.connections = connections
        self.random = random.Random(seed)
        # For each block, the last acknowledged write and the last one sent.
        self.acknowledged: dict[int, int] = {}
        self.sent: dict[int, int] = {}
        self._next = 1
        self.writes_acknowledged = 0
        self.reads_checked = 0
        self._handles: list[Any] = []
        self._pending: dict[tuple[int, int], _Pending] = {}
        self._busy: set[int] = set()

    def connect(self) -> None:
        self._pending.clear()
        self._busy.clear()
        self._handles = []
        for _ in range(self.connections):
            handle = nbd.NBD()
            handle.set_strict_mode(0)
            handle.connect_uri(self.uri)
            self._handles.append(handle)

    def disconnect(self) -> None:
        """Drops the connections."""
        self._handles = []

    def run(
        self,
        operations: int,
        *,
        at: Mapping[int, Callable[[], object]] | None = None,
        stall_limit: float = PATIENCE,
    ) -> bool:
        """Runs until `operations` more writes are acknowledged. Returns false if the server goes
        away.

        Calls each action of `at` after that many of these writes."""
        if not self._handles:
            self.connect()
        start = self.writes_acknowledged
        actions = sorted((at or {}).items())
        try:
            while self.writes_acknowledged - start < operations:
                while actions and self.writes_acknowledged - start >= actions[0][0]:
                    actions.pop(0)[1]()
                self._fill()
                self._reap(stall_limit)
            self._drain(stall_limit)
        except _Gone:
            self.disconnect()
            return False
        return True

    def verify(self) -> None:
        """Reads every block ever written. From then on the blocks must keep this content."""
        if not self._handles:
            self.connect()
        handle = self._handles[0]
        for block in sorted(self.sent):
            data = bytes(handle.pread(self.block_bytes, self.offset + block * self.block_bytes))
            lowest, highest = self.acknowledged.get(block, 0), self.sent[block]
            seen = self._check(block, data, lowest, highest)
            # An unacknowledged write that tore at the kill stays as torn as it was seen.
            self.acknowledged[block] = min(seen)
            self.sent[block] = max(seen)

    def check_image(self, image: bytes) -> None:
        """Checks a copy of the whole volume, such as a leg's data area."""
        for block in sorted(self.sent):
            at = self.offset + block * self.block_bytes
            data = image[at : at + self.block_bytes]
            self._check(block, data, self.acknowledged.get(block, 0), self.sent[block])

    def settle(self) -> None:
        """Verifies after a kill, then rewrites torn blocks, so that the next round can tell blocks
        apart."""
        self.verify()
        handle = self._handles[0]
        for block, highest in self.sent.items():
            if self.acknowledged[block] != highest:
                self._next += 1
                data = block_data(block, self._next, self.block_bytes)
                handle.pwrite(data, self.offset + block * self.block_bytes)
                self.sent[block] = self.acknowledged[block] = self._next

    def _check(self, block: int, data: bytes, lowest: int, highest: int) -> list[int]:
        seen = sequences(block, data)
        if any(s < lowest for s in seen):
            raise AssertionError(
                f"block {block}: write {lowest} was acknowledged, but reads see {seen}"
            )
        if any(s > highest for s in seen):
            raise AssertionError(f"block {block}: reads see {seen}, write {highest} was the last")
        self.reads_checked += 1
        return seen

    def _fill(self) -> None:
        attempts = 0
        while len(self._pending) < self.depth and attempts < 4 * self.depth:
            attempts += 1
            which = self.random.randrange(len(self._handles))
            handle = self._handles[which]
            if handle.aio_is_dead() or handle.aio_is_closed():
                raise _Gone
            block = self.random.randrange(self.blocks)
            at = self.offset + block * self.block_bytes
            if block in self.sent and self.random.random() < self.reads:
                buffer = nbd.Buffer(self.block_bytes)
                lowest = self.acknowledged.get(block, 0)
                pending = _Pending("read", block, 0, lowest, buffer)
                cookie = self._send(handle, "aio_pread", buffer, at)
            elif block in self._busy:
                continue
            else:
                self._next += 1
                data = block_data(block, self._next, self.block_bytes)
                buffer = nbd.Buffer.from_bytearray(bytearray(data))
                pending = _Pending("write", block, self._next, 0, buffer)
                self.sent[block] = self._next
                self._busy.add(block)
                cookie = self._send(handle, "aio_pwrite", buffer, at)
                if self.flush_every and self._next % self.flush_every == 0:
                    flush = self._send(handle, "aio_flush")
                    self._pending[which, flush] = _Pending("flush", -1, 0, 0, None)
            self._pending[which, cookie] = pending

    @staticmethod
    def _send(handle: Any, call: str, *arguments: Any) -> int:
        try:
            return int(getattr(handle, call)(*arguments))
        except nbd.Error as error:
            if handle.aio_is_dead() or handle.aio_is_closed():
                raise _Gone from error
            raise

    def _reap(self, stall_limit: float) -> None:
        def something() -> bool:
            return self._poll() > 0

        wait_until("the server answers a request", something, stall_limit)

    def _drain(self, stall_limit: float) -> None:
        while self._pending:
            self._reap(stall_limit)

    def _poll(self) -> int:
        done = 0
        for which, handle in enumerate(self._handles):
            try:
                handle.poll(1)
            except nbd.Error as error:
                raise _Gone from error
            for key in [k for k in self._pending if k[0] == which]:
                try:
                    completed = handle.aio_command_completed(key[1])
                except nbd.Error as error:
                    if handle.aio_is_dead() or handle.aio_is_closed():
                        raise _Gone from error
                    pending = self._pending[key]
                    raise NbdError(
                        f"{pending.kind} of block {pending.block}: {error.string}",
                        error.errnum or 0,
                    ) from error
                if completed:
                    self._finish(self._pending.pop(key))
                    done += 1
            if handle.aio_is_dead() or handle.aio_is_closed():
                raise _Gone
        return done

    def _finish(self, pending: _Pending) -> None:
        if pending.kind == "write":
            self.acknowledged[pending.block] = pending.sequence
            self._busy.discard(pending.block)
            self.writes_acknowledged += 1
        elif pending.kind == "read":
            data = bytes(pending.buffer.to_bytearray())
            self._check(pending.block, data, pending.lowest, self.sent[pending.block])


class _Gone(Exception):
    """The server closed a connection."""
