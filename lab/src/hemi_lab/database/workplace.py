"""A run's private directory, which reliably ends everything made in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType

from hemi_lab.errors import LabError

from .tools import Argument, Child, CommandLog

_PREFIX = "hemi-lab-db-"
# Names the process that owns a workplace, with its start time, since process ids are reused.
_OWNER = ".owner"
# Names directories created elsewhere, one to a line, so that they can be swept as well.
_MADE = ".made"
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


class Workplace:
    """Owns processes, mounts, loop devices and files of a run. Use it as a context manager.

    At the end (also after an error or Ctrl-C) they are ended in reverse order, and signals wait
    until that is done. Failures of the cleanup are raised after everything was tried.
    """

    def __init__(self, parent: Path | None = None) -> None:
        """Creates the directory in `parent`, by default the system's temporary directory."""
        base = parent or Path(tempfile.gettempdir())
        sweep(base)
        # Short, because the path of a unix socket is limited to 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        (self.directory / _OWNER).write_text(_identity(os.getpid()))
        self.log = CommandLog()
        self._stack = contextlib.ExitStack()
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)

    def __enter__(self) -> Workplace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _signals_wait():
            self._stack.close()

    def defer(self, action: Callable[[], object]) -> None:
        """Runs `action` at the end, latest first, whatever has failed before."""
        self._stack.callback(action)

    def path(self, name: str) -> Path:
        """Returns an unused path in the directory: `name`, or `name-1`, `name-2` …"""
        path, number = self.directory / name, 0
        while path.exists():
            number += 1
            path = self.directory / f"{name}-{number}"
        return path

    def start(self, name: str, *argv: Argument) -> Child:
        """Starts a server that is killed at the end unless it has ended before."""
        child = Child(self.log, self.path(f"{name}.log"), *argv)
        self.defer(child.kill)
        return child

    def subdirectory(self, of: Path, name: str) -> Path:
        """Creates a directory on another file system, removed at the end with all its content."""
        made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=of))
        # Its name is random, so nobody else will ever have a directory of that name.
        with (self.directory / _MADE).open("a") as noted:
            noted.write(f"{json.dumps(str(made.absolute()))}\n")
        self.defer(lambda: shutil.rmtree(made, ignore_errors=True))
        return made

    def loop(self, backing: Path) -> Path:
        """Attaches a loop device to `backing`, with O_DIRECT so that no second cache lies
        between."""
        device = Path(
            self.log.run("losetup", "--find", "--show", "--direct-io=on", backing).strip()
        )
        self.defer(lambda: _detach(device))
        # The kernel may grant the device but not the option.
        if _content(Path(f"/sys/block/{device.name}/loop/dio")).strip() != "1":
            raise LabError(
                f"{device} on {backing} does not do direct I/O, so that the page cache would be "
                "measured; put it on a file system with O_DIRECT"
            )
        return device

    def mount(self, device: Path) -> Path:
        """Mounts a file system."""
        point = self.path("mnt")
        point.mkdir()
        self.log.run("mount", device, point)
        self.defer(lambda: unmount(point))
        return point


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the block as Ctrl-C does, so that workplaces are cleaned up.

    Works only on the main thread, as Python demands.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def sweep(parent: Path) -> None:
    """Cleans up after workplaces of killed processes: mounts, loop devices, files.

    Their children have died with them.
    """
    for directory in parent.glob(f"{_PREFIX}*"):
        owner = directory / _OWNER
        # Anyone can write to the temporary directory, so trust only this user's files.
        if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
            continue
        # Not ours, or its owner is just creating it.
        if not owner.exists() or not (text := owner.read_text()):
            continue
        if _identity(int(text.split()[0])) == text:
            continue
        mounts = [point for point in _mount_points() if directory in point.parents]
        loops = [
            Path("/dev") / entry.parts[3]
            for entry in Path("/sys/block").glob("loop*/loop/backing_file")
            if _content(entry).startswith(f"{directory}/")
        ]
        # The file system lies on the loop device, and that on the FUSE mount.
        for point in reversed(mounts):
            if point.name != "fuse":
                unmount(point)
        for device in loops:
            _detach(device)
        for point in reversed(mounts):
            unmount(point)
        # Nothing is removed through a mount that stays. The next sweep tries again.
        if any(directory in point.parents for point in _mount_points()):
            continue
        for line in _content(directory / _MADE).splitlines():
            # The last may be truncated.
            with contextlib.suppress(ValueError):
                shutil.rmtree(json.loads(line), ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


def _identity(pid: int) -> str:
    """Returns a process's id and start time, or the id alone if there is no such process."""
    stat = _content(Path(f"/proc/{pid}/stat"))
    return f"{pid} {stat.rsplit(')', 1)[1].split()[19]}" if stat else str(pid)


def _content(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _mount_points() -> list[Path]:
    # The kernel writes blanks and such as three octal digits.
    return [
        Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split()[1]))
        for line in _content(Path("/proc/self/mounts")).splitlines()
    ]


def unmount(point: Path) -> None:
    """Unmounts if mounted, lazily if necessary.

    The kernel's table is asked, since a FUSE mount whose server has died answers nothing else.
    """
    if point not in _mount_points():
        return
    plain = subprocess.run(["umount", point], capture_output=True)
    if plain.returncode != 0:
        subprocess.run(["umount", "--lazy", point], capture_output=True)


def _detach(device: Path) -> None:
    if Path(f"/sys/block/{device.name}/loop").exists():
        subprocess.run(["losetup", "--detach", device], capture_output=True)
