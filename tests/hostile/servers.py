"""Remote legs whose server misbehaves.

The server is an honest NBD server on a file, in a process of its own. On command it breaks the
protocol, in one way at a time.

By hand: `servers.py SOCKET CONTROL IMAGE STYLE`, then a line to the control socket.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hemi_harness import Sandbox, wait_until
from hemi_harness.sandbox import PATIENCE, answers
from wire import (
    EXTENDED_MAGIC,
    FLUSH,
    OPT_EXTENDED,
    OPT_GO,
    OPT_STRUCTURED,
    OPTION_MAGIC,
    READ,
    REP_ACK,
    REP_ERROR,
    REPLY_MAGIC,
    REQUEST_MAGIC,
    TRIM,
    WRITE,
    WRITE_ZEROES,
)

NBDMAGIC, OLDSTYLE = b"NBDMAGIC", struct.pack(">Q", 0x420281861253)
SIMPLE_MAGIC, STRUCTURED_MAGIC, EXTENDED_REPLY_MAGIC = 0x67446698, 0x668E33EF, 0x6E8A278C
DISCONNECT = 2
OPT_ABORT = 2
REP_INFO = 3
ERR_UNSUP = REP_ERROR + 1
INFO_EXPORT, INFO_BLOCK_SIZE = 0, 3
HAS_FLAGS, READ_ONLY, SEND_FLUSH, SEND_FUA, SEND_TRIM, SEND_ZEROES = 1, 2, 4, 8, 32, 64
FLAGS = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_ZEROES
CHUNK_NONE, CHUNK_DATA, CHUNK_HOLE, CHUNK_STATUS, CHUNK_ERROR = 0, 1, 2, 5, 0x8001
EIO, EINVAL, ENOSPC, ENOTSUP, ESHUTDOWN = 5, 22, 28, 95, 108
SIMPLE, STRUCTURED, EXTENDED = "simple", "structured", "extended"
NOT_IN_FLIGHT = "which is not in flight"
# Time in seconds for which a server that gathers requests waits for another one.
GATHER = 0.003


@dataclass(frozen=True)
class Request:
    """A request with its payload."""

    kind: int
    cookie: int
    offset: int
    length: int
    data: bytes


@dataclass(frozen=True)
class Outcome:
    """The answer of an honest server."""

    error: int
    data: bytes


Answer = Callable[["Connection", Request, Outcome], None]


@dataclass(frozen=True)
class Behaviour:
    """A way to misbehave. Fields that are `None` are done honestly."""

    # Text in hemi's log while the server misbehaves.
    says: str = ""
    style: str = STRUCTURED
    # True if the protocol allows it, so that the session must last.
    allowed: bool = False
    # True if the session lasts but the leg fails requests.
    fails: bool = False
    # True if it sends nothing more, so that only time or the end of the connection reveals it.
    silent: bool = False
    # True if it begins with the next handshake, and keeps the leg away.
    handshake: bool = False
    greet: Callable[[Connection], None] | None = None
    option: Callable[[Connection, int], bool] | None = None
    size: Callable[[int], int] = lambda size: size
    flags: int = FLAGS
    minimum_block: int = 1
    begun: Callable[[Connection], None] | None = None
    answer: Answer | None = None
    # Answers all requests that came together.
    together: Callable[[Connection, list[tuple[Request, Outcome]]], None] | None = None
    kinds: tuple[int, ...] = ()


BEHAVIOURS: dict[str, Behaviour] = {}


def handshake(name: str, says: str, **what: object) -> None:
    """Registers a way to misbehave in the handshake."""
    BEHAVIOURS[name] = Behaviour(says=says, handshake=True, **what)  # type: ignore[arg-type]


def answering(says: str = "", **what: object) -> Callable[[Answer], Answer]:
    """Registers a way to answer single requests, named after the function."""

    def register(function: Answer) -> Answer:
        name = function.__name__.replace("_", "-")
        BEHAVIOURS[name] = Behaviour(says=says, answer=function, **what)  # type: ignore[arg-type]
        return function

    return register


class Server:
    """Listens, and follows commands."""

    def __init__(self, path: Path, image: Path, style: str) -> None:
        self.image = os.open(image, os.O_RDWR)
        self.size = image.stat().st_size
        self.style = style
        self.lock = threading.Lock()
        self.behaviour = Behaviour()
        self.hits = 0
        self.swallowed = False
        self.connections: list[Connection] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)

    def serve(self) -> None:
        """Accepts connections until the process ends."""
        while True:
            connection = Connection(self, self._listener.accept()[0])
            threading.Thread(target=connection.run, daemon=True).start()

    def hit(self) -> None:
        """Counts an act of misbehaviour."""
        with self.lock:
            self.hits += 1

    def misbehave(self, name: str) -> None:
        """Switches a behaviour on."""
        with self.lock:
            self.behaviour = BEHAVIOURS[name]
            self.hits = 0
            self.swallowed = False
            if self.behaviour.handshake:
                self._drop()

    def behave(self, drops: bool) -> None:
        """Behaves honestly from now on. Closes connections that hang if `drops`."""
        with self.lock:
            self.behaviour = Behaviour()
            if drops:
                self._drop()

    def _drop(self) -> None:
        for connection in self.connections:
            connection.close()

    def alone(self, connection: Connection) -> None:
        """Lets no write of earlier connections land from now on."""
        with self.lock:
            for other in self.connections:
                other.fenced = other is not connection


class Connection:
    """One client."""

    def __init__(self, server: Server, connected: socket.socket) -> None:
        self.server = server
        self.socket = connected
        self.style = SIMPLE
        self.fenced = False
        self.requests = 0
        with server.lock:
            server.connections.append(self)

    def run(self) -> None:
        """Serves until the client leaves."""
        try:
            if self._shake():
                self.server.alone(self)
                while self._answer_some():
                    pass
        except (OSError, EOFError):
            pass
        finally:
            with self.server.lock:
                self.server.connections.remove(self)
            self.socket.close()

    def close(self) -> None:
        """Ends the connection, also for threads that wait for it."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def leave(self) -> None:
        """Ends the connection from within an answer."""
        raise EOFError

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, count: int) -> bytes:
        """Returns exactly `count` bytes."""
        parts = bytearray()
        while len(parts) < count:
            got = self.socket.recv(count - len(parts))
            if not got:
                raise EOFError
            parts += got
        return bytes(parts)

    # The handshake.

    def _shake(self) -> bool:
        behaviour = self.server.behaviour
        if behaviour.greet:
            self.server.hit()
            behaviour.greet(self)
        else:
            self.greet()
        self.receive(4)
        while True:
            magic, option, length = struct.unpack(">QII", self.receive(16))
            if magic != OPTION_MAGIC:
                return False
            self.receive(length)
            if behaviour.option:
                self.server.hit()
            if behaviour.option and behaviour.option(self, option):
                continue
            if option == OPT_GO:
                self._go(behaviour)
                return True
            if (option, self.server.style) in (
                (OPT_EXTENDED, EXTENDED),
                (OPT_STRUCTURED, STRUCTURED),
            ):
                self.style = self.server.style
                self.option_reply(option, REP_ACK)
            elif option == OPT_ABORT:
                self.option_reply(option, REP_ACK)
                return False
            else:
                self.option_reply(option, ERR_UNSUP)

    def greet(self) -> None:
        self.send(NBDMAGIC + struct.pack(">QH", OPTION_MAGIC, 3))

    def option_reply(self, option: int, kind: int, data: bytes = b"") -> None:
        self.send(struct.pack(">QIII", REPLY_MAGIC, option, kind, len(data)) + data)

    def _go(self, behaviour: Behaviour) -> None:
        size = behaviour.size(self.server.size)
        self.option_reply(OPT_GO, REP_INFO, struct.pack(">HQH", INFO_EXPORT, size, behaviour.flags))
        blocks = struct.pack(">HIII", INFO_BLOCK_SIZE, behaviour.minimum_block, 65536, 32 << 20)
        self.option_reply(OPT_GO, REP_INFO, blocks)
        if behaviour.handshake:
            self.server.hit()
        self.option_reply(OPT_GO, REP_ACK)
        if behaviour.begun:
            behaviour.begun(self)

    # Requests.

    def _answer_some(self) -> bool:
        request = self._request()
        if not request:
            return False
        behaviour = self.server.behaviour
        answers = [(request, self._carry_out(request))]
        if behaviour.together:
            while select.select([self.socket], [], [], GATHER)[0]:
                request = self._request()
                if not request:
                    return False
                answers.append((request, self._carry_out(request)))
            if len(answers) > 1:
                self.server.hit()
            behaviour.together(self, answers)
            return True
        self.requests += 1
        request, outcome = answers[0]
        if behaviour.answer and (not behaviour.kinds or request.kind in behaviour.kinds):
            self.server.hit()
            behaviour.answer(self, request, outcome)
        else:
            self.reply(request, outcome)
        return True

    def _request(self) -> Request | None:
        if self.style == EXTENDED:
            header = struct.unpack(">IHHQQQ", self.receive(32))
        else:
            header = struct.unpack(">IHHQQI", self.receive(28))
        magic, _, kind, cookie, offset, length = header
        if kind == DISCONNECT or magic not in (REQUEST_MAGIC, EXTENDED_MAGIC):
            return None
        data = self.receive(length) if kind == WRITE else b""
        return Request(kind, cookie, offset, length, data)

    def _carry_out(self, request: Request) -> Outcome:
        with self.server.lock:
            if self.fenced:
                raise EOFError
            image, end = self.server.image, request.offset + request.length
            if end > self.server.size:
                return Outcome(ENOSPC if request.kind == WRITE else EINVAL, b"")
            if request.kind == READ:
                return Outcome(0, os.pread(image, request.length, request.offset))
            if request.kind == WRITE:
                os.pwrite(image, request.data, request.offset)
            elif request.kind in (TRIM, WRITE_ZEROES):
                os.pwrite(image, bytes(request.length), request.offset)
            elif request.kind != FLUSH:
                return Outcome(EINVAL, b"")
            return Outcome(0, b"")

    # Replies.

    def reply(self, request: Request, outcome: Outcome) -> None:
        """Answers honestly."""
        self.send(self.honest(request, outcome))

    def honest(self, request: Request, outcome: Outcome) -> bytes:
        if outcome.error:
            return self.error(request, outcome.error)
        if request.kind == READ and self.style != SIMPLE:
            return self.data(request, request.offset, outcome.data, done=True)
        return self.success(request) + outcome.data

    def success(self, request: Request) -> bytes:
        if self.style == EXTENDED:
            return self.chunk(request, CHUNK_NONE, b"", done=True)
        return struct.pack(">IIQ", SIMPLE_MAGIC, 0, request.cookie)

    def error(self, request: Request, error: int, message: bytes = b"") -> bytes:
        if self.style == SIMPLE:
            return struct.pack(">IIQ", SIMPLE_MAGIC, error, request.cookie)
        payload = struct.pack(">IH", error, len(message)) + message
        return self.chunk(request, CHUNK_ERROR, payload, done=True)

    def data(self, request: Request, offset: int, data: bytes, *, done: bool = False) -> bytes:
        return self.chunk(request, CHUNK_DATA, struct.pack(">Q", offset) + data, done=done)

    def hole(self, request: Request, offset: int, length: int, *, done: bool = False) -> bytes:
        return self.chunk(request, CHUNK_HOLE, struct.pack(">QI", offset, length), done=done)

    def chunk(
        self,
        request: Request,
        kind: int,
        payload: bytes,
        *,
        done: bool = False,
        length: int | None = None,
        offset: int | None = None,
    ) -> bytes:
        """Returns a chunk, whose header may state a wrong length or offset."""
        stated = len(payload) if length is None else length
        if self.style == EXTENDED:
            at = request.offset if offset is None else offset
            header = struct.pack(
                ">IHHQQQ", EXTENDED_REPLY_MAGIC, done, kind, request.cookie, at, stated
            )
        else:
            header = struct.pack(">IHHQI", STRUCTURED_MAGIC, done, kind, request.cookie, stated)
        return header + payload


# Misbehaviour in the handshake.


def greets_with(magic: bytes, style: bytes) -> Callable[[Connection], None]:
    """Returns a function that sends this greeting."""
    return lambda connection: connection.send(magic + style + b"\0\3")


def says_nothing(connection: Connection) -> None:
    """Waits until the client leaves."""
    while connection.receive(1):
        pass


def resets(connection: Connection) -> None:
    """Closes with the client's bytes unread."""
    connection.greet()
    select.select([connection.socket], [], [], 5)
    connection.leave()


def greets_and_falls_silent(connection: Connection) -> None:
    connection.greet()
    says_nothing(connection)


def informs_slowly_without_end(connection: Connection, option: int) -> bool:
    """Sends a byte now and then, so that something always moves."""
    for byte in struct.pack(">QIIIH", REPLY_MAGIC, option, REP_INFO, 60000, 999) + bytes(60000):
        connection.send(bytes([byte]))
        time.sleep(0.2)
    return True


def sends_garbage(connection: Connection) -> None:
    connection.send(b"\x1b[2J\0garbage!" * 200)


def informs_without_end(connection: Connection, option: int) -> bool:
    """Sends information of an unknown type until the client leaves."""
    if option != OPT_GO:
        return False
    while True:
        connection.option_reply(option, REP_INFO, struct.pack(">H", 999) + b"and so on")


def answers_hugely(connection: Connection, option: int) -> bool:
    """States a reply of 4 GiB, and sends it until the client leaves."""
    connection.send(struct.pack(">QIII", REPLY_MAGIC, option, ERR_UNSUP, 0xFFFFFFFF))
    while True:
        connection.send(bytes(65536))


def answers_another_option(connection: Connection, option: int) -> bool:
    connection.option_reply(option + 1000, REP_ACK)
    return True


def answers_without_magic(connection: Connection, option: int) -> bool:
    connection.send(struct.pack(">QIII", 1, option, REP_ACK, 0))
    return True


def accepts_without_a_size(connection: Connection, option: int) -> bool:
    if option != OPT_GO:
        return False
    connection.option_reply(option, REP_ACK)
    return True


def refuses_with_control_characters(connection: Connection, option: int) -> bool:
    if option != OPT_GO:
        return False
    connection.option_reply(option, REP_ERROR + 2, b"\x1b[2J\r\n" * 500)
    return True


handshake("wrong-greeting", "not an NBD server", greet=greets_with(b"GREETING", b"IHAVEOPT"))
handshake("oldstyle", "oldstyle", greet=greets_with(NBDMAGIC, OLDSTYLE))
handshake("silent-greeting", "did not answer for 10 s", greet=says_nothing, silent=True)
handshake(
    "silent-after-greeting", "did not answer for 10 s", greet=greets_and_falls_silent, silent=True
)
handshake(
    "endless-trickle", "did not answer for 10 s", option=informs_slowly_without_end, silent=True
)
handshake("reset-at-handshake", "the connection", greet=resets)
handshake("endless-option-replies", "more than 1024 replies", option=informs_without_end)
handshake("huge-option-reply", "option reply of 4294967295 bytes", option=answers_hugely)
handshake("answer-to-another-option", "answers option", option=answers_another_option)
handshake("option-reply-without-magic", "option reply begins", option=answers_without_magic)
handshake("no-size", "without stating its size", option=accepts_without_a_size)
handshake("refusal-in-control-characters", "refuses", option=refuses_with_control_characters)
handshake("smaller-export", "are needed", size=lambda size: size - 4096)
handshake("no-bytes", "are needed", size=lambda _: 0)
handshake("impossible-size", "2^63 - 1", size=lambda _: (1 << 64) - 1)
handshake("read-only", "read-only", flags=FLAGS | READ_ONLY)
handshake("no-flush", "offers no flush", flags=FLAGS & ~SEND_FLUSH)
handshake("impossible-block", "impossible block sizes", minimum_block=3)
handshake("large-block", "minimum block is 65536", minimum_block=65536)
handshake("garbage-after-handshake", "a reply begins with", begun=sends_garbage)
# These are allowed, and the leg comes back.
BEHAVIOURS["larger-export"] = Behaviour(
    says="the session is back", size=lambda size: size + 4096, handshake=True, allowed=True
)
BEHAVIOURS["fewer-features"] = Behaviour(
    says="the session is back", flags=HAS_FLAGS | SEND_FLUSH, handshake=True, allowed=True
)


# Misbehaviour in headers of replies.


@answering("a reply begins with")
def wrong_magic(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(b"\xff" * 4 + connection.honest(request, outcome)[4:])


@answering("a reply begins with", style=EXTENDED)
def structured_reply_to_extended(
    connection: Connection, request: Request, outcome: Outcome
) -> None:
    connection.send(struct.pack(">IHHQI", STRUCTURED_MAGIC, 1, 0, request.cookie, 0) + bytes(64))


@answering("a reply begins with", style=SIMPLE)
def structured_reply_to_simple(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(struct.pack(">IHHQI", STRUCTURED_MAGIC, 1, 0, request.cookie, 0))


def _unknown_cookie(connection: Connection, request: Request, outcome: Outcome) -> None:
    other = Request(
        request.kind, request.cookie ^ 1 << 63, request.offset, request.length, request.data
    )
    connection.reply(other, outcome)


for style in (SIMPLE, STRUCTURED, EXTENDED):
    BEHAVIOURS[f"unknown-cookie-{style}"] = Behaviour(
        says=NOT_IN_FLIGHT, style=style, answer=_unknown_cookie
    )


@answering(NOT_IN_FLIGHT)
def reply_twice(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.honest(request, outcome) * 2)


@answering("repeats offset", style=EXTENDED)
def wrong_offset_in_header(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.chunk(request, CHUNK_NONE, b"", offset=request.offset + 4096))


@answering("the session is lost")
def close_in_a_header(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.honest(request, outcome)[:7])
    connection.leave()


@answering("the session is lost")
def close_after_each_third_request(
    connection: Connection, request: Request, outcome: Outcome
) -> None:
    connection.reply(request, outcome)
    if connection.requests % 3 == 0:
        connection.leave()


@answering("answered with chunk type", kinds=(WRITE, FLUSH, WRITE_ZEROES))
def data_for_a_write(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.data(request, request.offset, bytes(4096), done=True))


def _swallow(connection: Connection, request: Request, outcome: Outcome) -> None:
    if connection.server.swallowed:
        connection.reply(request, outcome)
    connection.server.swallowed = True


for kind, word in ((READ, "read"), (WRITE, "write"), (FLUSH, "flush")):
    BEHAVIOURS[f"swallowed-{word}"] = Behaviour(
        says="did not answer a request", silent=True, answer=_swallow, kinds=(kind,)
    )


# Misbehaviour in data of reads.


@answering("the session is lost", kinds=(READ,))
def truncated_read(connection: Connection, request: Request, outcome: Outcome) -> None:
    reply = connection.honest(request, outcome)
    connection.send(reply[: -len(outcome.data) // 2])
    connection.leave()


@answering("the session is lost", kinds=(READ,), style=SIMPLE)
def truncated_simple_read(connection: Connection, request: Request, outcome: Outcome) -> None:
    truncated_read(connection, request, outcome)


@answering("outside the request", kinds=(READ,))
def more_data_than_asked(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.data(request, request.offset, outcome.data + bytes(4096), done=True))


@answering("a reply begins with", kinds=(READ,), style=SIMPLE)
def more_simple_data_than_asked(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.honest(request, outcome) + bytes(4096))


@answering("outside the request", kinds=(READ,))
def data_before_the_range(connection: Connection, request: Request, outcome: Outcome) -> None:
    before = (request.offset - 512) % (1 << 64)
    connection.send(connection.data(request, before, outcome.data, done=True))


@answering("outside the request", kinds=(READ,), style=EXTENDED)
def data_after_the_range(connection: Connection, request: Request, outcome: Outcome) -> None:
    after = request.offset + request.length
    connection.send(connection.data(request, after, outcome.data, done=True))


@answering("outside the request", kinds=(READ,))
def data_at_the_end_of_the_world(
    connection: Connection, request: Request, outcome: Outcome
) -> None:
    connection.send(connection.data(request, (1 << 64) - 512, outcome.data, done=True))


@answering("cover the byte", kinds=(READ,))
def overlapping_chunks(connection: Connection, request: Request, outcome: Outcome) -> None:
    first = outcome.data[: request.length // 2 + 1]
    connection.send(connection.data(request, request.offset, first))
    rest = outcome.data[request.length // 2 :]
    connection.send(connection.data(request, request.offset + request.length // 2, rest, done=True))


@answering("ends well after", kinds=(READ,))
def gap_between_chunks(connection: Connection, request: Request, outcome: Outcome) -> None:
    third = request.length // 3
    connection.send(connection.data(request, request.offset, outcome.data[:third]))
    rest = outcome.data[2 * third :]
    connection.send(connection.data(request, request.offset + 2 * third, rest, done=True))


@answering("ends well after 0 bytes", kinds=(READ,))
def done_without_data(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.chunk(request, CHUNK_NONE, b"", done=True))


@answering("ends well after 0 bytes", kinds=(READ,), style=EXTENDED)
def done_without_data_extended(connection: Connection, request: Request, outcome: Outcome) -> None:
    done_without_data(connection, request, outcome)


@answering("separate pieces", kinds=(READ,))
def crumbs(connection: Connection, request: Request, outcome: Outcome) -> None:
    """Sends every other piece of a read, in many chunks."""
    for at in range(0, request.length, 128):
        piece = outcome.data[at : at + 64]
        connection.send(connection.data(request, request.offset + at, piece))


@answering("outside the request", kinds=(READ,))
def hole_too_long(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.hole(request, request.offset, request.length + 4096, done=True))


@answering("a chunk of type 0x0002 has 0 bytes", kinds=(READ,))
def hole_of_nothing(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.hole(request, request.offset, 0, done=True))


@answering("a chunk of type 0x0002 has 16 bytes", kinds=(READ,))
def hole_of_another_shape(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.chunk(request, CHUNK_HOLE, bytes(16), done=True))


@answering("answered with chunk type 0x0063")
def unknown_chunk(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.chunk(request, 99, bytes(16)))


@answering("answered with chunk type 0x0005", kinds=(READ,))
def block_status_for_a_read(connection: Connection, request: Request, outcome: Outcome) -> None:
    payload = struct.pack(">III", 1, request.length, 0)
    connection.send(connection.chunk(request, CHUNK_STATUS, payload, done=True))


@answering("answered with chunk type 0x0000", kinds=(READ,))
def simple_reply_to_a_read(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(struct.pack(">IIQ", SIMPLE_MAGIC, 0, request.cookie) + outcome.data)


@answering("outside the request", kinds=(READ,))
def chunk_of_2_gib(connection: Connection, request: Request, outcome: Outcome) -> None:
    payload = struct.pack(">Q", request.offset) + outcome.data
    connection.send(connection.chunk(request, CHUNK_DATA, payload, length=1 << 31))


@answering("outside the request", kinds=(READ,), style=EXTENDED)
def chunk_of_2_to_the_63(connection: Connection, request: Request, outcome: Outcome) -> None:
    payload = struct.pack(">Q", request.offset) + outcome.data
    connection.send(connection.chunk(request, CHUNK_DATA, payload, length=1 << 63))


@answering("0x0000 has 0 bytes")
def nothing_and_not_done(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.chunk(request, CHUNK_NONE, b""))


# Errors.


def _failing(error: int) -> Answer:
    return lambda connection, request, outcome: connection.send(connection.error(request, error))


for kind, word in ((READ, "read"), (WRITE, "write"), (FLUSH, "flush"), (WRITE_ZEROES, "zeroes")):
    for style in (SIMPLE, STRUCTURED) if kind == READ else (STRUCTURED,):
        BEHAVIOURS[f"eio-on-each-{word}{'-simple' if style == SIMPLE else ''}"] = Behaviour(
            answer=_failing(EIO), kinds=(kind,), style=style, fails=True
        )
for error, word in (
    (9999, "unknown-error"),
    (0xFFFFFFFF, "largest-error"),
    (ENOSPC, "no-space"),
    (ENOTSUP, "not-supported"),
):
    BEHAVIOURS[f"{word}-on-each-request"] = Behaviour(answer=_failing(error), fails=True)


@answering(fails=True)
def error_in_control_characters(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.error(request, EIO, b"\x1b[2J\xff\r\n\0" * 500))


@answering("a chunk of type 0x8001 has")
def error_with_a_huge_message(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.error(request, EIO, b"x" * 65535))


@answering("a chunk of type 0x8001 has 4294967295 bytes")
def error_chunk_of_4_gib(connection: Connection, request: Request, outcome: Outcome) -> None:
    payload = struct.pack(">IH", EIO, 4)
    connection.send(connection.chunk(request, CHUNK_ERROR, payload, length=0xFFFFFFFF))


@answering("a chunk of type 0x8001 has")
def error_message_longer_than_its_chunk(
    connection: Connection, request: Request, outcome: Outcome
) -> None:
    payload = struct.pack(">IH", EIO, 4000) + bytes(10)
    connection.send(connection.chunk(request, CHUNK_ERROR, payload, done=True))


@answering("states error value 0")
def error_that_is_none(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.error(request, 0, b"all is well"))


@answering(fails=True, kinds=(READ,))
def error_after_the_data(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.data(request, request.offset, bytes(request.length)))
    connection.send(connection.error(request, EIO))


@answering("the server is shutting down")
def shutting_down(connection: Connection, request: Request, outcome: Outcome) -> None:
    connection.send(connection.error(request, ESHUTDOWN))
    if connection.requests % 5 == 0:
        connection.leave()


# Behaviour that the protocol allows.


@answering(allowed=True)
def byte_by_byte(connection: Connection, request: Request, outcome: Outcome) -> None:
    reply = connection.honest(request, outcome)
    for byte in reply[:100]:
        connection.send(bytes([byte]))
    for at in range(100, len(reply), 777):
        connection.send(reply[at : at + 777])


@answering(allowed=True, kinds=(READ,))
def chunks_from_the_end(connection: Connection, request: Request, outcome: Outcome) -> None:
    """Sends a read's data in four chunks, the last first, then the end of the reply alone."""
    for at, piece in reversed(quarters(outcome.data)):
        connection.send(connection.data(request, request.offset + at, piece))
    connection.send(connection.chunk(request, CHUNK_NONE, b"", done=True))


def _reversed(connection: Connection, answers: list[tuple[Request, Outcome]]) -> None:
    for request, outcome in reversed(answers):
        connection.reply(request, outcome)


def _interleaved(connection: Connection, answers: list[tuple[Request, Outcome]]) -> None:
    """Sends the chunks of all reads in turn. Zeros are sent as holes."""
    for turn in range(4):
        for request, outcome in reversed(answers):
            if request.kind != READ or outcome.error:
                continue
            at, piece = quarters(outcome.data)[turn ^ 1]
            at += request.offset
            done = turn == 3
            if any(piece):
                connection.send(connection.data(request, at, piece, done=done))
            else:
                connection.send(connection.hole(request, at, len(piece), done=done))
    for request, outcome in answers:
        if request.kind != READ or outcome.error:
            connection.reply(request, outcome)


def quarters(data: bytes) -> list[tuple[int, bytes]]:
    """Returns four pieces with their offsets."""
    part = len(data) // 4
    return [(at, data[at : at + part]) for at in range(0, 3 * part, part)] + [
        (3 * part, data[3 * part :])
    ]


for style in (SIMPLE, STRUCTURED, EXTENDED):
    BEHAVIOURS[f"replies-in-reverse-{style}"] = Behaviour(
        style=style, allowed=True, together=_reversed
    )
for style in (STRUCTURED, EXTENDED):
    BEHAVIOURS[f"interleaved-chunks-{style}"] = Behaviour(
        style=style, allowed=True, together=_interleaved
    )


class HostileServer:
    """A server in a process of its own, on a sparse file."""

    def __init__(self, sandbox: Sandbox, size: int, style: str) -> None:
        self.image = sandbox.file("remote.img", size)
        self.socket = sandbox.path("remote.sock")
        self._control = sandbox.path("remote.ctl")
        argv = (sys.executable, __file__, self.socket, self._control, self.image, style)
        path = {"PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = sandbox.start(*argv, name="remote", env=path)

        def ready() -> bool:
            self.process.check_running()
            return answers(self._control)

        wait_until("the server listens", ready)

    @property
    def uri(self) -> str:
        return f"nbd+unix:///?socket={self.socket}"

    def misbehave(self, name: str) -> None:
        self._command(f"misbehave {name}")

    def behave(self, *, drops: bool = False) -> None:
        """Behaves honestly from now on. Closes connections that hang if `drops`."""
        self._command("behave" if not drops else "behave drops")

    def hits(self) -> int:
        """Returns the number of misbehaved acts since the command."""
        return int(self._command("hits"))

    def _command(self, line: str) -> str:
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(PATIENCE)
            control.connect(str(self._control))
            control.sendall(line.encode() + b"\n")
            return control.makefile().readline()


def obey(server: Server, path: Path) -> None:
    """Follows the commands on the control socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(8)
    while True:
        control = listener.accept()[0]
        with control, control.makefile() as lines:
            command, _, argument = lines.readline().strip().partition(" ")
            if command == "misbehave":
                server.misbehave(argument)
            elif command == "behave":
                server.behave(argument == "drops")
            if command:
                control.sendall(f"{server.hits}\n".encode())


def main() -> None:
    path, control, image = (Path(argument) for argument in sys.argv[1:4])
    server = Server(path, image, sys.argv[4])
    threading.Thread(target=server.serve, daemon=True).start()
    obey(server, control)


if __name__ == "__main__":
    main()
