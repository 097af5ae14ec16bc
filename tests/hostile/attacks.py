"""The attacks of hostile clients.

Each attack runs in a process of its own, over any number of connections, until it is ended. It has
a lower priority than everybody else, like a client on another machine.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from wire import BLOCK_STATUS, CACHE, READ, WRITE, WRITE_ZEROES, Wire, connected

PIPELINED = 64
MIB = 1 << 20


def flood(wires: list[Wire], request: Callable[[Wire], bytes]) -> None:
    """Keeps every connection full of requests, and discards all answers unread."""
    selector = selectors.DefaultSelector()
    batches = {}
    for wire in wires:
        wire.socket.setblocking(False)
        batches[wire.socket] = request(wire) * PIPELINED
        selector.register(wire.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
    rests: dict[socket.socket, bytes] = dict.fromkeys(batches, b"")
    scratch = bytearray(MIB)
    while selector.get_map():
        for key, events in selector.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            try:
                if events & selectors.EVENT_READ and not connection.recv_into(scratch):
                    raise ConnectionError
                if events & selectors.EVENT_WRITE:
                    rest = rests[connection] or batches[connection]
                    rests[connection] = rest[connection.send(rest) :]
            except BlockingIOError:
                pass
            except OSError:
                selector.unregister(connection)


def block_status(path: Path, count: int) -> None:
    """Sends pipelined block status requests of the whole volume."""
    wires = [Wire(path, extended=True, contexts=("hemi:copies",)) for _ in range(count)]
    flood(wires, lambda wire: wire.request(BLOCK_STATUS, 0, wire.size))


def allocation(path: Path, count: int) -> None:
    """Sends pipelined block status requests of single blocks."""
    wires = [Wire(path, extended=True, contexts=("base:allocation",)) for _ in range(count)]
    flood(wires, lambda wire: wire.request(BLOCK_STATUS, 0, 4096))


def cache(path: Path, count: int) -> None:
    """Sends pipelined requests that cost only their answer."""
    flood([Wire(path) for _ in range(count)], lambda wire: wire.request(CACHE, 0, 4096))


def invalid(path: Path, count: int) -> None:
    """Sends pipelined reads beyond the end."""
    wires = [Wire(path, contexts=("base:allocation",)) for _ in range(count)]
    flood(wires, lambda wire: wire.request(READ, wire.size, 4096))


def zeroes(path: Path, count: int) -> None:
    """Sends pipelined write-zeroes of the whole volume."""
    wires = [Wire(path, extended=True) for _ in range(count)]
    flood(wires, lambda wire: wire.request(WRITE_ZEROES, 0, wire.size))


def slow_readers(path: Path, count: int) -> None:
    """Sends reads of 32 MiB each, and takes 256 KiB of them a second."""
    wires = [Wire(path) for _ in range(count)]
    for wire in wires:
        wire.socket.sendall(wire.request(READ, 0, 32 * MIB) * 2)
    while True:
        for wire in wires:
            take(wire, 64 << 10)
        time.sleep(0.25)


def take(wire: Wire, count: int) -> None:
    """Takes `count` bytes, if they are there and the server has not left."""
    wire.socket.setblocking(False)
    with contextlib.suppress(OSError):
        wire.socket.recv(count)


def slow_writers(path: Path, count: int) -> None:
    """Sends writes of 1 MiB each, one byte a second."""
    wires = [Wire(path) for _ in range(count)]
    for wire in wires:
        wire.socket.sendall(wire.request(WRITE, 0, MIB))
    while True:
        for wire in wires:
            with contextlib.suppress(OSError):
                wire.socket.send(b"x")
        time.sleep(1)


def breakers(path: Path, count: int) -> None:
    """Connects and breaks the protocol, over and over."""
    while True:
        for _ in range(count):
            try:
                connection = connected(path)
                connection.sendall(struct.pack(">I", 3) + b"\x1b[2J" * 1024)
                connection.close()
            except OSError:
                time.sleep(0.01)


def silent(path: Path, count: int) -> None:
    """Connects and says nothing, over and over."""
    held: list[socket.socket] = []
    while True:
        try:
            held.append(connected(path))
        except OSError:
            time.sleep(0.01)
        if len(held) >= count:
            held.pop(0).close()
            time.sleep(0.001)


ATTACKS = {
    attack.__name__.replace("_", "-"): attack
    for attack in (
        block_status,
        allocation,
        cache,
        invalid,
        zeroes,
        slow_readers,
        slow_writers,
        breakers,
        silent,
    )
}


if __name__ == "__main__":
    os.nice(19)
    ATTACKS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
