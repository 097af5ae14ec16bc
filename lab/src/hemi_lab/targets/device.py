"""A block device."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from pathlib import Path

from hemi_lab import tool
from hemi_lab.drivers.base import Driver, Outcome
from hemi_lab.drivers.fio.driver import FioDriver, probe_engine
from hemi_lab.drivers.fio.job import Destination
from hemi_lab.errors import LabError, ToolError, UsageError
from hemi_lab.targets import safety
from hemi_lab.targets.base import Description, Hazards
from hemi_lab.targets.queue import queue_facts

_BLKGETSIZE64 = 0x80081272


class DeviceTarget:
    """A whole drive, a partition, a loop or mapped device."""

    def __init__(self, text: str, path: Path) -> None:
        self.text = text
        self.path = str(path)

    def _number(self) -> tuple[int, int]:
        try:
            status = Path(self.path).stat()
        except OSError as error:
            raise UsageError(f"{self.path}: {error.strerror}", "lsblk lists devices.") from error
        if not stat.S_ISBLK(status.st_mode):
            raise UsageError(f"{self.path} is no block device", "lsblk lists devices.")
        return os.major(status.st_rdev), os.minor(status.st_rdev)

    def _bytes(self) -> int:
        try:
            with Path(self.path).open("rb") as device:
                answer = fcntl.ioctl(device, _BLKGETSIZE64, bytes(8))
        except OSError as error:
            raise LabError(f"{self.path}: {error.strerror}", "Run it as root.") from error
        return int(struct.unpack("Q", answer)[0])

    def describe(self) -> Description:
        """What the kernel knows of it."""
        facts = queue_facts(self._number())
        return Description(self.text, "device", bytes=self._bytes(), **facts)

    def hazards(self) -> Hazards:
        """Mounts, holders and swap; partitions, signatures, data."""
        number = self._number()
        in_use = safety.uses_of_device(number)
        if not in_use:
            in_use += self._held()
        holds = [f"partition {name}" for name in safety.partitions_of(number)]
        holds += safety.signatures(self.path)
        if not holds:
            with Path(self.path).open("rb") as device:

                def read(offset: int, length: int) -> bytes:
                    device.seek(offset)
                    return device.read(length)

                holds = safety.content(read, self._bytes())
        return Hazards(in_use, holds)

    def _held(self) -> list[str]:
        """The kernel's own word: a device that is mounted or held refuses O_EXCL."""
        try:
            os.close(os.open(self.path, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            return [f"the kernel refuses it for exclusive use ({error.strerror})"]
        return []

    def open(self, seed: int) -> Driver:
        """fio with O_DIRECT."""
        block = int(queue_facts(self._number()).get("logical_block_bytes") or 512)
        options = {"filename": self.path, "direct": "1"}
        engine, notes = probe_engine(options, self._bytes(), max(block, 4096))
        destination = Destination(options, engine, self._bytes(), block)
        return FioDriver(destination, self._purge, notes=notes)

    def _purge(self) -> Outcome:
        try:
            tool.run(["blkdiscard", "--force", self.path])
        except ToolError as error:
            return Outcome(False, f"the device takes no discard: {error.what}")
        return Outcome(True, "every block discarded (blkdiscard)")
