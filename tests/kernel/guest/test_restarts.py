"""Servers that end under load in every way: users of the device see only a pause."""

from __future__ import annotations

import fcntl
import random
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kernel_guest import DEVICE, HEMI, PATIENCE, ROUNDS, Volume, hemi, messages, run, wait_until

#: Seconds in which a request has to be answered although its server was killed.
PAUSE_MAX = 5.0
#: Seconds within which a program takes over a device, after it begins to serve.
TAKE_OVER_MAX = 0.05
#: Seconds in which a volume is served again without a leg that hangs.
HANGING_START_MAX = 15.0
#: Decides the moments of kills.
SEED = random.SystemRandom().randrange(1 << 32)


class Pulse(threading.Thread):
    """Writes and flushes a counter in a file, again and again. Flushed values must persist."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.flushed = 0
        self.longest = 0.0
        self.error: OSError | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        import os

        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT)
        try:
            while not self.ended.is_set():
                began = time.monotonic()
                os.pwrite(descriptor, f"{self.flushed + 1:16}".encode() * 256, 0)
                os.fsync(descriptor)
                self.longest = max(self.longest, time.monotonic() - began)
                self.flushed += 1
        except OSError as error:
            self.error = error
        finally:
            os.close(descriptor)

    def wait_for_more(self) -> None:
        before = self.flushed
        wait_until("writes go on", lambda: self.flushed > before or self.error is not None)
        assert self.error is None, self.error

    def end(self) -> None:
        self.ended.set()
        self.join(30)
        assert not self.is_alive() and self.error is None, self.error


def is_locked(path: str) -> bool:
    """Returns true if somebody holds the lock of a leg."""
    with Path(path).open("rb") as leg:
        try:
            fcntl.flock(leg, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def hanging_leg(volume: Volume) -> Iterator[None]:
    """Puts a device that can be suspended in front of the volume's second disk."""
    sectors = int(run("blockdev", "--getsz", "/dev/ram1"))
    run("dmsetup", "create", "hanging", "--table", f"0 {sectors} linear /dev/ram1 0")
    run("dmsetup", "mknodes")
    volume.legs = ["/dev/ram0", "/dev/mapper/hanging"]
    try:
        yield
    finally:
        run("dmsetup", "resume", "hanging", expect=None)
        if volume.server is not None:
            volume.kill()
        run("dmsetup", "remove", "--retry", "hanging", expect=None)


def mounted(mount: Path) -> None:
    run("mkfs.ext4", "-q", str(DEVICE))
    mount.mkdir(exist_ok=True)
    run("mount", str(DEVICE), str(mount))


def pulsing(volume: Volume, mount: Path) -> Pulse:
    """Serves the volume as a device, mounts it, and begins to write."""
    volume.start("--device", "--ledger", "/run")
    mounted(mount)
    pulse = Pulse(mount / "counter")
    pulse.start()
    return pulse


def assert_alike() -> None:
    wait_until("the legs are whole", lambda: "healthy" in hemi("status").splitlines()[0])
    assert hemi("scrub").strip() == "all legs of vol are alike"


def test_a_file_system_survives_kills_and_stops(volume: Volume) -> None:
    mount = Path("/run/mount")
    pulse = pulsing(volume, mount)
    for number in range(ROUNDS):
        pulse.wait_for_more()
        if number % 3 == 2:
            volume.stop()
        else:
            volume.kill()
        # Starts that request the device alternate with starts that only find it.
        more = ("--device",) if number % 2 == 0 else ()
        volume.start("--ledger", "/run", *more)
    pulse.wait_for_more()
    pulse.end()
    run("umount", str(mount))
    assert messages() == []
    run("fsck.ext4", "-fn", str(DEVICE))
    run("mount", str(DEVICE), str(mount))
    assert int((mount / "counter").read_bytes()[:16]) >= pulse.flushed
    run("umount", str(mount))
    assert_alike()
    print(f"{ROUNDS} restarts, {pulse.flushed} flushes, longest pause {pulse.longest:.2f} s")
    assert pulse.longest < PAUSE_MAX


def test_a_file_system_survives_upgrades(volume: Volume) -> None:
    """Upgrades in the same process, which still takes the device over from its earlier program."""
    mount = Path("/run/mount")
    moments = random.Random(SEED)
    pulse = pulsing(volume, mount)
    for number in range(ROUNDS):
        pulse.wait_for_more()
        volume.upgrade()
        # A device can be taken over again, also while it is being taken over. The second of three
        # is killed at any moment, from before it begins to after it is done.
        if number % 3 != 1:
            volume.wait_attached()
        else:
            time.sleep(moments.uniform(0, TAKE_OVER_MAX))
        if number % 3 != 0:
            volume.kill()
            volume.start("--ledger", "/run")
    pulse.wait_for_more()
    pulse.end()
    run("umount", str(mount))
    assert messages() == []
    run("fsck.ext4", "-fn", str(DEVICE))
    assert_alike()
    print(f"seed {SEED}: {ROUNDS} upgrades, {pulse.flushed} flushes, {pulse.longest:.2f} s at most")
    assert pulse.longest < PAUSE_MAX


def test_every_tag_in_use_when_the_server_is_killed(volume: Volume) -> None:
    """Sends more requests than there are tags. The kernel must notice that the server is gone."""
    volume.start("--device", "--ledger", "/run")
    load = subprocess.Popen(
        [
            "fio",
            "--name=deep",
            f"--filename={DEVICE}",
            "--rw=randwrite",
            "--bs=4k",
            "--direct=1",
            "--ioengine=libaio",
            "--iodepth=256",
            "--size=32m",
            "--io_size=1g",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_backlog=512",
            "--verify_state_save=0",
            "--time_based",
            f"--runtime={4 + ROUNDS}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    for _ in range(min(ROUNDS, 20)):
        time.sleep(0.5)
        # Nothing is answered from here on, so all tags are soon in use.
        hemi("inject", "--leg", "0", "--freeze", "10s")
        hemi("inject", "--leg", "1", "--freeze", "10s")
        time.sleep(0.3)
        volume.kill()
        began = time.monotonic()
        volume.start("--ledger", "/run")
        assert time.monotonic() - began < PAUSE_MAX
    output, _ = load.communicate(timeout=120)
    assert load.returncode == 0, output
    assert messages() == []


def waiting() -> list[str]:
    """Returns the names of threads of hemi that wait for something which no signal ends."""
    states = []
    for task in Path("/proc").glob("[0-9]*/task/*/stat"):
        with suppress(OSError):
            states.append(re.split(r"[()] ?", task.read_text())[1:3])
    return [name for name, state in states if state[0] == "D" and name.startswith(("hemi", "exe"))]


@pytest.fixture
def unanswered(volume: Volume) -> Iterator[subprocess.Popen[bytes]]:
    """A read of the device that its server does not answer. The device has a setting to change."""
    volume.start("--device", "--ledger", "/run")
    Path(f"/sys/block/{DEVICE.resolve().name}/queue/nr_requests").write_text("64")
    for leg in ("0", "1"):
        hemi("inject", "--leg", leg, "--freeze", "10min")
    command = ["dd", f"if={DEVICE}", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"]
    yield subprocess.Popen(command, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("volume", ["ublk"], indirect=True)
def test_a_server_can_be_killed_while_it_changes_its_queue(
    volume: Volume, unanswered: subprocess.Popen[bytes]
) -> None:
    """The kernel waits for all requests first, and those of a killed server are never answered."""
    attach = subprocess.Popen([HEMI, "attach"], stderr=subprocess.DEVNULL)
    wait_until("the queue is to be changed", lambda: bool(waiting()))
    volume.kill()
    assert attach.wait(PATIENCE) != 0
    volume.start("--ledger", "/run")
    assert unanswered.wait(PATIENCE) == 0
    wait_until("nothing waits any more", lambda: not waiting())
    assert Path(f"/sys/block/{DEVICE.resolve().name}/queue/nr_requests").read_text() == "127\n"
    assert messages() == []


@pytest.mark.parametrize("volume", ["ublk"], indirect=True)
def test_a_device_with_requests_in_flight_is_in_use(
    volume: Volume, unanswered: subprocess.Popen[bytes]
) -> None:
    assert "is in use" in hemi("detach-device", expect=3)
    volume.kill()
    volume.start("--ledger", "/run")
    assert unanswered.wait(PATIENCE) == 0
    hemi("detach-device")
    assert messages() == []


def test_a_server_that_is_killed_while_a_leg_hangs_ends_first(volume: Volume) -> None:
    """Checks that the old server's writes, which may still land, come before its successor's."""
    with hanging_leg(volume):
        volume.create()
        volume.start("--device", "--ledger", "/run")
        mount = Path("/run/mount")
        mounted(mount)
        pulse = Pulse(mount / "counter")
        pulse.start()
        for _ in range(min(ROUNDS, 5)):
            pulse.wait_for_more()
            run("dmsetup", "suspend", "--noflush", "--nolockfs", "hanging")
            time.sleep(0.3)
            assert volume.server is not None
            volume.server.kill()
            wait_until("the other leg's lock falls", lambda: not is_locked("/dev/ram0"), 5)
            volume.start("--ledger", "/run", wait=False)
            time.sleep(0.7)
            run("dmsetup", "resume", "hanging")
            volume.wait_attached()
        pulse.wait_for_more()
        pulse.end()
        run("umount", str(mount))
        assert messages() == []
        run("fsck.ext4", "-fn", str(DEVICE))
        wait_until("the legs are whole", lambda: "healthy" in hemi("status").splitlines()[0])
        assert hemi("scrub").strip() == "all legs of vol are alike"


def test_a_leg_that_hangs_and_is_out_holds_up_no_start(volume: Volume) -> None:
    with hanging_leg(volume):
        volume.create()
        volume.start("--device", "--ledger", "/run", "--set", "engine.out_after=2s")
        mount = Path("/run/mount")
        mounted(mount)
        pulse = Pulse(mount / "counter")
        pulse.start()
        pulse.wait_for_more()
        run("dmsetup", "suspend", "--noflush", "--nolockfs", "hanging")
        wait_until("the leg is out", lambda: " out" in hemi("status"))
        volume.kill()
        began = time.monotonic()
        volume.start("--ledger", "/run")
        assert time.monotonic() - began < HANGING_START_MAX
        assert "is still in flight" in volume.log()
        pulse.wait_for_more()
        pulse.end()
        run("umount", str(mount))
        assert messages() == []
        run("fsck.ext4", "-fn", str(DEVICE))
