"""What a target is. A new kind of target is one more class of this shape (docs/lab)."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hemi_lab.drivers.base import Driver
from hemi_lab.errors import UsageError
from hemi_lab.targets.drives import Drive
from hemi_lab.units import shown_size

LEAST_BYTES = 1 << 20
"""What a plan's largest requests, several threads of them, find room in."""


@dataclass(frozen=True)
class Description:
    """What is known of a target; what is not known stays `None`."""

    text: str
    """As the user named it."""
    kind: str
    """`file`, `device`, `nbd`, `volume` or `simulated`."""
    bytes: int | None = None
    model: str | None = None
    firmware: str | None = None
    scheduler: str | None = None
    write_cache: str | None = None
    logical_block_bytes: int | None = None
    file_system: str | None = None
    rotational: bool | None = None
    simulated: bool = False
    policy: str | None = None
    legs: list[str] = field(default_factory=list)
    scale: int | None = None
    """Simulated targets: divides the capacity of flash."""
    drives: list[Drive | None] = field(default_factory=list)
    """Simulated targets: what their legs' presets say."""


@dataclass(frozen=True)
class Hazards:
    """Why writing to a target may destroy something."""

    in_use: list[str] = field(default_factory=list)
    """Somebody is using it now: never written to, whatever is said."""
    holds: list[str] = field(default_factory=list)
    """It holds something: written to only when named by `--wipe`."""


@dataclass(frozen=True)
class Needs:
    """What a plan asks of a target beside reads and writes."""

    freezes: bool = False
    """Legs that can be frozen, or made to stall."""
    legs: frozenset[int] = frozenset()
    """Numbers of these legs; none named means every leg."""
    timed: bool = False
    """Loads with times of their own, which `hemi load` makes."""


class Target(Protocol):
    """Something to measure."""

    path: str
    """What `--wipe` has to name."""

    def describe(self) -> Description:
        """What is known of it. Changes nothing."""

    def hazards(self) -> Hazards:
        """What it would lose. Changes nothing."""

    def check(self, needs: Needs) -> None:
        """Raises if a run would fail for want of a program, room or a leg. Changes nothing."""

    def open(self, seed: int) -> Driver:
        """Its driver. May create what does not exist; destroys nothing."""


def refuse_freezes(text: str, needs: Needs) -> None:
    """Raises if the plan freezes legs: this target has none."""
    if needs.freezes:
        raise UsageError(
            f"target {text!r} has no leg that can be frozen",
            "Take a hemi volume that is served with --allow-inject, or setup:FILE.toml.",
        )


def check_legs(text: str, needs: Needs, present: Iterable[int]) -> None:
    """Raises if the plan freezes a leg that is not there."""
    known = sorted(present)
    for leg in sorted(needs.legs - set(known)):
        raise UsageError(
            f"target {text!r}: the plan freezes leg {leg}, and there is none",
            f"Its legs are {', '.join(map(str, known))}: name these in the plan's legs.",
        )


def check_room(text: str, folder: Path, needed: int) -> None:
    """Raises if a folder's file system has no room for so many bytes."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"target {text!r}: it needs {shown_size(needed)}, and {shown_size(free)} are free "
            f"in {folder}",
            "Take a smaller size, or another place.",
        )


def check_size(text: str, size: int) -> None:
    """Raises where a target is too small for any plan."""
    if size < LEAST_BYTES:
        raise UsageError(
            f"target {text!r}: {shown_size(size)} is too small",
            "Take 1 MiB or more; 1 GiB to see a drive rather than its cache. A device of 0 B has "
            "no medium, or nothing behind it.",
        )
