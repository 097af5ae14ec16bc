"""What a target is. A new kind of target is one more class of this shape (docs/lab)."""

from __future__ import annotations

from dataclasses import dataclass, field
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


class Target(Protocol):
    """Something to measure."""

    path: str
    """What `--wipe` has to name."""

    def describe(self) -> Description:
        """What is known of it. Changes nothing."""

    def hazards(self) -> Hazards:
        """What it would lose. Changes nothing."""

    def open(self, seed: int) -> Driver:
        """Its driver. May create what does not exist; destroys nothing."""


def check_size(text: str, size: int) -> None:
    """Raises where a target is too small for any plan."""
    if size < LEAST_BYTES:
        raise UsageError(
            f"target {text!r}: {shown_size(size)} is too small",
            "Take 1 MiB or more; 1 GiB to see a drive rather than its cache. A device of 0 B has "
            "no medium, or nothing behind it.",
        )
