"""A directory with the processes and mounts made in it, all of which end reliably."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1

Arg = str | Path | int | float

# Longest wait of a test in seconds. It is far more than needed on any machine, so that it ends only
# a hang.
PATIENCE = 120.0
# The same for a command that may have much to do.
COMMAND_PATIENCE = 300.0

_PREFIX = "hemi-t-"
# Names the process that owns a sandbox.
_OWNER = ".owner"


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _strings(argv: Sequence[Arg]) -> list[str]:
    return [str(a) for a in argv]


def run(
    *argv: Arg,
    timeout: float = COMMAND_PATIENCE,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """Runs a command that must succeed. Returns its standard output, and fails with all output."""
    code, out, err = _run(argv, timeout, stdin, env, cwd)
    if code != 0:
        line = " ".join(_strings(argv))
        raise AssertionError(f"`{line}` exited {code}\n--- stdout\n{out}\n--- stderr\n{err}")
    return out


def run_fails(
    *argv: Arg, timeout: float = COMMAND_PATIENCE, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Runs a command that must fail by its own exit code. Returns the code and all output."""
    code, out, err = _run(argv, timeout, None, env, None)
    line = " ".join(_strings(argv))
    assert code != 0, f"`{line}` was expected to fail but succeeded:\n{out}{err}"
    assert code > 0, f"`{line}` died from signal {-code}:\n{out}{err}"
    return code, out + err


def run_any(
    *argv: Arg, timeout: float = COMMAND_PATIENCE, env: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Runs a command that may fail. Returns its exit code, standard output and standard error."""
    return _run(argv, timeout, None, env, None)


def _run(
    argv: Sequence[Arg],
    timeout: float,
    stdin: bytes | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
) -> tuple[int, str, str]:
    try:
        done = subprocess.run(
            _strings(argv),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            preexec_fn=_die_with_parent,
        )
    except FileNotFoundError as error:
        raise AssertionError(f"{argv[0]} is not installed; run `make setup-test`") from error
    except subprocess.TimeoutExpired as error:
        out = (error.stdout or b"").decode(errors="replace")
        err = (error.stderr or b"").decode(errors="replace")
        line = " ".join(_strings(argv))
        raise AssertionError(f"`{line}` did not end in {timeout} s\n{out}{err}") from error
    return (
        done.returncode,
        done.stdout.decode(errors="replace"),
        done.stderr.decode(errors="replace"),
    )


def wait_until(what: str, condition: Callable[[], bool], timeout: float = PATIENCE) -> None:
    """Polls until `condition` holds. Fails naming `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.02)


class Process:
    """A child that runs beside the test. Its output goes to a file."""

    def __init__(
        self, argv: Sequence[Arg], log: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.argv = _strings(argv)
        self.log = log
        with log.open("ab") as out:
            try:
                self._popen = subprocess.Popen(
                    self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    # State that hemi keeps over restarts stays with the test.
                    env={**os.environ, "STATE_DIRECTORY": str(log.parent / "state"), **(env or {})},
                    preexec_fn=_die_with_parent,
                )
            except FileNotFoundError as error:
                raise AssertionError(
                    f"{argv[0]} is not installed; run `make setup-test`"
                ) from error

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def check_running(self) -> None:
        """Fails with the process's output if it has ended."""
        if not self.running:
            raise AssertionError(
                f"`{' '.join(self.argv)}` ended with {self.returncode}:\n{self.output()}"
            )

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def freeze(self) -> None:
        """Sends SIGSTOP. Returns once every thread has stopped, since some go on until then."""
        self.signal(signal.SIGSTOP)
        wait_until(f"`{self.argv[0]}` stands still", self._stands)

    def _stands(self) -> bool:
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        states = [(task / "stat").read_text().rsplit(")", 1)[1].split()[0] for task in tasks]
        return all(state == "T" for state in states)

    def kill(self) -> None:
        """Sends SIGKILL and reaps the process."""
        if self.running:
            # A stopped process dies from SIGKILL as well.
            self._popen.kill()
        self._popen.wait(PATIENCE)

    def wait(self, timeout: float = PATIENCE) -> int:
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"`{' '.join(self.argv)}` did not end in {timeout} s:\n{self.output()}"
            ) from None

    def terminate(self, timeout: float = PATIENCE) -> int:
        """Sends SIGTERM and waits. Returns the exit code."""
        if self.running:
            self._popen.terminate()
        return self.wait(timeout)

    def cpu_seconds(self) -> float:
        """Returns the user and system time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_memory(self) -> int:
        """Returns the highest resident memory so far, in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no VmHWM of process {self.pid}")


class Sandbox:
    """Owns a directory and everything started in it. Use it as a context manager."""

    def __init__(self, parent: Path | None = None) -> None:
        # Short, because the path of a unix socket is limited to 107 bytes.
        base = parent or Path(os.environ.get("HEMI_TEST_DIR", tempfile.gettempdir()))
        self.dir = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        (self.dir / _OWNER).write_text(str(os.getpid()))
        self._stack = contextlib.ExitStack()
        self._stack.callback(shutil.rmtree, self.dir, ignore_errors=True)
        self._names: dict[str, int] = {}
        self.logs: list[Path] = []

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def defer(self, action: Callable[[], object]) -> None:
        """Runs `action` at the end, latest first, whatever has failed before."""
        self._stack.callback(action)

    def path(self, name: str) -> Path:
        """Returns a path in the sandbox that no earlier call has returned."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        if count == 0:
            return self.dir / name
        stem, dot, suffix = name.partition(".")
        return self.dir / f"{stem}-{count}{dot}{suffix}"

    def start(self, *argv: Arg, name: str, env: Mapping[str, str] | None = None) -> Process:
        """Starts a child that is killed when the sandbox ends."""
        log = self.path(f"{name}.log")
        process = Process(argv, log, env)
        self.logs.append(log)
        self.defer(process.kill)
        return process

    def file(self, name: str, size: int) -> Path:
        """Creates a sparse file of `size` bytes."""
        path = self.path(name)
        with path.open("wb") as f:
            f.truncate(size)
        return path

    def directory_in(self, parent: Path) -> Path:
        """Creates a directory elsewhere that is removed with the sandbox."""
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self.defer(lambda: shutil.rmtree(path, ignore_errors=True))
        return path

    def mount_tmpfs(self, size: int) -> Path:
        """Mounts a tmpfs of `size` bytes."""
        point = self.path("tmpfs")
        point.mkdir()
        run("mount", "-t", "tmpfs", "-o", f"size={size}", "hemi-test", point)
        self.defer(lambda: unmount(point))
        return point

    def loop(self, backing: Path, *options: Arg) -> Path:
        """Attaches a loop device to `backing`, with O_DIRECT so that no second cache lies
        between."""
        device = Path(
            run("losetup", "--find", "--show", "--direct-io=on", *options, backing).strip()
        )
        self.defer(lambda: detach_loop(device, backing))
        return device

    def mount(self, device: Path, *options: Arg) -> Path:
        """Mounts a file system."""
        point = self.path("mnt")
        point.mkdir()
        run("mount", *options, device, point)
        self.defer(lambda: unmount(point))
        return point


def sweep(parent: Path | None = None) -> None:
    """Cleans up after sandboxes of killed processes: mounts, loop devices, files.

    Their children have died with them."""
    base = parent or Path(os.environ.get("HEMI_TEST_DIR", tempfile.gettempdir()))
    for directory in base.glob(f"{_PREFIX}*"):
        owner = directory / _OWNER
        if not owner.exists() or Path(f"/proc/{owner.read_text()}").exists():
            continue
        mounts = [
            line.split()[1]
            for line in Path("/proc/self/mounts").read_text().splitlines()
            if line.split()[1].startswith(f"{directory}/")
        ]
        for point in reversed(mounts):
            subprocess.run(["umount", "-l", point], capture_output=True)
        for device in Path("/sys/block").glob("loop*/loop/backing_file"):
            with contextlib.suppress(OSError):
                backing = device.read_text().removesuffix("\n").removesuffix(" (deleted)")
                if backing.startswith(f"{directory}/"):
                    detach_loop(Path("/dev") / device.parts[3], Path(backing))
        shutil.rmtree(directory, ignore_errors=True)


def unmount(point: Path) -> None:
    """Unmounts if mounted, lazily if necessary."""
    if os.path.ismount(point):
        plain = subprocess.run(["umount", str(point)], capture_output=True)
        if plain.returncode != 0:
            subprocess.run(["umount", "-l", str(point)], capture_output=True)


def detach_loop(device: Path, backing: Path) -> None:
    """Detaches a loop device if it is still attached to `backing`.

    A released number may be another test's by now."""
    with contextlib.suppress(OSError):
        attached = Path(f"/sys/block/{device.name}/loop/backing_file").read_text()
        if attached.removesuffix("\n").removesuffix(" (deleted)") == str(backing):
            subprocess.run(["losetup", "--detach", str(device)], capture_output=True)


def catches(pid: int, number: signal.Signals) -> bool:
    """Returns true if a process handles a signal by now, instead of dying from it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def free_port() -> int:
    """Returns a TCP port of the loopback interface that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def answers(path: Path) -> bool:
    """Returns true if something accepts connections on a unix socket."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(5)
        try:
            s.connect(str(path))
        except OSError:
            return False
        return True


def chunks(total: int, size: int) -> Iterator[tuple[int, int]]:
    """Splits `total` bytes into (offset, length) pairs of at most `size`."""
    for offset in range(0, total, size):
        yield offset, min(size, total - offset)
