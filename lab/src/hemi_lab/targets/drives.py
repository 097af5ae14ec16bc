"""What is known of simulated drives before anything is run: their presets' own words.

The presets are hemi's: `presets` beside this package's folders is a link to crates/drives/presets,
and a wheel has them in it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hemi_lab.units import parse_size

_DEEPEST = 4
"""Arrays of arrays: further than that a preset names itself."""


@dataclass(frozen=True)
class Drive:
    """A leg's drive, or its array of drives."""

    title: str
    kind: str
    """The model: `ssd`, `hdd`, `network`, `array`."""
    count: int = 1
    """Drives in it."""
    level: str | None = None
    """Of an array: `raid5`."""
    member: str | None = None
    """Of an array: the preset of its drives."""
    alpha: float | None = None
    """Raw flash as a multiple of the capacity; of an array, its drives'."""
    capacity_bytes: float | None = None
    """Of one drive, before scaling."""
    flash_bytes: float | None = None
    """Flash that pages can be in: raw less its loss, as scaled; not of arrays."""


def drive(leg: str, scale: int = 1, depth: int = 0) -> Drive | None:
    """Of a preset's name or file; nothing where it is not known, or says what is no preset."""
    try:
        preset = tomllib.loads(_text(leg))
        parameters: dict[str, Any] = preset["parameters"]
        title, kind = str(preset["title"]), str(preset["model"])
        if kind == "array":
            member = str(parameters["member"])
            inner = drive(member, scale, depth + 1) if depth < _DEEPEST else None
            count = int(parameters["count"]) * (inner.count if inner else 1)
            alpha = inner.alpha if inner else None
            return Drive(title, kind, count, str(parameters["level"]), member, alpha)
        capacity = parse_size(parameters["capacity"]) if "capacity" in parameters else None
        alpha = float(parameters["alpha"]) if "alpha" in parameters else None
        flash = None
        if capacity and alpha:
            lost = float(parameters.get("raw_loss", 0.0))
            flash = capacity * alpha * (1 - lost) / (int(parameters.get("scale", 1)) * scale)
        return Drive(title, kind, 1, None, None, alpha, capacity, flash)
    except (OSError, KeyError, TypeError, ValueError):
        # hemi itself tells what is wrong with a preset, when it opens it.
        return None


def _text(leg: str) -> str:
    if leg.endswith(".toml"):
        return Path(leg).read_text()
    return (resources.files("hemi_lab") / "presets" / f"{leg}.toml").read_text()
