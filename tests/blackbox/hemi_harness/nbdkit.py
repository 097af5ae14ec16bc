"""nbdkit as a drive that hemi does not control: slow, paused, failing, or killed."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from .sandbox import PATIENCE, Arg, Process, Sandbox, answers, wait_until


class Nbdkit:
    """An nbdkit server on a unix socket.

    `delay_ms` adds to every request. The pause and error filters are always present and idle until
    used. `plugin` is `file` (the argument `path`) or `memory` (the argument `size`).
    """

    def __init__(
        self,
        sandbox: Sandbox,
        path: Path | None = None,
        *,
        size: int | None = None,
        delay_ms: float = 0,
        filters: bool = True,
        options: tuple[Arg, ...] = (),
        extra: tuple[Arg, ...] = (),
    ) -> None:
        self._sandbox = sandbox
        # A connection has threads of its own, and the pause filter has one throughout.
        self._idle_threads = 2 if filters else 1
        self.socket = sandbox.path("nbdkit.sock")
        self._pause_socket = sandbox.path("pause.sock")
        self._error_file = sandbox.path("error.on")
        self._argv: list[Arg] = ["nbdkit", "--foreground", "--unix", self.socket, *options]
        if filters:
            self._argv += ["--filter=pause", "--filter=error"]
        if delay_ms:
            self._argv += ["--filter=delay"]
        if path is not None:
            self._argv += ["file", path]
        else:
            assert size is not None, "nbdkit needs a path or a size"
            self._argv += ["memory", size]
        if filters:
            self._argv += [f"pause-control={self._pause_socket}"]
            self._argv += [f"error-file={self._error_file}", "error-rate=100%"]
        if delay_ms:
            self._argv += [f"delay-read={delay_ms:g}ms", f"delay-write={delay_ms:g}ms"]
        self._argv += extra
        self.process: Process
        self.start()

    @property
    def uri(self) -> str:
        return f"nbd+unix:///?socket={self.socket}"

    def start(self) -> None:
        """Starts nbdkit (again, after `kill`) on the same socket."""
        self.socket.unlink(missing_ok=True)
        self._pause_socket.unlink(missing_ok=True)
        self.process = self._sandbox.start(*self._argv, name="nbdkit")

        def ready() -> bool:
            self.process.check_running()
            return answers(self.socket)

        wait_until("nbdkit answers", ready)

    def kill(self) -> None:
        """Kills it at once, like a remote host that loses power."""
        self.process.kill()
        self.socket.unlink(missing_ok=True)

    def pause(self) -> None:
        """Stops answering requests. Those in progress finish first."""
        got = self._control(b"p")
        assert got == b"P", f"nbdkit's pause filter answered {got!r} to a pause"

    def resume(self) -> None:
        """Answers requests again.

        A server whose client has vanished meanwhile may die when it answers that client (see
        `forget_client`). That ends the pause too, and the server is not started again here."""
        try:
            got = self._control(b"r")
        except OSError:
            got = b""
        if got != b"R":
            wait_until("nbdkit has died instead of going on", lambda: not self.process.running)

    def ensure(self) -> None:
        """Starts it again if it has died by itself (see `forget_client`)."""
        if not self.process.running:
            self.start()

    def forget_client(self) -> None:
        """Waits after a kill of the client until that connection has ended.

        A paused or stopped server does not end it. nbdkit 1.32 can fail an assertion when a client
        goes while its replies wait, so it is started again if it died."""

        def settled() -> bool:
            if not self.process.running:
                return True
            # A dying server has few threads too, but greets nobody.
            return self._threads() <= self._idle_threads and greets(self.socket)

        wait_until("nbdkit has ended its connections", settled)
        self.ensure()

    def _threads(self) -> int:
        try:
            return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))
        except FileNotFoundError:
            return 0

    def stop(self) -> None:
        """Freezes the whole process with SIGSTOP. Sockets stay open. Returns when it is frozen."""
        self.process.freeze()

    def cont(self) -> None:
        self.process.signal(signal.SIGCONT)

    def fail(self, failing: bool = True) -> None:
        """Makes every request fail with EIO while `failing`."""
        if failing:
            self._error_file.touch()
        else:
            self._error_file.unlink(missing_ok=True)

    def _control(self, request: bytes) -> bytes:
        """Returns the pause filter's answer, or nothing if the server dies."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(PATIENCE)
            s.connect(str(self._pause_socket))
            s.sendall(request)
            return s.recv(1)


def greets(path: Path) -> bool:
    """Returns true if an NBD server on a unix socket begins the handshake."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5)
        try:
            s.connect(str(path))
            return s.recv(8) == b"NBDMAGIC"
        except OSError:
            return False
