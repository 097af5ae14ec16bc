"""libnbd's client with a limit on every wait.

libnbd's synchronous calls wait forever, so a test of freezes needs the asynchronous ones.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from typing import Any

import nbd

from .sandbox import PATIENCE

TIMEOUT = PATIENCE


class NbdError(AssertionError):
    """A request the server answered with an error, or a connection that ended."""

    def __init__(self, what: str, code: int) -> None:
        name = errno.errorcode.get(code, str(code)) if code else "no errno"
        super().__init__(f"{what}: {name}")
        self.errno = code


# Buffers by length. libnbd 1.14 never frees a buffer that was read into asynchronously, so a test
# that reads a volume some thousand times would fill the memory.
_IDLE_BUFFERS: dict[int, list[Any]] = {}


class Client:
    """One connection. Requests wait at most `timeout` seconds."""

    def __init__(
        self,
        uri: str,
        *,
        contexts: Sequence[str] = (),
        strict: bool = False,
        timeout: float = TIMEOUT,
        setup: Callable[[Any], None] | None = None,
    ) -> None:
        self.timeout = timeout
        self.handle: Any = nbd.NBD()
        if not strict:
            # Let malformed requests reach the server, whose answer is under test.
            self.handle.set_strict_mode(0)
        self.handle.set_uri_allow_tls(nbd.TLS_ALLOW)
        self.handle.set_uri_allow_local_file(True)
        for context in contexts:
            self.handle.add_meta_context(context)
        if setup:
            setup(self.handle)
        try:
            self.handle.aio_connect_uri(uri)
            self._until(self._connected, "connect")
        except nbd.Error as error:
            raise NbdError(f"connect to {uri}: {error.string}", error.errnum or 0) from error
        if self.handle.aio_is_dead() or self.handle.aio_is_closed():
            raise NbdError(f"connect to {uri}: refused", 0)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops the connection without NBD_CMD_DISC."""
        # libnbd's Python handle closes when its last reference goes.
        self.handle = None

    def disconnect(self) -> None:
        """Sends NBD_CMD_DISC and waits for the server to hang up."""
        self.handle.aio_disconnect(0)
        self._until(lambda: self.handle.aio_is_dead() or self.handle.aio_is_closed(), "hang up")

    def _connected(self) -> bool:
        if self.handle.aio_is_connecting() and self.handle.aio_get_direction() == 0:
            # The backlog of a unix socket is full. libnbd then waits for no event, so poll cannot.
            time.sleep(0.01)
            self.handle.aio_notify_write()
        return not self.handle.aio_is_connecting()

    def _until(self, done: Callable[[], bool], what: str, timeout: float | None = None) -> None:
        limit = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{what}: no answer in {limit:g} s")
            self.handle.poll(max(1, int(left * 1000)))

    def finish(self, cookie: int, what: str = "request", timeout: float | None = None) -> None:
        """Waits for an asynchronous request. Raises if the server answered with an error."""
        completed = False

        def done() -> bool:
            nonlocal completed
            completed = completed or self.handle.aio_command_completed(cookie)
            return completed

        try:
            self._until(done, what, timeout)
        except nbd.Error as error:
            raise NbdError(f"{what}: {error.string}", error.errnum or 0) from error

    def completed(self, cookie: int) -> bool:
        """Returns true if a request has been answered, without waiting. Raises its error."""
        try:
            self.handle.poll(0)
            return bool(self.handle.aio_command_completed(cookie))
        except nbd.Error as error:
            raise NbdError(f"request: {error.string}", error.errnum or 0) from error

    def _call(self, what: str, start: Callable[[], int]) -> None:
        try:
            cookie = start()
        except nbd.Error as error:
            raise NbdError(f"{what}: {error.string}", error.errnum or 0) from error
        self.finish(cookie, what)

    def size(self) -> int:
        return int(self.handle.get_size())

    def read(self, offset: int, length: int, flags: int = 0) -> bytes:
        idle = _IDLE_BUFFERS.setdefault(length, [])
        buffer = idle.pop() if idle else nbd.Buffer(length)
        self._call(
            f"read {length} at {offset}",
            lambda: self.handle.aio_pread(buffer, offset, flags=flags),
        )
        content = bytes(buffer.to_bytearray())
        # Not after an error, when the answer may still come.
        idle.append(buffer)
        return content

    def write(self, offset: int, data: bytes, *, fua: bool = False, flags: int = 0) -> None:
        buffer = nbd.Buffer.from_bytearray(bytearray(data))
        flags |= nbd.CMD_FLAG_FUA if fua else 0
        self._call(
            f"write {len(data)} at {offset}",
            lambda: self.handle.aio_pwrite(buffer, offset, flags=flags),
        )

    def start_write(self, offset: int, data: bytes, *, flags: int = 0) -> int:
        """Sends a write without waiting. Returns a cookie for `finish` or `completed`."""
        buffer = nbd.Buffer.from_bytearray(bytearray(data))
        return int(self.handle.aio_pwrite(buffer, offset, flags=flags))

    def flush(self, flags: int = 0) -> None:
        self._call("flush", lambda: self.handle.aio_flush(flags=flags))

    def trim(self, offset: int, length: int, flags: int = 0) -> None:
        self._call(
            f"trim {length} at {offset}",
            lambda: self.handle.aio_trim(length, offset, flags=flags),
        )

    def zero(self, offset: int, length: int, flags: int = 0) -> None:
        self._call(
            f"write zeroes {length} at {offset}",
            lambda: self.handle.aio_zero(length, offset, flags=flags),
        )

    def cache(self, offset: int, length: int, flags: int = 0) -> None:
        self._call(
            f"cache {length} at {offset}",
            lambda: self.handle.aio_cache(length, offset, flags=flags),
        )

    def block_status(
        self, offset: int, length: int, flags: int = 0
    ) -> dict[str, list[tuple[int, int]]]:
        """Returns (length, flags) pairs from `offset` on, for each context."""
        answer: dict[str, list[tuple[int, int]]] = {}

        def extent(context: str, start: int, entries: list[int], _error: object) -> int:
            assert start == offset, f"block status answered for {start}, asked for {offset}"
            answer[context] = list(zip(entries[0::2], entries[1::2], strict=True))
            return 0

        self._call(
            f"block status {length} at {offset}",
            lambda: self.handle.aio_block_status(length, offset, extent, flags=flags),
        )
        return answer
