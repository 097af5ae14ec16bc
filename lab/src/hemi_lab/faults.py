"""Faults that the lab can inject into a target's legs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from hemi_lab.steps import StallPhase


class Faults(Protocol):
    """A target whose legs can be made to freeze or to answer late.

    A driver for such a target offers this as its `faults`."""

    def legs(self) -> list[int]:
        """Returns the numbers of the legs."""

    def freeze(self, leg: int, seconds: float) -> None:
        """Makes the leg complete nothing for `seconds`. Returns when the freeze has begun."""

    def stall(self, leg: int, phases: tuple[StallPhase, ...], seed: int) -> None:
        """Makes single requests of the leg stall, one phase after another. Returns when the first
        phase has begun."""

    def clear(self, leg: int) -> None:
        """Ends freezes and stalls of the leg early, if any. Faults from the target's set-up
        stay."""

    def settle(self, seconds: float) -> bool:
        """Waits until every leg is well and owes nothing. Returns false if that takes longer than
        `seconds`."""

    def closely(self) -> AbstractContextManager[None]:
        """Samples the target's causes several times a second while the context is open."""
