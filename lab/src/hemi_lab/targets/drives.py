"""Facts about simulated drives from their presets, before a run (`hemi sim presets --values`)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hemi_lab import tool
from hemi_lab.errors import LabError
from hemi_lab.units import parse_size


@dataclass(frozen=True)
class Drive:
    """A leg's drive, or its array of drives."""

    title: str
    kind: str
    """Model: `ssd`, `hdd`, `network` or `array`."""
    count: int = 1
    """Number of drives in it."""
    level: str | None = None
    """Level of an array, such as `raid5`."""
    member: str | None = None
    """Preset of an array's drives."""
    alpha: float | None = None
    """Raw flash as a multiple of the capacity. In an array, that of its drives."""
    capacity_bytes: float | None = None
    """Capacity of one drive, before scaling."""
    flash_bytes: float | None = None
    """Flash that can hold pages: raw flash less its loss, scaled. `None` for arrays."""


def drive(leg: str, scale: int = 1) -> Drive | None:
    """Returns the drive of a preset's name or file, or `None` if there is no such preset."""
    preset = _preset(leg)
    try:
        return None if preset is None else _drive(preset, scale)
    except (KeyError, TypeError, ValueError):
        return None


def scale_most(leg: str) -> int | None:
    """Returns the largest scale at which the flash of a preset's name or file is as fast as the
    whole drive's.

    `None` without flash, or if there is no such preset."""
    most = (_preset(leg) or {}).get("scale_most")
    return None if most is None else int(most)


def _preset(leg: str) -> dict[str, Any] | None:
    """Returns what hemi tells of a preset, or `None`: hemi reports a wrong one when it opens it."""
    try:
        hemi = tool.find("hemi", "HEMI", "Build hemi (make release), or name it with HEMI.")
        said = tool.run([hemi, "sim", "presets", leg, "--values", "--json"]).output
        preset: dict[str, Any] = json.loads(said)[0]
    except (LabError, IndexError, ValueError):
        return None
    return preset


def _drive(preset: dict[str, Any], scale: int) -> Drive:
    parameters: dict[str, Any] = preset["parameters"]
    title, kind = str(preset["title"]), str(preset["model"])
    if kind == "array":
        inner = _drive(preset["member"], scale)
        count = int(parameters["count"]) * inner.count
        level, member = str(parameters["level"]), str(parameters["member"])
        return Drive(title, kind, count, level, member, inner.alpha)
    capacity = parse_size(parameters["capacity"]) if "capacity" in parameters else None
    alpha = float(parameters["alpha"]) if "alpha" in parameters else None
    flash = None
    if capacity and alpha:
        lost = float(parameters.get("raw_loss", 0.0))
        flash = capacity * alpha * (1 - lost) / (int(parameters.get("scale", 1)) * scale)
    return Drive(title, kind, 1, None, None, alpha, capacity, flash)
