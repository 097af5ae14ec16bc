"""Targets of a database: a directory, a block device, an NBD export or a hemi volume.

Each kind can become a directory (`open`) and end that (`OpenTarget.close`). Everything made for it
belongs to the workplace, so nothing is left over if `close` is not reached.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from hemi_lab.errors import LabError

from .workplace import Workplace, unmount

FileSystem = Literal["ext4", "xfs"]

_MKFS: dict[FileSystem, list[str]] = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}
_FSCK: dict[FileSystem, list[str]] = {"ext4": ["e2fsck", "-f", "-n"], "xfs": ["xfs_repair", "-n"]}


@dataclass
class OpenTarget:
    """A target in use."""

    directory: Path
    """Empty, and the database's alone."""
    description: dict[str, Any]
    """Description of the target for the result."""
    observe: Callable[[], dict[str, Any] | None] = field(default=lambda: None)
    """Returns the target's current status (of a hemi volume), or None."""
    closers: list[Callable[[], object]] = field(default_factory=list)

    def close(self) -> None:
        """Releases everything. Raises if something is not as it should be (fsck)."""
        while self.closers:
            self.closers.pop()()

    def free_bytes(self) -> int:
        """Returns the free bytes of its file system."""
        return shutil.disk_usage(self.directory).free


class Target(Protocol):
    """A target that can hold a database."""

    def open(self, place: Workplace) -> OpenTarget:
        """Prepares the target."""


@dataclass(frozen=True)
class DirectoryTarget:
    """A directory on a mounted file system. Only a new subdirectory of it is used."""

    path: Path

    def open(self, place: Workplace) -> OpenTarget:
        """Creates the subdirectory."""
        if not self.path.is_dir():
            raise LabError(f"target {self.path} is not a directory; make it first")
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise LabError(f"target {self.path} is not writable by this user")
        directory = place.subdirectory(self.path.absolute(), "hemi-lab-oltp")
        return OpenTarget(
            directory,
            {"kind": "directory", "path": str(self.path), **_mounted(place, directory)},
            closers=[lambda: shutil.rmtree(directory)],
        )


@dataclass(frozen=True)
class DeviceTarget:
    """A block device on which a new file system is created. All data on it is lost."""

    device: Path
    file_system: FileSystem = "ext4"
    wipe: bool = False
    """Allows destroying data on the device, but never a device in use."""

    def open(self, place: Workplace) -> OpenTarget:
        """Creates and mounts the file system."""
        if not self.device.is_block_device():
            raise LabError(f"target {self.device} is not a block device")
        try:
            # The kernel refuses this while it is mounted, or held by another driver.
            os.close(os.open(self.device, os.O_RDWR | os.O_EXCL))
        except OSError as error:
            raise LabError(
                f"target {self.device} cannot be used: {error.strerror}; unmount it, or name "
                "another device"
            ) from error
        found = place.log.run("wipefs", "--no-act", "--noheadings", self.device).strip()
        if found and not self.wipe:
            raise LabError(
                f"target {self.device} is not empty; name it as one to be wiped if what is on it "
                f"may be destroyed:\n{found}"
            )
        place.log.run(*_MKFS[self.file_system], self.device, timeout=600)
        point = place.mount(self.device)
        directory = place.subdirectory(point, "database")

        def end() -> None:
            shutil.rmtree(directory)
            place.log.run("umount", point, timeout=600)
            place.log.run(*_FSCK[self.file_system], self.device, timeout=3600)

        description = {"kind": "device", "device": str(self.device), **_mounted(place, directory)}
        return OpenTarget(directory, description, closers=[end])


@dataclass(frozen=True)
class NbdTarget:
    """An NBD export, through nbdfuse and a loop device (no kernel module is needed).

    This path is for function rather than speed, since each request passes the kernel three times.
    Its results are comparable only with each other.
    """

    uri: str
    file_system: FileSystem = "ext4"
    wipe: bool = False
    """Allows destroying data on the export."""

    def open(self, place: Workplace) -> OpenTarget:
        """Attaches the export, and creates and mounts the file system."""
        mounted_on = place.path("fuse")
        mounted_on.mkdir()
        file = mounted_on / "disk"
        nbdfuse = place.start("nbdfuse", "nbdfuse", file, self.uri)
        place.defer(lambda: unmount(mounted_on))
        nbdfuse.wait_ready(lambda: os.path.ismount(mounted_on) and file.exists(), 30)
        device = place.loop(file)
        opened = DeviceTarget(device, self.file_system, self.wipe).open(place)

        def end() -> None:
            place.log.run("losetup", "--detach", device)
            nbdfuse.wait_ready(lambda: not Path(f"/sys/block/{device.name}/loop").exists(), 60)
            place.log.run("fusermount3", "-u", mounted_on)

        opened.closers.insert(0, end)
        opened.description |= {
            "kind": "nbd",
            "uri": self.uri,
            "path": "NBD, nbdfuse, loop device with O_DIRECT",
        }
        return opened


class Volume(Protocol):
    """A hemi volume that is served."""

    def export(self) -> str:
        """Returns the URI of its export."""

    def status(self) -> dict[str, Any]:
        """Returns its status."""


class Made(Protocol):
    """A volume that was made for the run."""

    def shown(self) -> str:
        """Returns the commands that repeat it."""

    def stop(self) -> None:
        """Stops it. Raises if it does not end in order."""

    def remove(self) -> None:
        """Removes it, whatever has failed."""


@dataclass(frozen=True)
class HemiTarget:
    """A hemi volume, through its export."""

    serve: Callable[[], AbstractContextManager[tuple[Volume, Made | None]]]
    """Serves it, unless it is served already."""
    file_system: FileSystem = "ext4"
    wipe: bool = False
    """Allows destroying data on the volume."""

    def open(self, place: Workplace) -> OpenTarget:
        """Serves the volume if need be, and creates the file system on its export."""
        with self.serve() as (volume, made):
            if made is not None:
                place.defer(made.remove)
            opened = NbdTarget(volume.export(), self.file_system, self.wipe).open(place)
            if made is not None:
                opened.closers.insert(0, made.stop)
                opened.description["served"] = made.shown()
            status = volume.status()
            legs = [f"{leg['name']} ({leg['path']})" for leg in status["legs"]]
            opened.observe = volume.status
            opened.description |= {"kind": "hemi volume", "hemi": status["version"], "legs": legs}
            return opened


def _mounted(place: Workplace, directory: Path) -> dict[str, Any]:
    """Returns facts about the file system of a directory."""
    text = place.log.run(
        "findmnt", "--json", "--output", "SOURCE,FSTYPE,OPTIONS", "--target", directory
    )
    found = json.loads(text)["filesystems"][0]
    return {
        "file_system": found["fstype"],
        "mount_source": found["source"],
        "mount_options": found["options"],
    }
