"""The parts of the NBD protocol that a hostile client needs, by hand."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

OPTION_MAGIC = 0x49484156454F5054
REPLY_MAGIC = 0x3E889045565A9
REQUEST_MAGIC = 0x25609513
EXTENDED_MAGIC = 0x21E41C71
OPT_GO, OPT_STRUCTURED, OPT_SET_META, OPT_EXTENDED = 7, 8, 10, 11
REP_ACK, REP_ERROR = 1, 1 << 31
READ, WRITE, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = 0, 1, 3, 4, 5, 6, 7


class Wire:
    """A connection after the handshake."""

    def __init__(self, path: Path, *, extended: bool = False, contexts: tuple[str, ...] = ()):
        self.socket = connected(path)
        self.extended = extended
        self.size = 0
        self.receive(18)
        self.socket.sendall(struct.pack(">I", 3))
        if extended or contexts:
            self._option(OPT_EXTENDED if extended else OPT_STRUCTURED)
        if contexts:
            data = struct.pack(">II", 0, len(contexts))
            for context in contexts:
                data += struct.pack(">I", len(context)) + context.encode()
            self._option(OPT_SET_META, data)
        for kind, data in self._option(OPT_GO, struct.pack(">IH", 0, 0)):
            # NBD_REP_INFO with NBD_INFO_EXPORT.
            if kind == 3 and data[:2] == b"\0\0":
                self.size = struct.unpack(">Q", data[2:10])[0]

    def _option(self, option: int, data: bytes = b"") -> list[tuple[int, bytes]]:
        self.socket.sendall(struct.pack(">QII", OPTION_MAGIC, option, len(data)) + data)
        got = []
        while True:
            magic, _, kind, length = struct.unpack(">QIII", self.receive(20))
            assert magic == REPLY_MAGIC, f"option {option} was answered with {magic:#x}"
            answer = self.receive(length)
            assert not kind & REP_ERROR, f"option {option} was refused: {kind:#x} {answer!r}"
            got.append((kind, answer))
            if kind == REP_ACK:
                return got

    def request(self, kind: int, offset: int, length: int, cookie: int = 0) -> bytes:
        """Returns the header of a request."""
        if self.extended:
            return struct.pack(">IHHQQQ", EXTENDED_MAGIC, 0, kind, cookie, offset, length)
        return struct.pack(">IHHQQI", REQUEST_MAGIC, 0, kind, cookie, offset, length)

    def receive(self, count: int) -> bytes:
        """Returns exactly `count` bytes."""
        parts = bytearray()
        while len(parts) < count:
            got = self.socket.recv(count - len(parts))
            if not got:
                raise ConnectionError(f"the server left after {len(parts)} of {count} bytes")
            parts += got
        return bytes(parts)


def connected(path: Path) -> socket.socket:
    """Returns a connection to a unix socket, before the handshake."""
    connection = socket.socket(socket.AF_UNIX)
    # It waits while the backlog is full. With a time limit it would fail at once.
    connection.connect(str(path))
    connection.settimeout(60)
    return connection
