"""A volume on RAM disks and its server, for the tests inside the user-mode kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

HEMI = os.environ["HEMI"]
#: Number of kills in a row.
ROUNDS = int(os.environ.get("ROUNDS", "10"))
LEGS = ("/dev/ram0", "/dev/ram1")
SIZE = 48 << 20
DEVICE = Path("/dev/hemi/vol")
#: Longest time of a step in seconds.
PATIENCE = 20.0


def run(*arguments: str, expect: int | None = 0, timeout: float = 60) -> str:
    """Runs a program to its end. Returns its output. Fails unless it ends with `expect`."""
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=timeout, check=False, errors="replace"
    )
    output = done.stdout + done.stderr
    assert expect is None or done.returncode == expect, f"{arguments}: {done.returncode}\n{output}"
    return output


def hemi(*arguments: str, expect: int | None = 0) -> str:
    return run(HEMI, *arguments, expect=expect)


def wait_until(what: str, holds: Callable[[], bool], timeout: float = PATIENCE) -> None:
    until = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < until, f"not within {timeout} s: {what}"
        time.sleep(0.01)


def messages() -> list[str]:
    """Returns the kernel's complaints since the last call."""
    lines = run("dmesg", "-c").splitlines()
    signs = ("I/O error", "error", "EXT4-fs warning", "WARNING", "BUG", "hung", "abort")
    return [line for line in lines if any(sign in line for sign in signs)]


def waits(process: int) -> str:
    """Returns what the threads of a process wait for in the kernel."""
    parts = []
    for task in sorted(Path(f"/proc/{process}/task").iterdir()):
        state = (task / "stat").read_text().rpartition(")")[2].split()[0]
        parts.append(f"thread {task.name}, {(task / 'comm').read_text().strip()}, state {state}")
        for name in ("stack", "wchan", "syscall"):
            try:
                parts.append(f"{name}: {(task / name).read_text().strip()}")
            except OSError as error:
                parts.append(f"{name}: {error.strerror}")
    return "\n".join(parts)


class Volume:
    """A volume on two RAM disks, and its server."""

    def __init__(self, driver: str) -> None:
        #: The kernel's driver of its device.
        self.driver = driver
        self.server: subprocess.Popen[bytes] | None = None
        self.starts = 0
        #: Programs that have begun in this process. Each logs when it serves the device.
        self.programs = 0
        #: A test can put something else between hemi and a disk.
        self.legs = list(LEGS)

    def create(self, size: str = str(SIZE)) -> None:
        named = [part for leg in self.legs for part in ("--leg", leg, "--wipe", leg)]
        hemi("create", "--size", size, "--name", "vol", *named)

    def log(self) -> str:
        return Path(f"/run/serve-{self.starts}.log").read_text(errors="replace")

    def start(self, *more: str, wait: bool = True) -> None:
        """Starts a server. With `wait` it waits until the device exists and is served by it."""
        self.starts += 1
        self.programs = 1
        more = tuple(f"--device={self.driver}" if part == "--device" else part for part in more)
        named = [part for leg in self.legs for part in ("--leg", leg)]
        with Path(f"/run/serve-{self.starts}.log").open("wb") as log:
            self.server = subprocess.Popen(
                [HEMI, "serve", *named, "--allow-inject", *more], stdout=log, stderr=log
            )
        if wait:
            self.wait_attached()

    def wait_attached(self) -> None:
        """Waits until the device is served by the program that runs now."""

        def attached() -> bool:
            assert self.server is not None
            assert self.server.poll() is None, self.log()
            return self.log().count("block device path=") >= self.programs

        wait_until("the device is served", attached)

    def upgrade(self) -> None:
        """Upgrades hemi in the same process. The new program may still be taking over the
        device."""
        assert "went on for" in hemi("upgrade")
        self.programs += 1

    def kill(self) -> None:
        assert self.server is not None
        self.server.send_signal(signal.SIGKILL)
        try:
            self.server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"killed, but does not end:\n{waits(self.server.pid)}") from None

    def stop(self) -> None:
        assert self.server is not None
        self.server.terminate()
        assert self.server.wait(PATIENCE) == 0, self.log()
