"""The interface of a target. A new kind of target is one more class with it (docs/lab)."""

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
"""Smallest target: room for a plan's largest requests from several threads."""


@dataclass(frozen=True)
class Description:
    """Facts about a target. Unknown facts are `None`."""

    text: str
    """The name that the user gave."""
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
    """Simulated targets: divisor of the flash capacity."""
    drives: list[Drive | None] = field(default_factory=list)
    """Simulated targets: the drives that the legs' presets describe."""


@dataclass(frozen=True)
class Hazards:
    """Reasons why writing to a target may destroy something."""

    in_use: list[str] = field(default_factory=list)
    """Current users of the target. If there are any, it is never written to, whatever the
    options."""
    holds: list[str] = field(default_factory=list)
    """Present contents. If there are any, it is written to only when `--wipe` names it."""


@dataclass(frozen=True)
class Needs:
    """The needs of a plan besides reads and writes."""

    freezes: bool = False
    """True if legs have to be frozen or made to stall."""
    legs: frozenset[int] = frozenset()
    """Numbers of these legs. If empty, every leg."""
    timed: bool = False
    """True if the plan has open loops, which `hemi load` makes."""


class Target(Protocol):
    """A target of measurements."""

    text: str
    """The name that the user gave. `--wipe` may name it."""
    path: str
    """The path that `--wipe` may name, too."""

    def describe(self) -> Description:
        """Describes the target. Changes nothing."""

    def hazards(self) -> Hazards:
        """Returns the data and users that it would harm. Changes nothing."""

    def check(self, needs: Needs) -> None:
        """Raises if a run would fail for want of a program, room or a leg. Changes nothing."""

    def open(self, seed: int) -> Driver:
        """Returns its driver. May create a missing target, and destroys nothing."""


def refuse_freezes(text: str, needs: Needs) -> None:
    """Raises if the plan freezes legs, since this target has none."""
    if needs.freezes:
        raise UsageError(
            f"target {text!r} has no leg that can be frozen",
            "Take a hemi volume that is served with --allow-inject, or setup:FILE.toml.",
        )


def check_legs(text: str, needs: Needs, present: Iterable[int]) -> None:
    """Raises if the plan freezes a leg that does not exist."""
    known = sorted(present)
    for leg in sorted(needs.legs - set(known)):
        raise UsageError(
            f"target {text!r}: the plan freezes leg {leg}, and there is none",
            f"Its legs are {', '.join(map(str, known))}: name these in the plan's legs.",
        )


def check_room(
    subject: str, folder: Path, needed: int, hint: str = "Take a smaller size, or another place."
) -> None:
    """Raises if a directory's file system has less than `needed` bytes free. The message begins
    with `subject`, which ends before the size.
    """
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"{subject} {shown_size(needed)}, and {shown_size(free)} are free in {folder}", hint
        )


def check_size(text: str, size: int) -> None:
    """Raises if a target is too small for any plan."""
    if size < LEAST_BYTES:
        raise UsageError(
            f"target {text!r}: {shown_size(size)} is too small",
            "Take 1 MiB or more; 1 GiB to see a drive rather than its cache. A device of 0 B has "
            "no medium, or nothing behind it.",
        )
