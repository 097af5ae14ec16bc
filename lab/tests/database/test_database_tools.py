"""Failures of tools are shown, and nothing started outlives its end."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hemi_lab.database.tools import CommandLog
from hemi_lab.database.workplace import Workplace, sweep
from hemi_lab.errors import ToolError

# Time for a shell to start and print a line, also on a busy machine.
SHELL_SECONDS = 10


def wait_until(condition: Callable[[], bool], limit: float = 120) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Returns true if a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_failing_tool_shows_command_code_and_output() -> None:
    log = CommandLog()
    with pytest.raises(ToolError) as failed:
        log.run("sh", "-c", "echo out; echo wrong disk >&2; exit 3")
    text = str(failed.value)
    assert "sh failed: it exited with 3:\nout\nwrong disk" in text
    assert (log.commands[0].exit_code, log.commands[0].line) == (
        3,
        shlex.join(failed.value.command),
    )
    assert log.commands[0].line in text


def test_a_missing_tool_is_named() -> None:
    with pytest.raises(ToolError, match="hemi-no-such-tool failed") as failed:
        CommandLog().run("hemi-no-such-tool", "--version")
    assert "installed" in failed.value.way_out
    with pytest.raises(ToolError, match="hemi-no-such-tool"):
        CommandLog().stream("hemi-no-such-tool", timeout=1, on_line=print)


def test_a_tool_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with pytest.raises(ToolError, match=r"did not end within 10 s:\nbefore"):
        words = f"echo before; sleep 600 & echo $! > {note}; wait"
        CommandLog().run("sh", "-c", words, timeout=SHELL_SECONDS)
    wait_until(lambda: not alive(int(note.read_text())))


def test_lines_come_as_they_are_printed() -> None:
    seen: list[str] = []
    printed, seconds = CommandLog().stream(
        "sh", "-c", "echo one; echo two >&2; printf three", timeout=60, on_line=seen.append
    )
    assert seen == ["one", "two", "three"]
    assert printed == "one\ntwo\nthree"
    assert seconds >= 0
    log, seen = CommandLog(), []
    with pytest.raises(ToolError, match="did not end within 10 s"):
        words = "echo one; sleep 600"
        log.stream("sh", "-c", words, timeout=SHELL_SECONDS, on_line=seen.append)
    assert seen == ["one"]
    assert log.commands[0].exit_code == -signal.SIGKILL


def test_an_error_while_reading_ends_the_tool() -> None:
    def refuse(line: str) -> None:
        raise ValueError(line)

    log = CommandLog()
    with pytest.raises(ValueError, match="one"):
        log.stream("sh", "-c", "echo one; sleep 600", timeout=600, on_line=refuse)
    assert log.commands[0].exit_code == -signal.SIGKILL


def test_a_server_that_ends_early_is_shown(tmp_path: Path) -> None:
    with Workplace(tmp_path) as place:
        child = place.start("server", "sh", "-c", "echo no such device; exit 4")
        with pytest.raises(ToolError, match=r"exited with 4 before it was ready:\nno such dev"):
            child.wait_ready(lambda: False, 300)


def test_the_end_of_a_workplace_ends_everything(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the plan fails"):
        with Workplace(tmp_path) as place:
            child = place.start("server", "sleep", "600")
            other = tmp_path / "elsewhere"
            other.mkdir()
            made = place.subdirectory(other, "data")
            (made / "file").write_text("x")
            raise RuntimeError("the plan fails")
    assert not alive(child.pid)
    assert list(other.iterdir()) == []
    assert not place.directory.exists()


_LEAVES = """
import os, signal, sys
from pathlib import Path
from hemi_lab.database.workplace import Workplace
# A shell's background jobs, and what they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
with Workplace(Path(sys.argv[1])) as place:
    elsewhere = Path(sys.argv[2])
    (place.subdirectory(elsewhere, "data") / "table").write_text("x")
    print(place.start("server", "sleep", "600").pid, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_a_killed_lab_leaves_is_swept(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, how: signal.Signals
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mine").write_text("not the lab's")
    lab = subprocess.Popen(
        [sys.executable, "-c", _LEAVES, str(tmp_path), str(elsewhere)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert lab.stdout is not None
    server = int(lab.stdout.readline())
    with Workplace(tmp_path) as mine:
        # It lives, so it is not swept.
        assert len(list(tmp_path.iterdir())) == 2
        lab.send_signal(how)
        lab.wait(300)
        wait_until(lambda: not alive(server))
        left = 2 if how is signal.SIGKILL else 1
        assert len(list(tmp_path.iterdir())) == left
        assert len(list(elsewhere.iterdir())) == left
        sweep(tmp_path)
        assert list(tmp_path.iterdir()) == [mine.directory]
        assert list(elsewhere.iterdir()) == [elsewhere / "mine"]
