"""`hemi top` on a terminal, judged by its output."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest
from hemi_harness import HEMI, Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB
from hemi_harness.journal import Journal

SIZE = 32 * MIB
FRAME = re.compile(r"\x1b\[\?2026h\x1b\[H(.*?)\x1b\[J\x1b\[\?2026l", re.S)
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


class Screen:
    """A terminal that runs `hemi top`."""

    def __init__(self, *argv: str | os.PathLike[str], columns: int = 110, rows: int = 30) -> None:
        self.main, self.other = pty.openpty()
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.other)
        env = dict(os.environ, TERM="xterm-256color", LC_ALL="C.UTF-8")
        env.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [HEMI, "top", *argv],
            stdin=self.other,
            stdout=self.other,
            stderr=self.other,
            env=env,
            start_new_session=True,
        )
        self.text = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> str:
        while select.select([self.main], [], [], 0.05)[0]:
            self.text += os.read(self.main, 1 << 16).decode()
        return self.text

    def lines(self) -> list[str]:
        """Returns the newest screen, without styles."""
        frames = FRAME.findall(self.read())
        if not frames:
            return []
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frames[-1])
        return plain.split("\r\n")

    def shows(self, what: str) -> None:
        try:
            wait_until(f"it shows {what!r}", lambda: any(what in line for line in self.lines()))
        except AssertionError as error:
            raise AssertionError(f"{error}\n" + "\n".join(self.lines())) from None

    def press(self, keys: str) -> None:
        os.write(self.main, keys.encode())

    def ended(self) -> int:
        def gone() -> bool:
            self.read()
            return self.process.poll() is not None

        wait_until("it ends", gone)
        self.read()
        return int(self.process.returncode)

    def is_as_before(self) -> None:
        assert self.text.count(ENTER) == 1
        tail = self.text[self.text.rindex(ENTER) :]
        assert LEAVE in tail, "its own screen is left, and the cursor is back"
        assert termios.tcgetattr(self.other) == self.before

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.main)
        os.close(self.other)


@pytest.fixture
def volume(sandbox: Sandbox) -> Volume:
    return Volume.on_files(sandbox, SIZE, inject=True, create=("--name", "shown"))


@pytest.fixture
def screen(volume: Volume) -> Iterator[Screen]:
    screen = Screen("--control", volume.control)
    yield screen
    screen.close()


def test_it_is_live_and_keys_work(volume: Volume, screen: Screen) -> None:
    screen.shows("shown  32 MiB  healthy")
    screen.shows("Every promise holds.")
    assert len(screen.lines()) == 30
    journal = Journal(volume.uri, blocks=1024)
    assert journal.run(300)
    screen.shows("write")
    volume.inject(1, "--freeze", "1h")
    assert journal.run(300)
    screen.shows("frozen")
    screen.press("\x1b[B\x1b[Bd")
    screen.shows(str(volume.legs[1]))
    screen.press("?")
    screen.shows("this page, and back")
    screen.press("\x1b")
    screen.shows("exposure")
    screen.press("p")
    screen.shows("PAUSED")
    volume.inject(1, "--clear")
    volume.wait_converged()
    time.sleep(2)
    assert any("frozen" in line for line in screen.lines()), "it is paused"
    screen.press("p")
    screen.shows("Every promise holds.")
    screen.press("s")
    screen.shows("by what they owe")
    screen.press("q")
    assert screen.ended() == 0
    screen.is_as_before()


def test_it_follows_the_size_of_the_terminal(screen: Screen) -> None:
    screen.shows("healthy")
    for columns, rows in ((60, 12), (200, 50), (20, 4), (1, 1)):
        screen.resize(columns, rows)

        def fits(columns: int = columns, rows: int = rows) -> bool:
            lines = screen.lines()
            return len(lines) == rows and all(len(line) <= columns for line in lines)

        wait_until(f"it fits {columns} x {rows}", fits)
    screen.press("\x03")
    assert screen.ended() == 0
    screen.is_as_before()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(screen: Screen, number: signal.Signals) -> None:
    screen.shows("healthy")
    screen.process.send_signal(number)
    assert screen.ended() == 0
    screen.is_as_before()


def test_a_volume_that_ends_is_waited_for(volume: Volume, screen: Screen) -> None:
    screen.shows("healthy")
    volume.kill()
    wait_until("it says so", lambda: "ying again" in screen.read() or "Waiting" in screen.read())
    volume.start()
    screen.shows("served for")
    screen.shows("Every promise holds.")
    screen.press("q")
    assert screen.ended() == 0


def test_one_screen_is_printed_where_there_is_no_terminal(volume: Volume) -> None:
    for argv in (("--once",), ()):
        text = volume.command("top", *argv)
        assert "\x1b" not in text
        assert text.count("shown  32 MiB") == 1
        assert "exposure" in text and "queue" in text
    refused = subprocess.run(
        [HEMI, "top", "--control", "/nonexistent"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1 and "/nonexistent" in refused.stderr
