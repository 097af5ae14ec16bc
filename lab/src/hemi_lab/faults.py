"""Faults that a target lets the lab lay on its legs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from hemi_lab.steps import StallPhase


class Faults(Protocol):
    """A target with legs that can be made to stop answering, or to answer late. A driver that has
    one has it as its `faults`."""

    def legs(self) -> list[int]:
        """The numbers of the legs."""

    def freeze(self, leg: int, seconds: float) -> None:
        """From now on the leg completes nothing for so long. Returns when that has begun."""

    def stall(self, leg: int, phases: tuple[StallPhase, ...], seed: int) -> None:
        """From now on the leg's requests stall one by one, phase after phase. Returns when that
        has begun."""

    def clear(self, leg: int) -> None:
        """Ends freezes and schedules of stalls early, however it is; leaves what the target's
        set-up laid there."""

    def settle(self, seconds: float) -> bool:
        """Waits until every leg is well and owes nothing; whether that was within the time."""

    def closely(self) -> AbstractContextManager[None]:
        """Has the target's causes watched several times a second meanwhile."""
