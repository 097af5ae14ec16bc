"""How long a test takes, before it is run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A plan's seconds without its fills: at the earliest and at the latest."""

    least: float
    most: float
    steps: int
    """How many steps at the most: each costs a driver a moment to begin."""
    unscaled: tuple[float, float] = (0.0, 0.0)
    """Seconds that come on top whatever the times are multiplied by: at the earliest, at the
    latest."""
