"""Attributes energy to rests.

A session counts a resting drive's energy up to the last whole second, and adds the remainder to the
step that follows."""

from __future__ import annotations

from typing import Any


class Rests:
    """Moves the remainders to the rests. The sum over all steps stays the same."""

    def __init__(self) -> None:
        self._watts: dict[int, float] = {}
        """Watts of each leg at rest, from its last whole second."""
        self._counted_later: dict[int, float] = {}
        """Joules of remainders that the session will add to the next step."""
        self._unknown: set[int] = set()
        """Legs whose next step will include a remainder of unknown joules."""

    def settle(self, report: dict[str, Any], resting: bool) -> None:
        """Corrects a step's report. Steps have to come in order.

        A leg whose watts at rest are not known yet (all rests were shorter than a second) is not
        corrected."""
        for number, leg in enumerate(report["legs"]):
            seconds = [
                (interval["legs"][number], interval["length"]) for interval in report["intervals"]
            ]
            counted = next((part for part, _ in seconds if part["energy"] > 0), None)
            if counted is not None:
                # Never more than was counted, since the watts are those of another second.
                over = min(self._counted_later.pop(number, 0.0), counted["energy"])
                counted["energy"] -= over
                leg["energy"] -= over
            if resting:
                self._rest(number, leg, seconds)
            elif counted is not None:
                self._unknown.discard(number)

    def _rest(self, number: int, leg: dict[str, Any], seconds: list[tuple[Any, float]]) -> None:
        known = [part["energy"] / length for part, length in seconds if part["energy"] > 0]
        if known and number in self._unknown:
            # The first second includes the remainder of an earlier rest.
            del known[0]
            self._unknown.discard(number)
        if known:
            self._watts[number] = known[-1]
        watts = self._watts.get(number)
        if watts is None:
            self._unknown.add(number)
            return
        for part, length in reversed(seconds):
            if part["energy"] > 0:
                break
            part["energy"] = watts * length
            leg["energy"] += watts * length
            later = self._counted_later.get(number, 0.0)
            self._counted_later[number] = later + watts * length
