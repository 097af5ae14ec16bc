"""A verifying load over several connections, to a server that may die at any moment."""

from __future__ import annotations

import errno
import random
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import nbd

from .client import Client, NbdError
from .history import History, Read, Write
from .sandbox import wait_until

# libnbd's errors for requests whose connection ended.
_GONE = {errno.ENOTCONN, errno.ESHUTDOWN, errno.ECONNRESET, errno.EPIPE}
_VERIFY_BYTES = 1 << 20
STALL_LIMIT = 120.0


@dataclass(frozen=True)
class Mix:
    """The parameters of a load: weights of the kinds, and sizes and places of requests."""

    connections: int = 1
    depth: int = 16
    # Largest size of a request in units. Sizes are uniform over the powers of two up to it.
    units_max: int = 16
    # Share of requests that go to the first sixteenth of the volume.
    hot: float = 0.5
    reads: int = 25
    writes: int = 60
    zeroes: int = 4
    discards: int = 2
    flushes: int = 4
    fua: float = 0.1

    @staticmethod
    def drawn(rng: random.Random, units_max: int) -> Mix:
        """Draws a mix at random."""
        return Mix(
            connections=rng.randint(1, 4),
            depth=rng.choice([1, 4, 16, 64]),
            units_max=rng.choice([1, units_max // 4, units_max]),
            hot=rng.choice([0.0, 0.5, 0.95]),
            reads=rng.choice([5, 25, 50]),
            flushes=rng.choice([0, 1, 4, 15]),
            fua=rng.choice([0.0, 0.1, 0.5]),
        )


class VerifyingLoad:
    """Sends a mix at random and checks every read, until the server dies."""

    def __init__(self, uri: str, history: History) -> None:
        self.uri = uri
        self.history = history
        self.writes = 0
        self.flushes = 0
        self._handles: list[Any] = []
        self._done: list[tuple[Write | Read | int, bytearray | None, int, str]] = []
        # Buffers by length. libnbd 1.14 never releases a buffer it was given, so they are reused.
        self._free: dict[int, list[bytearray]] = {}

    def connect(self, mix: Mix) -> None:
        """Opens the connections of the next `run`."""
        self._handles = [_connect(self.uri) for _ in range(mix.connections)]

    def run(self, mix: Mix, rng: random.Random, alive: Callable[[], bool]) -> None:
        """Loads the server until it is dead.

        Fails on a wrong answer, on an error, and if nothing is answered for `STALL_LIMIT` although
        the server lives."""
        handles, self._handles = self._handles, []
        pending = [0] * len(handles)
        last = time.monotonic()
        while any(_usable(handle) for handle in handles):
            for i, handle in enumerate(handles):
                while _usable(handle) and pending[i] < mix.depth:
                    if not self._send(handle, i, mix, rng, pending):
                        break
            _poll(handles)
            if self._done:
                last = time.monotonic()
                self._finish(alive)
            elif time.monotonic() - last > STALL_LIMIT and alive():
                raise AssertionError(
                    f"no answer in {STALL_LIMIT:g} s to {sum(pending)} requests in flight"
                )
        self._finish(alive)
        if alive():
            # The kill may not have been noticed yet. A server that lives on fails this.
            wait_until("the server that closed all connections is dead", lambda: not alive())

    def verify(self) -> None:
        """Reads the whole volume after a restart.

        Its content must be the result of some order of the requests, and must stay."""
        self.history.forget_reads()
        handle = _connect(self.uri)
        unit = self.history.unit_bytes
        total = self.history.units * unit
        for offset in range(0, total, _VERIFY_BYTES):
            length = min(_VERIFY_BYTES, total - offset)
            buffer = self._buffer(length)
            answered: list[int] = []

            def done(error: Any, answered: list[int] = answered) -> int:
                answered.append(int(error.value))
                return 1

            handle.aio_pread(buffer, offset, completion=done)
            deadline = time.monotonic() + STALL_LIMIT
            while not answered:
                assert time.monotonic() < deadline, f"no answer to a read at {offset}"
                _poll([handle])
            if answered[0]:
                raise NbdError(f"read of {length} at {offset} after the restart", answered[0])
            self.history.check(offset // unit, bytes(buffer), settle=True)
            self._free[length].append(buffer)

    def _buffer(self, length: int) -> bytearray:
        free = self._free.setdefault(length, [])
        return free.pop() if free else bytearray(length)

    def _send(
        self, handle: Any, index: int, mix: Mix, rng: random.Random, pending: list[int]
    ) -> bool:
        """Sends one request. Returns false if the connection turned out dead."""
        history, unit = self.history, self.history.unit_bytes
        kind = rng.choices(
            ("read", "write", "zero", "discard", "flush"),
            (mix.reads, mix.writes, mix.zeroes, mix.discards, mix.flushes),
        )[0]
        units = 1 << rng.randrange(mix.units_max.bit_length())
        span = history.units // 16 if rng.random() < mix.hot else history.units
        first = rng.randrange(span - units + 1)
        fua = nbd.CMD_FLAG_FUA if rng.random() < mix.fua else 0
        # For a flush: the mark when it is sent.
        request: Write | Read | int = history.flush()
        buffer: bytearray | None = None
        # A request that was told to the history may have happened, even if sending it failed
        # half-way.
        if kind == "read":
            request, buffer = history.read(first, units), self._buffer(units * unit)
        elif kind == "write":
            request = history.write(first, units, fua=bool(fua))
            buffer = self._buffer(units * unit)
            buffer[:] = history.payload(request)
        elif kind != "flush":
            request = history.write(
                first, units, zeros=True, discard=kind == "discard", fua=bool(fua)
            )

        def done(error: Any) -> int:
            pending[index] -= 1
            self._done.append((request, buffer, int(error.value), kind))
            return 1

        pending[index] += 1
        try:
            if kind == "read":
                handle.aio_pread(buffer, first * unit, completion=done)
            elif kind == "write":
                handle.aio_pwrite(buffer, first * unit, completion=done, flags=fua)
            elif kind == "zero":
                hole = rng.choice([0, nbd.CMD_FLAG_NO_HOLE])
                handle.aio_zero(units * unit, first * unit, completion=done, flags=fua | hole)
            elif kind == "discard":
                handle.aio_trim(units * unit, first * unit, completion=done, flags=fua)
            else:
                handle.aio_flush(completion=done)
        except nbd.Error:
            if _usable(handle):
                raise
            return False
        return True

    def _finish(self, alive: Callable[[], bool]) -> None:
        done, self._done = self._done, []
        for request, buffer, error, kind in done:
            if error:
                if error not in _GONE:
                    raise NbdError(f"{kind} while the server lives: {alive()}", error)
                if isinstance(request, Read):
                    self.history.answer(request, None)
            elif isinstance(request, Write):
                self.history.acknowledge(request)
                self.writes += 1
            elif isinstance(request, Read):
                assert buffer is not None, "a read has a buffer"
                self.history.answer(request, bytes(buffer))
            else:
                self.history.flushed(request)
                self.flushes += 1
            if buffer is not None:
                self._free[len(buffer)].append(buffer)


def _connect(uri: str) -> Any:
    return Client(uri, timeout=STALL_LIMIT).handle


def _usable(handle: Any) -> bool:
    return not (handle.aio_is_dead() or handle.aio_is_closed())


def _poll(handles: list[Any], milliseconds: int = 50) -> None:
    """Lets libnbd read and write on every connection that is ready."""
    poller = select.poll()
    by_descriptor = {}
    for handle in handles:
        if not _usable(handle):
            continue
        direction = handle.aio_get_direction()
        events = select.POLLIN if direction & nbd.AIO_DIRECTION_READ else 0
        events |= select.POLLOUT if direction & nbd.AIO_DIRECTION_WRITE else 0
        by_descriptor[handle.aio_get_fd()] = handle
        poller.register(handle.aio_get_fd(), events)
    for descriptor, events in poller.poll(milliseconds):
        handle = by_descriptor[descriptor]
        direction = handle.aio_get_direction()
        try:
            if direction & nbd.AIO_DIRECTION_READ and events & ~select.POLLOUT:
                handle.aio_notify_read()
            elif direction & nbd.AIO_DIRECTION_WRITE and events & ~select.POLLIN:
                handle.aio_notify_write()
        except nbd.Error:
            if _usable(handle):
                raise
