"""Programs that the lab runs end with it, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hemi_lab import tool
from hemi_lab.errors import ToolError

# A shell starts background jobs with Ctrl-C ignored, and so would the lab.
_RUNS = """
import signal
import sys
from pathlib import Path
from hemi_lab import tool
signal.signal(signal.SIGINT, signal.default_int_handler)
tool.run(["sh", "-c", f"echo $$ > {sys.argv[1]}; exec sleep 600"])
"""


def alive(pid: int) -> bool:
    """Returns true if a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for_pid(note: Path) -> int:
    for _ in range(1200):
        if note.exists() and note.read_text().strip():
            return int(note.read_text())
        time.sleep(0.1)
    pytest.fail("the program did not start")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_program_outlives_the_lab(how: signal.Signals, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    lab = subprocess.Popen([sys.executable, "-c", _RUNS, str(note)], stderr=subprocess.DEVNULL)
    program = wait_for_pid(note)
    assert alive(program)
    lab.send_signal(how)
    lab.wait(60)
    for _ in range(1200):
        if not alive(program):
            return
        time.sleep(0.1)
    pytest.fail("the program goes on")


def test_a_failure_has_the_programs_own_words() -> None:
    with pytest.raises(ToolError, match=r"sh failed: wrong disk\n\nout\n[\s\S]*exit 3") as failed:
        tool.run(["sh", "-c", "echo out; echo wrong disk >&2; exit 3"])
    assert failed.value.message == "wrong disk\n\nout"
    with pytest.raises(ToolError, match="exited with 4"):
        tool.run(["sh", "-c", "exit 4"])
    with pytest.raises(ToolError, match="hemi-no-such-tool"):
        tool.run(["hemi-no-such-tool"])


def test_output_that_is_no_text_is_kept_as_well_as_it_can_be() -> None:
    found = tool.run(["printf", "a\\377b"])
    assert found.output == "a\ufffdb"
