"""A shell on the guest, in which a page's commands run as they stand.

Its `/srv`, `/mnt` and `/root` are empty, in memory, and gone with it. The guest's other files are
the host's. A disk that a page names is a node beside those of the guest's disks.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernel_guest import HEMI, run, wait_until

PLACE = Path("/run/shell")
#: Directories of the shell's own.
OWN = ("/srv", "/mnt", "/root")
#: Longer than any command of a page takes on a machine that stalls, in seconds.
LIMIT = 120.0


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    output: str


class Shell:
    """A shell. Its commands share directory, variables and background jobs."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir()
        for directory in OWN:
            run("mount", "-t", "tmpfs", "-o", "size=900m", "shell", directory)
            self._undo.append(partial(run, "umount", "-l", directory))
        (PLACE / "bin").mkdir()
        (PLACE / "bin/hemi").symlink_to(HEMI)
        self._count = 0
        self._background: list[subprocess.Popen[bytes]] = []
        self._environment = {
            "PATH": f"{PLACE}/bin:{os.environ['PATH']}",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
        }
        self._bash = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            cwd="/srv",
            text=True,
        )

    def close(self) -> None:
        """Ends everything that the shell started, and removes its directories."""
        for process in self._background:
            process.kill()
            process.wait()
        assert self._bash.stdin is not None
        self._bash.stdin.write("kill -KILL $(jobs -p) 2>/dev/null; wait\n")
        self._bash.stdin.close()
        self._bash.wait(LIMIT)
        for step in reversed(self._undo):
            step()
        self._undo.clear()

    def disk(self, name: str, of: str) -> None:
        """Makes one of the guest's disks available as /dev/NAME, too."""
        number = Path(of).stat().st_rdev
        node = f"/dev/{name}"
        run("mknod", node, "b", str(os.major(number)), str(os.minor(number)))
        self._undo.append(lambda: run("rm", node))

    def large_disk(self, name: str, size: str) -> None:
        """Creates /dev/NAME, larger than the guest's disks. It is sparse until it is written."""
        backing = f"/mnt/{name}.img"
        run("truncate", "-s", size, backing)
        loop = run("losetup", "--find", "--show", backing).strip()
        self._undo.append(lambda: run("losetup", "--detach", loop, expect=None))
        self.disk(name, loop)

    def growing_disk(self, name: str, of: str) -> None:
        """Creates /dev/NAME, the first half of one of the guest's disks."""
        half = int(run("blockdev", "--getsz", of)) // 2
        run("dmsetup", "create", name, "--table", f"0 {half} linear {of} 0")
        run("dmsetup", "mknodes")
        self._undo.append(lambda: run("dmsetup", "remove", "--retry", name))
        self.disk(name, f"/dev/mapper/{name}")

    def grow(self, name: str, of: str) -> None:
        """Makes such a disk as large as the one below it."""
        sectors = run("blockdev", "--getsz", of).strip()
        run("dmsetup", "reload", name, "--table", f"0 {sectors} linear {of} 0")
        run("dmsetup", "resume", name)

    def run(self, command: str, limit: float = LIMIT) -> Ended:
        """Runs a command and waits for its end."""
        self._count += 1
        output, code = PLACE / f"{self._count}.output", PLACE / f"{self._count}.code"
        assert self._bash.stdin is not None
        self._bash.stdin.write(f"{{ {command}\n}} >{output} 2>&1 </dev/null\n")
        self._bash.stdin.write(f"echo $? >{code}.new; mv {code}.new {code}\n")
        self._bash.stdin.flush()
        until = time.monotonic() + limit
        while not code.exists():
            printed = output.read_text(errors="replace") if output.exists() else ""
            assert self._bash.poll() is None, f"the shell ended in `{command}`:\n{printed}"
            assert time.monotonic() < until, f"`{command}` does not end:\n{printed}"
            time.sleep(0.01)
        return Ended(int(code.read_text()), output.read_text(errors="replace"))

    def must(self, command: str) -> str:
        """Runs a command that must succeed. Returns its output."""
        ended = self.run(command)
        assert ended.code == 0, f"`{command}` exited {ended.code}:\n{ended.output}"
        return ended.output

    def until(self, what: str, command: str) -> None:
        """Repeats a command until it succeeds."""
        wait_until(what, lambda: self.run(command).code == 0, LIMIT)

    def start(self, command: str, shows: str) -> Background:
        """Starts a command as if in a terminal of its own, and waits until it prints a text."""
        self._count += 1
        log = PLACE / f"{self._count}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._environment,
                cwd="/srv",
            )
        self._background.append(process)
        started = Background(process, log)

        def said() -> bool:
            done = process.poll()
            assert shows in started.output() or done is None, f"`{command}`:\n{started.output()}"
            return shows in started.output()

        wait_until(f"`{command}` prints {shows}", said, LIMIT)
        return started

    def serve(self, options: str) -> Background:
        """Serves a volume, and waits until it is served, and is a block device if requested."""
        shows = "block device path=" if "--device" in shlex.split(options) else "control socket"
        return self.start(f"hemi serve {options}", shows)


class Background:
    """A command that runs until it is interrupted."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Interrupts it, as Ctrl-C does, and waits for its end."""
        self._process.terminate()
        assert self._process.wait(LIMIT) == 0, self.output()
