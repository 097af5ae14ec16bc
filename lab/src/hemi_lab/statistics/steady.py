"""Steady state by the exact rule of the SNIA PTS, and departure from it.

Over a window of five rounds of the tracked variable y:

- the **range**: max(y) - min(y) is at most 20 % of the mean of y, and
- the **excursion**: max - min of the least-squares line over the window, |slope| x 4, is at
  most 10 % of the mean of y.

There are at most 25 rounds. If no window of five holds by then, steady state was not reached, and
every figure that follows says so. (fio's `steadystate` cannot express this: it takes one criterion,
and its slope is that of one sample instead of the window.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hemi_lab.units import counted

WINDOW = 5
"""Rounds of the window."""

RANGE = 0.20
"""Largest max - min, as a share of the mean."""

EXCURSION = 0.10
"""Largest excursion of the fitted line over the window, as a share of the mean."""

MOST_ROUNDS = 25
"""Number of rounds after which steady state counts as not reached."""

# Sums of decimal fractions miss their bound by rounding alone: 80, 100, 120 is within 40 %.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """The rule's result for one window."""

    mean: float
    slope: float
    """Slope of the fitted line, per round."""
    intercept: float
    """Value of the fitted line at the window's first round."""
    range_share: float
    """max - min as a share of the mean."""
    excursion_share: float
    """The fitted line's max - min as a share of the mean."""
    steady: bool


def judge(
    window: Sequence[float], most_range: float = RANGE, most_excursion: float = EXCURSION
) -> Verdict:
    """Applies the rule to these rounds. A window whose mean is not positive is not steady."""
    if len(window) < 2:
        raise ValueError(f"a window of {len(window)} rounds has no line; give at least 2")
    y = np.asarray(window, dtype=float)
    x = np.arange(len(y), dtype=float)
    mean = float(y.mean())
    slope = float(((x - x.mean()) * (y - mean)).sum() / ((x - x.mean()) ** 2).sum())
    intercept = mean - slope * float(x.mean())
    if not mean > 0:
        return Verdict(mean, slope, intercept, float("inf"), float("inf"), False)
    spread = float(y.max() - y.min()) / mean
    excursion = abs(slope) * (len(y) - 1) / mean
    steady = spread <= most_range + _ROUNDING and excursion <= most_excursion + _ROUNDING
    return Verdict(mean, slope, intercept, spread, excursion, steady)


@dataclass(frozen=True)
class Steadiness:
    """The rule's result for a series of rounds."""

    values: tuple[float, ...]
    reached: bool
    first: int | None
    """First round of the steady window, from 1. If none is steady, that of the last window."""
    last: int | None
    """Last round of that window."""
    verdict: Verdict | None
    """The rule's result for that window. `None` if there are fewer rounds than a window has."""
    window: int = WINDOW

    def said(self) -> str:
        """Returns `steady in rounds 4 to 8`, or a text that it was not reached."""
        if self.reached:
            return f"steady in rounds {self.first} to {self.last}"
        return f"steady state NOT REACHED in {counted(len(self.values), 'round')}"


def steadiness(
    values: Sequence[float], window: int = WINDOW, most_rounds: int = MOST_ROUNDS
) -> Steadiness:
    """Returns the first steady window among at most `most_rounds` rounds."""
    known = tuple(float(value) for value in values[:most_rounds])
    if len(known) < window:
        return Steadiness(known, False, None, None, None, window)
    verdict = judge(known[:window])
    for end in range(window, len(known) + 1):
        verdict = judge(known[end - window : end])
        if verdict.steady:
            return Steadiness(known[:end], True, end - window + 1, end, verdict, window)
    return Steadiness(known, False, len(known) - window + 1, len(known), verdict, window)


@dataclass(frozen=True)
class Departure:
    """A departure from steady state."""

    round: int
    """First round of the window that is no longer steady, numbered as the rounds."""
    mean: float
    """Mean of that window."""
    change: float
    """Change from the steady window's mean, as a share: -0.4 is 40 % less."""


def departure(values: Sequence[float], steady: Steadiness) -> Departure | None:
    """Returns the first window after the steady one that left it, as with a full cache or a hot
    drive.

    A later window has left it if the rule does not hold for it, or if its mean is more than the
    rule's excursion away from the steady window's.
    """
    if not steady.reached or steady.last is None or steady.verdict is None:
        return None
    reference = steady.verdict.mean
    for begin in range(steady.last, len(values) - steady.window + 1):
        later = judge(values[begin : begin + steady.window])
        change = later.mean / reference - 1
        if not later.steady or abs(change) > EXCURSION + _ROUNDING:
            return Departure(begin + 1, later.mean, change)
    return None
