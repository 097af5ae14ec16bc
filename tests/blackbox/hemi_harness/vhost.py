"""A virtual machine and its monitor: a guest's memory and queue, and a vhost-user front end.

It does what a guest's driver does, and keeps what a monitor keeps over a restart of hemi: memory,
queue and inflight region. Tests can write to all of these as a hostile guest would.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .sandbox import PATIENCE

GET_FEATURES, SET_FEATURES, SET_OWNER = 1, 2, 3
SET_MEM_TABLE, SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE = 5, 8, 9, 10
GET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL = 11, 12, 13
GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, GET_QUEUE_NUM = 15, 16, 17
SET_VRING_ENABLE, GET_CONFIG, GET_INFLIGHT_FD, SET_INFLIGHT_FD = 18, 24, 31, 32

EVENT_INDEX, INDIRECT, PROTOCOL, VERSION_1 = 1 << 29, 1 << 28, 1 << 30, 1 << 32
# MQ, REPLY_ACK, CONFIG, INFLIGHT_SHMFD.
PROTOCOL_FEATURES = 1 << 0 | 1 << 3 | 1 << 9 | 1 << 12
NEED_REPLY = 8

READ, WRITE, FLUSH, IDENTIFY, DISCARD, WRITE_ZEROES = 0, 1, 4, 8, 11, 13
OK, FAILED, UNSUPPORTED = 0, 1, 2

NEXT, WRITABLE, INDIRECT_TABLE = 1, 2, 4

MEMORY = 16 << 20
# The guest's address of its memory, and the monitor's.
GUEST = 0x4000_0000
MONITOR = 0x7F00_0000_0000
SIZE = 64
DESCRIPTORS, AVAILABLE, USED = 0x0000, 0x1000, 0x2000
# Each possible first descriptor of a request has a place for its header, table and payload.
HEADERS, TABLES, PAYLOAD = 0x4000, 0x10000, 0x100000
PAYLOAD_BYTES = 128 << 10


class HungUp(Exception):
    """hemi has ended the connection."""


@dataclass
class Request:
    """A request in flight."""

    head: int
    kind: int
    sector: int
    data: bytes
    length: int


class Machine:
    """A machine with one disk. It can `connect` each time hemi is started."""

    def __init__(self, path: Path, *, features: int = EVENT_INDEX | INDIRECT) -> None:
        self.path = path
        self.features = features | PROTOCOL | VERSION_1
        self.file = os.memfd_create("guest", os.MFD_CLOEXEC)
        os.ftruncate(self.file, MEMORY)
        self.memory = mmap.mmap(self.file, MEMORY)
        self.kick = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.call = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.inflight: tuple[int, bytes] | None = None
        self.available = 0
        self.seen = 0
        self.free = list(range(0, SIZE, 4))
        self.requests: dict[int, Request] = {}
        self.socket: socket.socket | None = None

    def close(self) -> None:
        self.disconnect()
        self.memory.close()
        for descriptor in (self.file, self.kick, self.call):
            os.close(descriptor)
        if self.inflight:
            os.close(self.inflight[0])

    # Methods of the monitor.

    def disconnect(self) -> None:
        if self.socket:
            self.socket.close()
            self.socket = None

    def dial(self) -> None:
        """Connects without sending a message."""
        self.disconnect()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(self.path))

    def say(self, code: int, body: bytes = b"", *files: int, ack: bool = True) -> None:
        """Sends a message. With `ack` it waits until hemi has processed it."""
        flags = 1 | (NEED_REPLY if ack else 0)
        self.send(struct.pack("<III", code, flags, len(body)), body, *files)
        if ack:
            answer = self.receive(code)
            assert struct.unpack("<Q", answer) == (0,), f"message {code} was refused"

    def ask(self, code: int, body: bytes = b"") -> bytes:
        self.send(struct.pack("<III", code, 1, len(body)), body)
        return self.receive(code)

    def send(self, header: bytes, body: bytes, *files: int) -> None:
        assert self.socket
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        with hung_up():
            self.socket.sendmsg([header, body], rights)

    def receive(self, code: int) -> bytes:
        assert self.socket
        with hung_up():
            header, rights, _, _ = self.socket.recvmsg(12, socket.CMSG_SPACE(4))
            while 0 < len(header) < 12:
                header += self.socket.recv(12 - len(header))
            if not header:
                raise HungUp
            got, _, length = struct.unpack("<III", header)
            assert got == code
            body = self.socket.recv(length, socket.MSG_WAITALL)
        for _, _, data in rights:
            self._received = struct.unpack("i", data[:4])[0]
        return body

    def negotiate(self) -> None:
        """Connects and negotiates everything up to the queue."""
        self.dial()
        (offered,) = struct.unpack("<Q", self.ask(GET_FEATURES))
        assert self.features & ~offered == 0
        (protocol,) = struct.unpack("<Q", self.ask(GET_PROTOCOL_FEATURES))
        assert PROTOCOL_FEATURES & ~protocol == 0
        self.say(SET_PROTOCOL_FEATURES, struct.pack("<Q", PROTOCOL_FEATURES), ack=False)
        self.say(SET_OWNER, ack=False)
        self.say(SET_FEATURES, struct.pack("<Q", self.features))

    def share_inflight(self) -> None:
        """Has hemi create the inflight region, or returns the one it created to it."""
        if self.inflight is None:
            body = self.ask(GET_INFLIGHT_FD, struct.pack("<QQHHI", 0, 0, 1, SIZE, 0))
            self.inflight = (self._received, body)
        file, body = self.inflight
        self.say(SET_INFLIGHT_FD, body, file)

    def share_memory(self) -> None:
        table = struct.pack("<II", 1, 0) + struct.pack("<QQQQ", GUEST, MEMORY, MONITOR, 0)
        self.say(SET_MEM_TABLE, table, self.file)

    def start_queue(self, *, descriptors: int = DESCRIPTORS, size: int = SIZE) -> None:
        base = struct.unpack_from("<H", self.memory, USED + 2)[0]
        self.say(SET_VRING_NUM, struct.pack("<II", 0, size))
        self.say(SET_VRING_BASE, struct.pack("<II", 0, base))
        address = [MONITOR + descriptors, MONITOR + USED, MONITOR + AVAILABLE, 0]
        self.say(SET_VRING_ADDR, struct.pack("<IIQQQQ", 0, 0, *address))
        self.say(SET_VRING_CALL, struct.pack("<Q", 0), self.call)
        self.say(SET_VRING_KICK, struct.pack("<Q", 0), self.kick)
        self.say(SET_VRING_ENABLE, struct.pack("<II", 0, 1))

    def connect(self, *, inflight: bool = True) -> None:
        """Does everything that a monitor does before its guest's requests start."""
        self.negotiate()
        if inflight:
            self.share_inflight()
        self.share_memory()
        self.start_queue()

    def reconnect(self) -> None:
        """Connects as soon as hemi listens."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return self.connect()
            except (OSError, HungUp):
                assert time.monotonic() < until, "hemi does not take the machine back"
                time.sleep(0.05)

    def stop_queue(self) -> int:
        """Waits until hemi has returned all requests. Returns the queue's next entry."""
        answer = self.ask(GET_VRING_BASE, struct.pack("<II", 0, 0))
        return int(struct.unpack("<II", answer)[1])

    def configuration(self) -> bytes:
        body = struct.pack("<III", 0, 60, 0) + bytes(60)
        return self.ask(GET_CONFIG, body)[12:]

    def hangs_up(self) -> None:
        """Waits until hemi has ended the connection."""
        assert self.socket
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(4096):
                pass

    # Methods of the guest.

    def put(self, at: int, form: str, *values: int) -> None:
        # In one piece: `pack_into` would clear the place first, and hemi may look just then.
        data = struct.pack("<" + form, *values)
        self.memory[at : at + len(data)] = data

    def get(self, at: int, form: str) -> tuple[int, ...]:
        return struct.unpack_from("<" + form, self.memory, at)

    def descriptor(self, index: int, address: int, length: int, flags: int, following: int) -> None:
        self.put(DESCRIPTORS + 16 * index, "QIHH", address, length, flags, following)

    def offer(self, head: int) -> None:
        """Puts a chain into the available ring, and kicks hemi if it asked for that."""
        self.put(AVAILABLE + 4 + 2 * (self.available % SIZE), "H", head)
        before, self.available = self.available, (self.available + 1) & 0xFFFF
        self.put(AVAILABLE + 2, "H", self.available)
        event = self.get(USED + 4 + 8 * SIZE, "H")[0]
        wanted = (self.available - event - 1) & 0xFFFF < (self.available - before) & 0xFFFF
        if wanted or not self.features & EVENT_INDEX:
            os.eventfd_write(self.kick, 1)

    def submit(self, kind: int, sector: int, data: bytes = b"", length: int = 0) -> Request:
        """Offers a request with `data` for hemi, or room for `length` bytes of its answer.

        Payload is split into uneven segments."""
        head = self.free.pop()
        request = Request(head, kind, sector, data, length)
        header, payload = HEADERS + 64 * head, PAYLOAD + PAYLOAD_BYTES * (head // 4)
        self.put(header, "IIQ", kind, 0, sector)
        self.memory[header + 16] = 0xFF
        self.memory[payload : payload + len(data)] = data
        segments = [(header, 16, 0)]
        total, flags = (len(data), 0) if data else (length, WRITABLE)
        cuts = sorted({0, min(total, 512), min(total, 5000), total})
        pieces = itertools.pairwise(cuts)
        segments += [(payload + a, b - a, flags) for a, b in pieces]
        segments.append((header + 16, 1, WRITABLE))
        if len(segments) <= 4 and head % 8:
            table, first = DESCRIPTORS, head
        elif self.features & INDIRECT:
            table, first = TABLES + 256 * head, 0
            self.descriptor(head, GUEST + table, 16 * len(segments), INDIRECT_TABLE, 0)
        else:
            segments = [segments[0], (payload, total, flags), segments[-1]]
            segments = [s for s in segments if s[1]]
            table, first = DESCRIPTORS, head
        for index, (address, size, flags) in enumerate(segments):
            last = index == len(segments) - 1
            at, following = table + 16 * (first + index), 0 if last else first + index + 1
            self.put(at, "QIHH", GUEST + address, size, flags | (0 if last else NEXT), following)
        self.requests[head] = request
        self.offer(head)
        return request

    def answers(self) -> Iterator[tuple[Request, int, bytes]]:
        """Yields the requests returned since the last call: request, status, payload."""
        while self.seen != self.get(USED + 2, "H")[0]:
            head, written = self.get(USED + 4 + 8 * (self.seen % SIZE), "II")
            self.seen = (self.seen + 1) & 0xFFFF
            self.put(AVAILABLE + 4 + 2 * SIZE, "H", self.seen)
            # A request that was returned twice is missing here.
            request = self.requests.pop(head)
            self.free.append(head)
            payload = PAYLOAD + PAYLOAD_BYTES * (head // 4)
            status = self.memory[HEADERS + 64 * head + 16]
            assert written == 1 + (request.length if status == OK else 0)
            yield request, status, self.memory[payload : payload + request.length]

    def wait(self, timeout: float = PATIENCE) -> None:
        """Waits for a call."""
        if self.seen != self.get(USED + 2, "H")[0]:
            return
        ready, _, _ = select.select([self.call], [], [], timeout)
        assert ready, f"no call in {timeout} s, {len(self.requests)} requests in flight"
        os.eventfd_read(self.call)

    def do(self, kind: int, sector: int, data: bytes = b"", length: int = 0) -> tuple[int, bytes]:
        """Does one request. Returns its status and payload."""
        wanted = self.submit(kind, sector, data, length)
        while True:
            self.wait()
            for request, status, payload in self.answers():
                if request is wanted:
                    return status, payload


@contextlib.contextmanager
def hung_up() -> Iterator[None]:
    try:
        yield
    except (BrokenPipeError, ConnectionResetError) as error:
        raise HungUp from error
