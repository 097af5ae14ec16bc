"""What is known of simulated drives before anything is run: what their presets say
(`hemi sim presets --values`)."""

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


def drive(leg: str, scale: int = 1) -> Drive | None:
    """Of a preset's name or file; nothing where it is not known, or says what is no preset."""
    try:
        hemi = tool.find("hemi", "HEMI", "Build hemi (make release), or name it with HEMI.")
        said = tool.run([hemi, "sim", "presets", leg, "--values", "--json"]).output
        return _drive(json.loads(said)[0], scale)
    except (LabError, KeyError, TypeError, ValueError):
        # hemi itself tells what is wrong with a preset, when it opens it.
        return None


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
