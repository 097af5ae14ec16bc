"""Runs other programs, reports their failures whole, and ends them on Ctrl-C.

`start` starts every program in a session of its own. So the terminal's Ctrl-C reaches the lab
alone, which ends the programs in their order. If the lab itself is killed, the kernel kills them,
since a load nobody measures any more would go on writing. The kernel does so when the *thread* that
started a program ends, so start it on a thread that outlives the program."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hemi_lab.errors import LabError, ToolError

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1

_TAIL = 4000
"""Longest kept tail of a tool's message, in characters. The reason is at its end."""


class Interrupted(LabError):
    """Ctrl-C or a termination signal. Measurements so far are kept."""

    exit_code = 130


@dataclass(frozen=True)
class Finished:
    """A tool that ended successfully, or was asked to end."""

    output: str
    errors: str
    cpu_seconds: float
    """Processor time of all threads of the tool and its children."""
    interrupted: bool = False


def find(name: str, variable: str, way_out: str) -> str:
    """Returns the path of a program, from an environment variable or the PATH."""
    given = os.environ.get(variable)
    found = shutil.which(given or name)
    if found is None:
        said = f"{variable}={given}" if given else f"{name} is not on the PATH"
        raise LabError(f"{said}: there is no such program", way_out)
    return found


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


Stream = int | IO[bytes] | None


def start(
    command: Sequence[str],
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a program. Raises `OSError` if that fails."""
    return subprocess.Popen(
        command,
        cwd=folder,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The lab blocks these while it cleans up. Its children must not inherit that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kills a program and its children (`mariadb-install-db` is a shell script)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def run(
    command: Sequence[str],
    folder: Path | None = None,
    patience: float = 30.0,
    stdin: Stream = subprocess.DEVNULL,
) -> Finished:
    """Runs a command to its end.

    On Ctrl-C the command gets SIGINT and `patience` seconds to write its results, then it is
    killed. The returned object says that it was interrupted."""
    before = _children_cpu()
    try:
        process = start(command, stdin=stdin, folder=folder)
    except OSError as error:
        raise ToolError(command, str(error)) from error
    interrupted = False
    try:
        output, errors = map(text, process.communicate())
    except KeyboardInterrupt:
        interrupted = True
        output, errors = map(text, _end(process, patience))
    if process.returncode != 0 and not interrupted:
        said = (errors + "\n" + output).strip()
        shown = said[-_TAIL:] or ended(process.returncode)
        raise ToolError(command, shown, code=process.returncode)
    return Finished(output, errors, _children_cpu() - before, interrupted)


def text(data: bytes) -> str:
    """Returns what a tool printed as text."""
    return data.decode(errors="replace")


def _end(process: subprocess.Popen[bytes], patience: float) -> tuple[bytes, bytes]:
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=patience)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        # It does not end, or the user pressed Ctrl-C again.
        kill_session(process)
        return process.communicate()


def ended(code: int) -> str:
    """Returns how a tool ended, from its exit status."""
    return f"was killed by signal {-code}" if code < 0 else f"exited with {code}"


def failed(command: Sequence[str], what: str, output: bytes | str) -> ToolError:
    """Returns the error of a tool that `what` happened to, with the end of its output."""
    printed = (output if isinstance(output, str) else text(output))[-_TAIL:].strip()
    return ToolError(command, f"it {what}:\n{printed or '(it printed nothing)'}")
