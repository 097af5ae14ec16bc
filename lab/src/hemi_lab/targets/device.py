"""A block device."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from pathlib import Path

from hemi_lab import tool
from hemi_lab.drivers.base import Driver, Outcome
from hemi_lab.drivers.fio.driver import FioDriver, find_fio, probe_engine
from hemi_lab.drivers.fio.job import Destination, file_name
from hemi_lab.drivers.load.driver import find_load
from hemi_lab.errors import LabError, ToolError, UsageError
from hemi_lab.targets import safety
from hemi_lab.targets.base import Description, Hazards, Needs, check_size, refuse_freezes
from hemi_lab.targets.queue import queue_facts

_BLKGETSIZE64 = 0x80081272
_BLKROGET = 0x125E

_WAY_OUT = "lsblk lists devices; a file that is to be made is file:PATH,size=1GiB."


class DeviceTarget:
    """A drive, a partition, or a loop or mapped device."""

    def __init__(self, text: str, path: Path) -> None:
        self.text = text
        self.path = str(path)
        # The engines run in directories of their own.
        self._path = path.absolute()

    def _number(self) -> tuple[int, int]:
        try:
            status = Path(self.path).stat()
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}", _WAY_OUT) from error
        if not stat.S_ISBLK(status.st_mode):
            raise UsageError(f"{self.path} is no block device", _WAY_OUT)
        return os.major(status.st_rdev), os.minor(status.st_rdev)

    def _bytes(self) -> int:
        return int(struct.unpack("Q", self._asked(_BLKGETSIZE64, bytes(8)))[0])

    def _asked(self, request: int, into: bytes) -> bytes:
        try:
            with Path(self.path).open("rb") as device:
                return fcntl.ioctl(device, request, into)
        except PermissionError as error:
            raise LabError(f"{self.path}: {error.strerror}", "Run it as root.") from error
        except OSError as error:
            raise LabError(
                f"{self.path}: {error.strerror}", "Look whether its drive is there."
            ) from error

    def describe(self) -> Description:
        """Describes the device as the kernel knows it."""
        facts = queue_facts(self._number())
        size = self._bytes()
        check_size(self.text, size)
        if struct.unpack("i", self._asked(_BLKROGET, bytes(4)))[0]:
            raise LabError(
                f"{self.path} is read-only",
                "Make it writable (blockdev --setrw, a loop device attached without --read-only, "
                "the drive's own write protection), or take another.",
            )
        return Description(self.text, "device", bytes=size, **facts)

    def hazards(self) -> Hazards:
        """Returns mounts, holders and swap, and partitions, signatures or data."""
        number = self._number()
        in_use = safety.uses_of_device(number) + safety.locks_on(Path(self.path).stat())
        if not in_use:
            in_use += self._held()
        holds = [f"partition {name}" for name in safety.partitions_of(number)]
        holds += safety.signatures(self.path) + safety.hemi_leg(self.path)
        if not holds:
            with Path(self.path).open("rb") as device:

                def read(offset: int, length: int) -> bytes:
                    device.seek(offset)
                    return device.read(length)

                holds = safety.content(read, self._bytes())
        return Hazards(in_use, holds)

    def _held(self) -> list[str]:
        """Asks the kernel: a mounted or held device refuses O_EXCL."""
        try:
            os.close(os.open(self.path, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            return [f"the kernel refuses it for exclusive use ({error.strerror})"]
        return []

    def check(self, needs: Needs) -> None:
        """Raises if an engine or the right to write is missing."""
        refuse_freezes(self.text, needs)
        find_fio()
        if needs.timed:
            find_load()
        if not os.access(self.path, os.R_OK | os.W_OK):
            raise LabError(f"{self.path} cannot be written by this user", "Run it as root.")

    def open(self, seed: int) -> Driver:
        """Opens it with fio and O_DIRECT."""
        block = int(queue_facts(self._number()).get("logical_block_bytes") or 512)
        options = {"filename": file_name(self._path), "direct": "1"}
        engine, notes = probe_engine(options, self._bytes(), max(block, 4096))
        destination = Destination(options, engine, self._bytes(), block)
        return FioDriver(destination, self._purge, notes=notes)

    def _purge(self) -> Outcome:
        try:
            tool.run(["blkdiscard", "--force", self.path])
        except ToolError as error:
            return Outcome(False, f"the device takes no discard: {error.what}")
        return Outcome(True, "every block discarded (blkdiscard)")
