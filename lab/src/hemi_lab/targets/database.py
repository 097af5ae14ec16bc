"""Targets of a plan's databases: one target, or one for the data and one for the log.

They are named and described here, with their hazards. `hemi_lab.database` prepares them."""

from __future__ import annotations

import os
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, get_args

from hemi_lab import database
from hemi_lab.database.settings import Place
from hemi_lab.database.targets import FileSystem
from hemi_lab.drivers.base import Driver
from hemi_lab.drivers.database import DatabaseDriver
from hemi_lab.errors import UsageError
from hemi_lab.targets.base import Description, Hazards, Needs, Target, refuse_freezes
from hemi_lab.targets.device import DeviceTarget
from hemi_lab.targets.file import file_system_of
from hemi_lab.targets.nbd import NbdTarget
from hemi_lab.targets.parse import parse
from hemi_lab.targets.queue import queue_facts
from hemi_lab.targets.setup import SetupTarget
from hemi_lab.targets.volume import VolumeTarget

HELP = (
    "for a plan of databases a directory (dir:PATH), or a device, an export or a hemi volume as "
    "for any plan; all but the first also with file-system=xfs"
)


@dataclass(frozen=True)
class Part:
    """One target of a database."""

    text: str
    path: str
    """The path that `--wipe` has to name."""
    makes: str
    """The changes to the target, as told to the user beforehand."""
    opens: database.Target
    described: Description
    raw: Target | None = None
    """The target that is overwritten, asked for its hazards."""

    def describe(self) -> Description:
        """Returns the description made at parsing."""
        return self.described

    def hazards(self) -> Hazards:
        """Returns the data it would destroy. A directory or a new volume loses nothing."""
        return self.raw.hazards() if self.raw else Hazards()

    def check(self, needs: Needs) -> None:
        """Checks it as the only target."""
        DatabaseTarget(self).check(needs)

    def open(self, seed: int) -> Driver:
        """Opens a database on this target alone."""
        return DatabaseTarget(self).open(seed)


class DatabaseTarget:
    """Target A for a database's data and log, and perhaps a target B."""

    def __init__(self, first: Part, second: Part | None = None) -> None:
        self.parts = [first] if second is None else [first, second]
        self.path = first.path if second is None else f"{first.path} and {second.path}"
        self.text = " and ".join(part.text for part in self.parts)

    def describe(self) -> Description:
        """Describes A, and both in what they share."""
        first = self.parts[0].described
        if len(self.parts) == 1:
            return first
        second = self.parts[1].described
        systems = list(dict.fromkeys(str(known.file_system) for known in (first, second)))
        return Description(
            self.text,
            " and ".join(dict.fromkeys((first.kind, second.kind))),
            bytes=first.bytes,
            file_system=" and ".join(systems),
            legs=[*first.legs, *second.legs],
        )

    def hazards(self) -> Hazards:
        """Returns the hazards of both. `safety.check` asks each part, which has a name to wipe."""
        every = [part.hazards() for part in self.parts]
        return Hazards(
            [said for one in every for said in one.in_use],
            [said for one in every for said in one.holds],
        )

    def check(self, needs: Needs) -> None:
        """Raises if a program is missing."""
        refuse_freezes(self.text, needs)
        self.open(1).close()

    def open(self, seed: int) -> Driver:
        """Finds the programs. Each test prepares the targets itself."""
        places: tuple[Place, ...] = ("A", "B")
        targets = {place: part.opens for place, part in zip(places, self.parts, strict=False)}
        return DatabaseDriver(targets, self.parts[0].described.bytes or 0)


def parse_database(text: str, second: str | None = None) -> DatabaseTarget:
    """Returns the target of that name, and a second one if given. Changes nothing."""
    if second is not None and second == text:
        raise UsageError(
            f"--second-target {second}: it is the first target", "Name another, or leave it out."
        )
    return DatabaseTarget(_part(text), None if second is None else _part(second))


def _part(text: str) -> Part:
    kind, _, rest = text.partition(":")
    refused = UsageError(f"target {text!r} cannot hold a database", f"Name {HELP}.")
    if kind == "dir":
        if not rest:
            raise refused
        return _directory(text, Path(rest))
    words = text.split(",")
    systems = [word.partition("=")[2] for word in words if word.startswith("file-system=")]
    system = systems[-1] if systems else "ext4"
    if system not in get_args(FileSystem):
        known = ", ".join(get_args(FileSystem))
        raise UsageError(f"target {text!r}: file-system={system}", f"There are {known}.")
    file_system = cast(FileSystem, system)
    raw = parse(",".join(word for word in words if not word.startswith("file-system=")))
    # `--wipe` has been checked by the time a target is opened (`safety.check`).
    opens: database.Target
    if isinstance(raw, DeviceTarget):
        opens = database.DeviceTarget(Path(raw.path), file_system, wipe=True)
    elif isinstance(raw, NbdTarget):
        opens = database.NbdTarget(raw.path, file_system, wipe=True)
    elif isinstance(raw, SetupTarget):
        opens = database.HemiTarget(raw.served, file_system, wipe=True)
    elif isinstance(raw, VolumeTarget):
        opens = database.HemiTarget(lambda: nullcontext((raw, None)), file_system, wipe=True)
    else:
        raise refused
    described = replace(raw.describe(), file_system=system, text=text)
    makes = f"a new {system} file system; whatever is there is lost"
    return Part(text, raw.path, makes, opens, described, raw)


def _directory(text: str, path: Path) -> Part:
    if not path.is_dir():
        raise UsageError(f"target {text!r}: {path} is no directory", "Create it first.")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"target {text!r}: {path} is not writable by this user", "Name another.")
    device = path.stat().st_dev
    described = Description(
        text,
        "directory",
        bytes=shutil.disk_usage(path).total,
        file_system=file_system_of(path),
        **queue_facts((os.major(device), os.minor(device))),
    )
    makes = f"a new directory below {path}, removed afterwards; nothing else is touched"
    return Part(text, str(path), makes, database.DirectoryTarget(path), described)
