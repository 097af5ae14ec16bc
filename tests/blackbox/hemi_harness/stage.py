"""A shell in a private environment, in which a page's commands run as they stand.

The shell has its own mounts, network and process ids. /dev, /etc, /run, /mnt and /srv are private,
so that `/dev/sdb` may be a small loop device and `/etc/hemi/db.toml` a file of the test. Nothing of
it is seen outside, and all of it ends with the sandbox. Needs root.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .hemi import HEMI
from .sandbox import Sandbox, detach_loop, run, wait_until

_SCRIPT = Path(__file__).with_name("stage.sh")
_UNSHARE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")
# Longer than any command of a page takes on a machine that stalls. Ends waits without end.
LIMIT = 240.0

# Limits in bytes: of all devices and files, and of /srv, which is sparse.
_MEMORY = 1 << 30
_SRV = 4 << 30


@functools.cache
def unavailable() -> str | None:
    """Returns the reason why there can be no stage here, or `None` if there can."""
    if os.geteuid() != 0:
        return "needs root, for mounts and devices of its own"
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no namespaces here: {tried.stderr.strip()}"
    if not Path("/dev/loop-control").exists():
        return "no loop devices here"
    return None


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    output: str


class Stage:
    """A shell whose commands share directory, variables and background jobs."""

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        devices: Mapping[str, int] | None = None,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        """Takes the size in bytes of each block device below /dev, and the address of each host.

        The devices are all zeros."""
        self.sandbox = sandbox
        # Short, since sockets may be created below it.
        self.dir = sandbox.path("st")
        for name in ("bin", "home"):
            (self.dir / name).mkdir(parents=True)
        (self.dir / "bin" / "hemi").symlink_to(HEMI.resolve())
        # In memory, however busy the machine's disk is.
        self._memory = sandbox.mount_tmpfs(_MEMORY)
        lines = []
        for name, size in (devices or {}).items():
            number = self._device(name, size).stat().st_rdev
            lines.append(f"{name} {os.major(number)} {os.minor(number)}\n")
        (self.dir / "devices").write_text("".join(lines))
        # A file system, because a tmpfs has no O_DIRECT before Linux 6.6.
        disk = self._device("srv", _SRV)
        run("mkfs.ext4", "-q", "-O", "^has_journal", disk)
        # The shell's /srv, where it starts.
        self.srv = sandbox.mount(disk)
        (self.dir / "srv").symlink_to(self.srv)
        entries = [f"{address} {name}\n" for name, address in (hosts or {}).items()]
        (self.dir / "hosts").write_text("".join(entries))
        os.mkfifo(self.dir / "asked")
        # Opened for reading as well, so that it opens before the shell does.
        self._asked = os.open(self.dir / "asked", os.O_RDWR)
        sandbox.defer(lambda: os.close(self._asked))
        self._count = 0
        self._process = sandbox.start(*_UNSHARE, "bash", _SCRIPT, self.dir, name="stage")

    def _device(self, name: str, size: int) -> Path:
        """Returns a loop device of `size` zero bytes."""
        backing = self._memory / f"{name}.img"
        with backing.open("wb") as f:
            f.truncate(size)
        device = Path(run("losetup", "--find", "--show", backing).strip())
        self.sandbox.defer(lambda: detach_loop(device, backing))
        # While it is open nobody else can detach it, so its number stays the same.
        held = os.open(device, os.O_RDONLY)
        self.sandbox.defer(lambda: os.close(held))
        return device

    def run(self, command: str, limit: float = LIMIT) -> Ended:
        """Runs a command and waits for its end."""
        number = self._ask(command)
        return self._ended(number, command, limit)

    def must(self, command: str, limit: float = LIMIT) -> str:
        """Runs a command that must succeed. Returns its output."""
        ended = self.run(command, limit)
        assert ended.code == 0, f"`{command}` exited {ended.code}:\n{ended.output}"
        return ended.output

    def until(self, what: str, command: str) -> None:
        """Repeats a command until it succeeds."""
        wait_until(what, lambda: self.run(command).code == 0, LIMIT)

    def start(self, command: str) -> Background:
        """Starts a command as if in a terminal of its own."""
        self._count += 1
        log = self.dir / f"{self._count}.log"
        started = self.must(f"{{ exec {command}\n}} >{log} 2>&1 & echo pid $!")
        pid = re.search(r"^pid (\d+)$", started, re.M)
        assert pid is not None, f"no process of `{command}`:\n{started}"
        return Background(self, command, int(pid[1]), log)

    def _ask(self, command: str) -> int:
        self._count += 1
        (self.dir / f"{self._count}.command").write_text(f"{command}\n")
        os.write(self._asked, f"{self._count}\n".encode())
        return self._count

    def _ended(self, number: int, command: str, limit: float) -> Ended:
        code, output = self.dir / f"{number}.code", self.dir / f"{number}.output"

        def done() -> bool:
            self._process.check_running()
            return code.exists()

        try:
            wait_until(f"`{command}` ends", done, limit)
        except AssertionError as error:
            printed = output.read_text(errors="replace") if output.exists() else ""
            raise AssertionError(f"{error}\n{printed}") from None
        return Ended(int(code.read_text()), output.read_text(errors="replace"))


class Background:
    """A command that runs until it is interrupted."""

    def __init__(self, stage: Stage, command: str, pid: int, log: Path) -> None:
        self._stage = stage
        self.command = command
        self._pid = pid
        self._log = log

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_output(self, pattern: str) -> None:
        """Waits until it has printed a match of `pattern`. Fails if it ends before."""

        def printed() -> bool:
            # Checked first, so that output from before its end counts.
            running = self._stage.run(f"kill -0 {self._pid}").code == 0
            if re.search(pattern, self.output()):
                return True
            assert running, f"`{self.command}` ended:\n{self.output()}"
            return False

        wait_until(f"`{self.command}` prints {pattern}", printed, LIMIT)

    def stop(self) -> Ended:
        """Interrupts it, as Ctrl-C does, and waits for its end."""
        ended = self._stage.run(f"kill -TERM {self._pid}; wait {self._pid}")
        return Ended(ended.code, self.output())
