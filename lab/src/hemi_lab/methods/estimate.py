"""The estimated time of a test."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """Seconds of a test without its fill: lower and upper bound."""

    least: float
    most: float
    steps: int
    """Largest number of steps. Each costs a driver a moment to begin."""
    unscaled: tuple[float, float] = (0.0, 0.0)
    """Seconds on top that do not scale with the times: lower and upper bound."""
