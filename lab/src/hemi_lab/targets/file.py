"""A file on a file system."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from hemi_lab import tool
from hemi_lab.drivers.base import Driver, Outcome
from hemi_lab.drivers.fio.driver import FioDriver, find_fio, probe_engine
from hemi_lab.drivers.fio.job import Destination, file_name
from hemi_lab.drivers.load.driver import find_load
from hemi_lab.errors import LabError, ToolError, UsageError
from hemi_lab.targets import safety
from hemi_lab.targets.base import (
    Description,
    Hazards,
    Needs,
    check_room,
    check_size,
    refuse_freezes,
)
from hemi_lab.targets.queue import queue_facts

_BLOCK = 512


class FileTarget:
    """A file, created with `size` if it does not exist."""

    def __init__(self, text: str, path: Path, size: int | None) -> None:
        self.text = text
        self.path = str(path)
        # The engines run in directories of their own.
        self._path = path.absolute()
        self._size = size

    def _bytes(self) -> int:
        if self._path.is_dir():
            raise UsageError(f"{self.path} is a directory", "Name a file in it, with a size.")
        if self._path.is_block_device():
            # As a file it would look empty and unused.
            raise UsageError(
                f"target {self.text!r}: {self.path} is a block device",
                f"Name it as one, all of it: device:{self.path}",
            )
        if self._path.exists() and not self._path.is_file():
            raise UsageError(
                f"target {self.text!r}: {self.path} is no regular file", "Name another."
            )
        if self._path.exists():
            present = self._path.stat().st_size
            return self._size if self._size is not None else present
        if self._size is None:
            raise UsageError(
                f"{self.path} does not exist", f"Say how large: file:{self.path},size=1GiB"
            )
        if not self._path.parent.is_dir():
            raise UsageError(f"{self._path.parent} is no directory", "Create it first.")
        return self._size

    def describe(self) -> Description:
        """Describes the file, its file system and the drive below."""
        size = self._bytes()
        check_size(self.text, size)
        folder = self._path.parent
        device = folder.stat().st_dev
        facts = queue_facts((os.major(device), os.minor(device)))
        return Description(
            self.text,
            "file",
            bytes=size,
            file_system=file_system_of(folder),
            **facts,
        )

    def hazards(self) -> Hazards:
        """Returns its loop devices, swap and locks, and whether it holds data."""
        if not self._path.exists():
            return Hazards()
        self._bytes()
        with self._path.open("rb") as file:

            def read(offset: int, length: int) -> bytes:
                file.seek(offset)
                return file.read(length)

            holds = safety.hemi_leg(self.path)
            holds = holds or safety.content(read, self._path.stat().st_size)
        return Hazards(safety.uses_of_file(self._path), holds)

    def check(self, needs: Needs) -> None:
        """Raises if an engine or room for the file is missing."""
        refuse_freezes(self.text, needs)
        find_fio()
        if needs.timed:
            find_load()
        written = self._path if self._path.exists() else self._path.parent
        if not os.access(written, os.W_OK):
            raise LabError(
                f"target {self.text!r}: {written} cannot be written by this user",
                "Take a place that can be written.",
            )
        check_room(
            f"target {self.text!r}: it needs", self._path.parent, self._bytes() - self._present()
        )

    def _present(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def open(self, seed: int) -> Driver:
        """Creates the file, or extends it to its size."""
        # Create nothing if nothing can run.
        self.check(Needs())
        size, present = self._bytes(), self._present()
        try:
            with self._path.open("ab") as file:
                if present < size:
                    file.truncate(size)
        except OSError as error:
            raise LabError(f"{self.path}: {error}", "Take a place that can be written.") from error
        direct, notes = _direct(self._path)
        options = {"filename": file_name(self._path), "direct": str(int(direct))}
        # The probe by the null engine does not test O_DIRECT, so this one does.
        engine, more = probe_engine(options, size, 4096)
        destination = Destination(options, engine, size, self._block())
        return FioDriver(destination, self._purge, notes=notes + more)

    def _block(self) -> int:
        device = self._path.parent.stat().st_dev
        facts = queue_facts((os.major(device), os.minor(device)))
        return int(facts.get("logical_block_bytes") or _BLOCK)

    def _purge(self) -> Outcome:
        size = self._path.stat().st_size
        command = ["fallocate", "--punch-hole", "--offset", "0", "--length", str(size)]
        command += ["--", str(self._path)]
        try:
            tool.run(command)
        except ToolError as error:
            return Outcome(False, f"holes could not be punched: {error.what}")
        return Outcome(
            True,
            "the file's blocks were given back to the file system; whether it discarded them on "
            "the drive is its own affair",
        )


def _direct(path: Path) -> tuple[bool, list[str]]:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise LabError(f"{path}: {error}", "Take a file that can be read.") from error
        return False, ["the file system has no O_DIRECT: the page cache is measured too"]
    return True, []


def file_system_of(folder: Path) -> str | None:
    """Returns the type of the file system that holds a directory, as `/proc/mounts` names it."""
    try:
        # Not `stat --file-system`, which does not tell ext2, ext3 and ext4 apart.
        text = tool.run(["findmnt", "-no", "FSTYPE", "--target", str(folder)]).output
    except ToolError:
        return None
    return text.strip() or None
