#!/usr/bin/env python3
"""Checks that ext4 on a volume survives kill -9 of `hemi serve` under load with one leg frozen.

The volume is on two exports of nbdkit, so that a leg freezes outside hemi. ext4 is on the volume
through nbdfuse and a loop device. Writers create files and fsync them. Every file whose fsync
returned is remembered outside the volume, with its checksum. Then a leg freezes, writing goes on,
`hemi serve` is killed with SIGKILL, and the leg thaws, which lets requests of the dead hemi land
late. hemi starts again, a mount replays the journal, and:

- every remembered file exists with its content,
- e2fsck finds nothing to repair.

`make crash-ext4` runs it with either leg frozen. `--rounds N` repeats it on one volume.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hemi_harness import Nbdkit, Sandbox, Volume
from hemi_harness.hemi import MIB, leg_bytes
from hemi_harness.mounts import FileSystem, FuseDisk

SIZE = 512 * MIB
WRITERS = 4


class Writers:
    """Threads that write files and remember those whose fsync has returned."""

    def __init__(self, root: Path, number: int) -> None:
        self._root = root / f"round{number}"
        self._root.mkdir()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.synced: dict[str, str] = {}
        self._threads = [
            threading.Thread(target=self._write, args=(i,), daemon=True) for i in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, writer: int) -> None:
        number = 0
        while not self._stop.is_set():
            path = self._root / f"w{writer}-{number}"
            number += 1
            data = os.urandom(4096 + 997 * (number % 64))
            try:
                with path.open("wb") as f:
                    f.write(data)
                    f.flush()
                    os.fsync(f.fileno())
            except OSError:
                # The volume is gone. Unsynced data was not promised.
                return
            with self._lock:
                self.synced[f"{self._root.name}/{path.name}"] = hashlib.sha256(data).hexdigest()

    def count(self) -> int:
        with self._lock:
            return len(self.synced)

    def wait_for(self, more: int, limit: float = 120) -> None:
        """Waits until `more` files are synced."""
        goal, deadline = self.count() + more, time.monotonic() + limit
        while self.count() < goal:
            assert time.monotonic() < deadline, f"fewer than {more} fsyncs in {limit:g} s"
            time.sleep(0.01)

    def finish(self) -> dict[str, str]:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), "a writer still waits for the dead volume"
        return self.synced


def survive(box: Sandbox, frozen: int, rounds: int, say: Callable[[str], object]) -> None:
    """Runs rounds on one volume. In each, leg `frozen` freezes under load and hemi is killed."""
    backing = [box.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
    legs = [Nbdkit(box, path) for path in backing]
    # A thawed server carries out at once the requests it has received.
    volume = Volume(box, [leg.uri for leg in legs], quarantine="3s")
    volume.create(SIZE)
    volume.start()
    volume.wait_converged()
    disk = FuseDisk(box, volume.socket)
    FileSystem(box, disk.device, "ext4").make()
    remembered: dict[str, str] = {}
    for number in range(rounds):
        fs = FileSystem(box, disk.device, "ext4")
        writers = Writers(fs.mount(), number)
        writers.wait_for(40)
        legs[frozen].pause()
        # These fsyncs return although the leg does not answer.
        writers.wait_for(60)
        volume.wait_leg_state(frozen, "frozen", "lagging")
        volume.kill()
        remembered |= writers.finish()
        fs.abandon()
        disk.abandon()
        legs[frozen].resume()
        for leg in legs:
            leg.forget_client()
        volume.start()

        disk = FuseDisk(box, volume.socket)
        fs = FileSystem(box, disk.device, "ext4")
        root = fs.mount()
        check(root, remembered)
        fs.unmount()
        fs.check()
        say(
            f"leg {frozen} frozen, round {number + 1} of {rounds}: {len(remembered)} fsynced "
            "files intact, e2fsck clean"
        )
    volume.wait_converged()


def check(root: Path, remembered: dict[str, str]) -> None:
    """Fails unless every remembered file exists with its content."""
    lost = [
        name
        for name, digest in remembered.items()
        if not (root / name).is_file()
        or hashlib.sha256((root / name).read_bytes()).hexdigest() != digest
    ]
    assert not lost, f"{len(lost)} of {len(remembered)} fsynced files lost: {sorted(lost)[:5]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="kills per frozen leg (default 5)")
    rounds = parser.parse_args().rounds
    if os.geteuid() != 0:
        raise SystemExit("needs root, for the loop device and the mount")
    for frozen in (0, 1):
        with Sandbox() as box:
            survive(box, frozen, rounds, lambda text: print(text, flush=True))
    print("ext4 survived: every fsynced file intact, e2fsck clean after every kill")


if __name__ == "__main__":
    main()
