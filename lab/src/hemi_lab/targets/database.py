"""Targets of a plan's databases: one target, or one for the data and one for the log.

They are named and described here, with their hazards. `hemi_lab.database` prepares them."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from hemi_lab import database, tool
from hemi_lab.database.settings import Place
from hemi_lab.database.targets import FileSystem
from hemi_lab.drivers.base import Driver
from hemi_lab.drivers.database import DatabaseDriver
from hemi_lab.errors import UsageError
from hemi_lab.targets.base import (
    Description,
    Hazards,
    Needs,
    Target,
    check_room,
    refuse_freezes,
)
from hemi_lab.targets.device import DeviceTarget
from hemi_lab.targets.file import file_system_of
from hemi_lab.targets.nbd import SCHEMES, NbdTarget
from hemi_lab.targets.queue import queue_facts
from hemi_lab.units import parse_size, shown_size

HELP = (
    "for a plan of databases a directory (dir:PATH), a block device (device:PATH), an NBD export "
    "(its URI) or a new hemi volume (hemi:LEG,LEG,size=4GiB); the last three also "
    "file-system=xfs"
)

_SIZE = 4 << 30
"""Default size of a hemi volume."""

_HEMI = "Build it with cargo, or name it: HEMI=/path/to/hemi."


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
    # An export may be named as in other plans, or with `nbd:` before its URI.
    named = f"nbd:{text}" if text.startswith(SCHEMES) else text
    kind, _, rest = named.partition(":")
    if not rest or kind not in ("dir", "device", "nbd", "hemi"):
        raise UsageError(f"target {text!r} cannot hold a database", f"Name {HELP}.")
    if kind == "dir":
        return _directory(text, Path(rest))
    words, options = _options(text, rest, {"size", "file-system"} if kind == "hemi" else
                              {"file-system"})  # fmt: skip
    system = options.get("file-system", "ext4")
    if system not in get_args(FileSystem):
        known = ", ".join(get_args(FileSystem))
        raise UsageError(f"target {text!r}: file-system={system}", f"There are {known}.")
    file_system = cast(FileSystem, system)
    makes = f"a new {system} file system; whatever is there is lost"
    if kind == "hemi":
        return _volume(text, words, options.get("size"), file_system)
    if kind == "device":
        raw = DeviceTarget(text, Path(",".join(words)))
        # `--wipe` has been checked by then (`safety.check`).
        opens: database.Target = database.DeviceTarget(Path(raw.path), file_system, wipe=True)
        return Part(text, raw.path, makes, opens, _with(raw.describe(), system), raw)
    export = NbdTarget(",".join(words))
    opens = database.NbdTarget(export.path, file_system, wipe=True)
    return Part(text, export.path, makes, opens, _with(export.describe(), system, text), export)


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


def _volume(text: str, legs: list[str], size: str | None, file_system: FileSystem) -> Part:
    if len(legs) < 2:
        raise UsageError(
            f"target {text!r}: a hemi volume needs two legs or more", "As in hemi:/a/leg,/b/leg."
        )
    try:
        length = _SIZE if size is None else parse_size(size)
    except ValueError as error:
        raise UsageError(f"target {text!r}: size: {error}", "As in size=20GiB.") from error
    for leg in map(Path, legs):
        if not leg.exists() and leg.parent.is_dir():
            check_room(text, leg.parent, length)
    program = Path(tool.find("hemi", "HEMI", _HEMI))
    opens = database.HemiTarget(tuple(legs), length, file_system, program)
    described = Description(
        text, "new hemi volume", bytes=length, file_system=file_system, legs=legs
    )
    makes = (
        f"a new hemi volume of {shown_size(length)} with {file_system}; legs that do not exist are "
        "made as files and removed afterwards, others are refused unless they are empty"
    )
    return Part(text, text, makes, opens, described)


def _with(known: Description, file_system: str, text: str | None = None) -> Description:
    return Description(**{**vars(known), "file_system": file_system, "text": text or known.text})


def _options(text: str, rest: str, known: set[str]) -> tuple[list[str], dict[str, str]]:
    """Splits words and the options among them, as in `a,b,size=1GiB`."""
    words, options = [], {}
    for word in rest.split(","):
        key, equals, value = word.partition("=")
        if equals and key in known:
            options[key] = value
        elif word:
            words.append(word)
    if not words:
        raise UsageError(f"target {text!r}: nothing is named", f"Name {HELP}.")
    return words, options
