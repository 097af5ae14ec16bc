"""Driving other programs: their output, their failures whole, and ending them on Ctrl-C."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hemi_lab.errors import LabError, ToolError

_TAIL = 4000
"""Characters of a tool's message that are kept: its end, where the reason is."""


class Interrupted(LabError):
    """Ctrl-C or a termination signal; what was measured so far is kept."""

    exit_code = 130


@dataclass(frozen=True)
class Finished:
    """A tool that ended well, or was asked to end."""

    output: str
    errors: str
    cpu_seconds: float
    """Processor time of the tool and its children, all threads."""
    interrupted: bool = False


def find(name: str, variable: str, way_out: str) -> str:
    """The path of a program: from an environment variable, or the PATH."""
    given = os.environ.get(variable)
    found = shutil.which(given or name)
    if found is None:
        said = f"{variable}={given}" if given else f"{name} is not on the PATH"
        raise LabError(f"{said}: there is no such program", way_out)
    return found


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: Sequence[str], folder: Path | None = None, patience: float = 30.0) -> Finished:
    """Runs a command to its end. On Ctrl-C it gets SIGINT and `patience` seconds to write what
    it knows, then it is killed; the result says that it was interrupted.

    It has a process group of its own: the terminal's Ctrl-C reaches the lab alone, which
    decides the order of things."""
    before = _children_cpu()
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(command, str(error)) from error
    interrupted = False
    try:
        output, errors = process.communicate()
    except KeyboardInterrupt:
        interrupted = True
        output, errors = _end(process, patience)
    if process.returncode != 0 and not interrupted:
        raise ToolError(command, (errors + "\n" + output)[-_TAIL:] or _died(process.returncode))
    return Finished(output, errors, _children_cpu() - before, interrupted)


def _end(process: subprocess.Popen[str], patience: float) -> tuple[str, str]:
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=patience)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        # It does not end, or the person asked twice.
        process.kill()
        return process.communicate()


def _died(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"
