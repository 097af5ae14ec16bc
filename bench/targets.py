"""The measured servers: hemi and its peers, each behind one interface.

All of them serve the same size from files that were written in full before, on the same file
system. They are loaded by the same client (fio's NBD engine on a unix socket), except `RawFile`,
which is fio on the file itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from hemi_harness import Fio, Nbdkit, Process, Sandbox, Volume, wait_until
from hemi_harness.hemi import leg_bytes
from hemi_harness.sandbox import Arg, answers

from .settings import Settings

# Outlives hemi, as the run directory of a host does.
MEMORY = Path("/dev/shm")


def mirror(
    box: Sandbox, legs: Sequence[str | Path], *, options: Sequence[Arg] = (), inject: bool = False
) -> Volume:
    """Returns a volume with its ledger on tmpfs. In a container hemi keeps none by itself."""
    ledger = ("--ledger", box.directory_in(MEMORY))
    return Volume(box, legs, options=[*options, *ledger], inject=inject)


class Target:
    """A running server."""

    def __init__(
        self, fio_target: str | Path, process: Process | None, nbdkit: Nbdkit | None = None
    ) -> None:
        self.fio_target = fio_target
        self._process = process
        self._nbdkit = nbdkit

    def ensure(self) -> None:
        """Starts nbdkit again if it died when a client left, as version 1.32 may."""
        if self._nbdkit:
            self._nbdkit.ensure()
            self._process = self._nbdkit.process

    def cpu_seconds(self) -> float | None:
        """Returns the processor time the server has used, or `None` if there is no server."""
        return self._process.cpu_seconds() if self._process else None


def write_in_full(path: Path, size: int) -> None:
    """Writes random bytes over the whole file: no holes, no unwritten extents, not compressible."""
    with Path("/dev/urandom").open("rb") as source, path.open("r+b") as f:
        left = size
        while left:
            chunk = source.read(min(left, 8 << 20))
            f.write(chunk)
            left -= len(chunk)
        f.flush()
        os.fsync(f.fileno())


class Bench:
    """Makes targets in one sandbox. Each name in `NAMES` has a method of the same name."""

    NAMES: Sequence[str] = (
        "hemi",
        "qemu-nbd",
        "quorum",
        "nbdkit-file",
        "nbdkit-memory",
        "file",
    )
    LABELS: ClassVar[dict[str, str]] = {
        "hemi": "**hemi**, two files",
        "hemi-usual": "hemi, at the usual priority",
        "qemu-nbd": "`qemu-nbd`, io_uring, one file",
        "quorum": "`qemu-storage-daemon` quorum, two files",
        "nbdkit-file": "`nbdkit file`, one file, page cache",
        "nbdkit-memory": "`nbdkit memory` (the socket's limit)",
        "file": "the file itself, io_uring, O_DIRECT",
    }

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Target]:
        """Yields a target by name, ready to be measured. Everything ends with the block."""
        with Sandbox(self.settings.directory) as box:
            yield getattr(self, "_" + name.replace("-", "_"))(box)

    def _full_file(self, box: Sandbox, name: str = "disk.img") -> Path:
        size = self.settings.volume_bytes
        path = box.file(name, size)
        write_in_full(path, size)
        return path

    def volume(self, box: Sandbox, *, options: Sequence[Arg] = (), inject: bool = False) -> Volume:
        """Returns hemi on two file legs, written in full through hemi itself."""
        legs: list[str | Path] = []
        for i in range(2):
            path = box.file(f"leg{i}.img", leg_bytes(self.settings.volume_bytes))
            write_in_full(path, path.stat().st_size)
            legs.append(path)
        volume = mirror(box, legs, options=options, inject=inject)
        wipe = [a for leg in legs for a in ("--wipe", leg)]
        volume.create(self.settings.volume_bytes, *wipe)
        volume.start()
        # `create` leaves the data area of wiped files unwritten. As with the peers' files, no
        # measured write is to be the first of its block.
        fill(box, volume.uri, self.settings.volume_bytes)
        volume.wait_converged(600)
        return volume

    def _hemi(self, box: Sandbox) -> Target:
        volume = self.volume(box)
        return Target(volume.uri, volume.process)

    def _hemi_usual(self, box: Sandbox) -> Target:
        """Returns hemi without the priority that it asks for."""
        volume = self.volume(box)
        for thread in Path(f"/proc/{volume.process.pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), 0)
        return Target(volume.uri, volume.process)

    def _qemu_nbd(self, box: Sandbox) -> Target:
        socket = box.path("qemu.sock")
        process = box.start(
            "qemu-nbd",
            "--persistent",
            "--shared=16",
            "--format=raw",
            "--cache=none",
            "--aio=io_uring",
            f"--socket={socket}",
            self._full_file(box),
            name="qemu-nbd",
        )
        return _served(process, socket)

    def _quorum(self, box: Sandbox) -> Target:
        legs = [f"driver=file,filename={self._full_file(box, f'q{i}.img')}" for i in range(2)]
        return quorum(box, [f"{leg},aio=io_uring,cache.direct=on" for leg in legs])

    def _nbdkit_file(self, box: Sandbox) -> Target:
        server = Nbdkit(box, self._full_file(box), filters=False)
        return Target(server.uri, server.process, server)

    def _nbdkit_memory(self, box: Sandbox) -> Target:
        server = Nbdkit(box, size=self.settings.volume_bytes, filters=False)
        fill(box, server.uri, self.settings.volume_bytes)
        return Target(server.uri, server.process, server)

    def _file(self, box: Sandbox) -> Target:
        return Target(self._full_file(box), None)


def quorum(box: Sandbox, legs: Sequence[str]) -> Target:
    """Returns qemu-storage-daemon's quorum over `legs` (blockdev options), reading from the
    first."""
    socket = box.path("quorum.sock")
    argv: list[Arg] = ["qemu-storage-daemon"]
    for i, leg in enumerate(legs):
        argv += ["--blockdev", f"{leg},node-name=leg{i}"]
    children = ",".join(f"children.{i}=leg{i}" for i in range(len(legs)))
    argv += [
        "--blockdev",
        f"driver=quorum,node-name=mirror,vote-threshold=1,read-pattern=fifo,{children}",
        "--nbd-server",
        f"addr.type=unix,addr.path={socket}",
        "--export",
        "type=nbd,id=export,node-name=mirror,name=,writable=on",
    ]
    return _served(box.start(*argv, name="quorum"), socket)


def fill(box: Sandbox, uri: str, size: int) -> None:
    """Writes a whole export once."""
    Fio(box, uri, rw="write", bs="1m", iodepth=8, size=size, refill_buffers=1).writes(600)


def _served(process: Process, socket: Path) -> Target:
    def ready() -> bool:
        process.check_running()
        return answers(socket)

    wait_until(f"{process.argv[0]} answers", ready)
    return Target(f"nbd+unix:///?socket={socket}", process)
