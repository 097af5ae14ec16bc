"""Faults of a hemi volume's legs by `hemi inject`, inside hemi and before the drive."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hemi_lab.errors import LabError, ToolError
from hemi_lab.steps import StallPhase

_ASK_SECONDS = 0.2

_NO_LEG = 255
"""A number above every slot."""

_WAY_OUT = "Serve the volume with --allow-inject, or take setup:FILE.toml."


class Served(Protocol):
    """The interface of a volume that faults need."""

    def command(self, *arguments: str) -> str:
        """Returns the output of a `hemi` command on this volume."""

    def status(self) -> dict[str, Any]:
        """Returns the volume's status."""

    def closely(self) -> AbstractContextManager[None]:
        """Samples the status closely meanwhile."""


class VolumeFaults:
    """Faults of a volume that is served with `--allow-inject`."""

    def __init__(self, volume: Served) -> None:
        self._volume = volume

    def legs(self) -> list[int]:
        """Returns the slots of the legs that are in."""
        return [int(leg["leg"]) for leg in self._volume.status()["legs"] if leg["state"] != "out"]

    def check(self) -> None:
        """Raises if the volume refuses faults. Injects none, since no volume has the leg it
        names."""
        try:
            self._volume.command("inject", "--leg", str(_NO_LEG), "--freeze", "1ms")
        except ToolError as error:
            if "--allow-inject" in error.message:
                raise LabError(f"no leg can be frozen: {error.what}", _WAY_OUT) from error

    def freeze(self, leg: int, seconds: float) -> None:
        """Freezes a leg with `hemi inject --freeze`."""
        duration = f"{seconds * 1e3:.0f}ms"
        try:
            self._volume.command("inject", "--leg", str(leg), "--freeze", duration)
        except ToolError as error:
            raise LabError(
                f"leg {leg} cannot be frozen: {error.what}",
                _WAY_OUT,
            ) from error

    def stall(self, leg: int, phases: tuple[StallPhase, ...], seed: int) -> None:
        """Stalls a leg's requests with `hemi inject --stall`."""
        options = [option for phase in phases for option in ("--stall", stall_option(phase))]
        try:
            self._volume.command("inject", "--leg", str(leg), *options, "--seed", str(seed))
        except ToolError as error:
            raise LabError(f"leg {leg} cannot be stalled: {error.what}", _WAY_OUT) from error

    def clear(self, leg: int) -> None:
        """Ends a freeze and a stall by replacing them with ones of no length.

        Requests that stall already keep their time."""
        try:
            self._volume.command("inject", "--leg", str(leg), "--freeze", "1ms")
            self._volume.command("inject", "--leg", str(leg), "--stall", "for:1ns")
        except ToolError:
            # The volume does not answer or is gone, and so is the fault.
            return

    def settle(self, seconds: float) -> bool:
        """Waits until every leg that is in is healthy and owes nothing."""
        until = time.monotonic() + seconds
        while True:
            legs = self._volume.status()["legs"]
            if all(leg["state"] in ("healthy", "out") and not leg["owed_bytes"] for leg in legs):
                return True
            if time.monotonic() > until:
                return False
            time.sleep(_ASK_SECONDS)

    def closely(self) -> AbstractContextManager[None]:
        """Samples the status as often as it changes."""
        return self._volume.closely()


def stall_option(phase: StallPhase) -> str:
    """Returns a phase as `hemi inject --stall` takes it."""
    length = f"for:{phase.seconds * 1e9:.0f}ns"
    if not (phase.reads or phase.writes):
        return length
    # In millionths, hemi's own precision.
    shares = f"reads:{phase.reads:.6f},writes:{phase.writes:.6f}"
    return f"{shares},by:{phase.delay * 1e9:.0f}ns,{length}"
