"""Energy of rests: a session counts what a drive takes while it rests up to the last whole
second, and the remainder with the step that follows."""

from __future__ import annotations

from typing import Any


class Rests:
    """Puts the remainders where they belong. The sum over all steps is as it was."""

    def __init__(self) -> None:
        self._watts: dict[int, float] = {}
        """Of a leg at rest, as its last whole second showed."""
        self._counted_later: dict[int, float] = {}
        """Joules of remainders that the session will count with the next step."""
        self._unknown: set[int] = set()
        """Legs of which it will count a remainder whose joules are not known."""

    def settle(self, report: dict[str, Any], resting: bool) -> None:
        """Corrects a step's report; steps have to come in their order. A leg whose watts at rest
        are not known yet (all rests were shorter than a second) is left as it is."""
        for number, leg in enumerate(report["legs"]):
            seconds = [
                (interval["legs"][number], interval["length"]) for interval in report["intervals"]
            ]
            counted = next((part for part, _ in seconds if part["energy"] > 0), None)
            if counted is not None:
                # No more than there is: the watts are those of another second.
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
            # The first has what was left of a rest before it.
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
