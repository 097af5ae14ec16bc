"""Runs the tools of the database part, and records every command.

A tool that fails is a `ToolError`, which shows the command and its output. Tools are started as all
of the lab's are (`hemi_lab.tool.start`), so none outlives the lab.
"""

from __future__ import annotations

import os
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from hemi_lab.errors import ToolError
from hemi_lab.tool import ended, failed, kill_session, start, text

Argument = str | Path | int | float

INSTALL = "Is its package installed?"


@dataclass
class Command:
    """One command that was run."""

    line: str
    """The command as a shell would take it."""
    began: str
    """Start in UTC, ISO 8601."""
    seconds: float | None = None
    """Duration, or None while it runs."""
    exit_code: int | None = None
    """None while it runs. Negative if that signal ended it."""


@dataclass
class CommandLog:
    """Every command of a run, in the order they were started."""

    commands: list[Command] = field(default_factory=list)

    def begin(self, argv: Sequence[str]) -> Command:
        """Records a command about to be started."""
        command = Command(shlex.join(argv), datetime.now(UTC).isoformat(timespec="milliseconds"))
        self.commands.append(command)
        return command

    def run(self, *argv: Argument, timeout: float = 120, stdin: str | None = None) -> str:
        """Runs a tool that must succeed within `timeout` seconds. Returns its standard output."""
        words = [str(a) for a in argv]
        command = self.begin(words)
        began = time.monotonic()
        try:
            process = start(words, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE)
        except OSError as error:
            raise ToolError(words, str(error), INSTALL) from error
        try:
            given = None if stdin is None else stdin.encode()
            out, err = process.communicate(given, timeout)
        except BaseException as error:
            kill_session(process)
            out, err = process.communicate()
            if isinstance(error, subprocess.TimeoutExpired):
                raise failed(words, f"did not end within {timeout:g} s", out + err) from error
            raise
        finally:
            command.seconds = time.monotonic() - began
            command.exit_code = process.returncode
        if process.returncode != 0:
            raise failed(words, ended(process.returncode), out + err)
        return text(out)

    def stream(
        self, *argv: Argument, timeout: float, on_line: Callable[[str], object]
    ) -> tuple[str, float]:
        """Runs a tool and passes each line it prints to `on_line` as it comes.

        Returns all its output (both streams) and the processor seconds it used. The tool is killed
        if it does not end within `timeout` seconds, or if `on_line` raises.
        """
        words = [str(a) for a in argv]
        command = self.begin(words)
        began = time.monotonic()
        try:
            process = start(words, stderr=subprocess.STDOUT)
        except OSError as error:
            raise ToolError(words, str(error), INSTALL) from error
        usage = None
        try:
            printed, is_whole = _read_lines(process, began + timeout, on_line)
            if is_whole:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            if process.returncode is None:
                kill_session(process)
                process.wait()
            command.seconds = time.monotonic() - began
            command.exit_code = process.returncode
            assert process.stdout is not None
            process.stdout.close()
        if usage is None:
            raise failed(words, f"did not end within {timeout:g} s", printed)
        if process.returncode != 0:
            raise failed(words, ended(process.returncode), printed)
        return printed, usage.ru_utime + usage.ru_stime


def _read_lines(
    process: subprocess.Popen[bytes], deadline: float, on_line: Callable[[str], object]
) -> tuple[str, bool]:
    """Returns the output, and true if it ended before the deadline."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    whole, rest = bytearray(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            piece = os.read(descriptor, 1 << 16)
            whole += piece
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                on_line(text(line))
            if not piece:
                if rest:
                    on_line(text(rest))
                return text(bytes(whole)), True
    return text(bytes(whole)), False


class Child:
    """A server that runs beside the lab. Its output goes to a file."""

    def __init__(self, log: CommandLog, output: Path, *argv: Argument) -> None:
        """Starts it. Appends to `output`."""
        words = self._words = [str(a) for a in argv]
        self._command = log.begin(words)
        self._output = output
        self._began = time.monotonic()
        with output.open("ab") as out:
            try:
                self._process = start(words, stdout=out, stderr=out)
            except OSError as error:
                raise ToolError(words, str(error), INSTALL) from error

    @property
    def pid(self) -> int:
        """Returns the process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while it runs."""
        return self._process.poll() is None

    def failed(self, what: str) -> ToolError:
        """Returns the error to raise when the server misbehaves, with its output."""
        return failed(self._words, what, self._output.read_bytes())

    def wait_ready(self, ready: Callable[[], bool], timeout: float) -> None:
        """Waits until `ready()`. Raises if the child ends first, or after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise self.failed(f"{ended(self._process.returncode)} before it was ready")
            if time.monotonic() > deadline:
                raise self.failed(f"was not ready within {timeout:g} s")
            time.sleep(0.02)

    def stop(self, timeout: float) -> None:
        """Sends SIGTERM and waits. Raises if the child does not end in time, or not with 0."""
        if self.running:
            self._process.terminate()
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise self.failed(f"did not end within {timeout:g} s after SIGTERM") from error
        self._note_end()
        if code != 0:
            raise self.failed(f"{ended(code)} after SIGTERM")

    def kill(self) -> None:
        """Sends SIGKILL if it still runs."""
        if self.running:
            self._process.kill()
        self._process.wait()
        self._note_end()

    def _note_end(self) -> None:
        if self._command.exit_code is None:
            self._command.exit_code = self._process.returncode
            self._command.seconds = time.monotonic() - self._began

    def cpu_seconds(self) -> float:
        """Returns the processor seconds used so far, user and system."""
        try:
            fields = (
                Path(f"/proc/{self.pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            )
        except OSError as error:
            raise self.failed("has ended") from error
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
