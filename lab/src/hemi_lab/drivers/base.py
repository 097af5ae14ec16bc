"""The interface of a driver. A new engine is one more class with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from hemi_lab.steps import Step, StepResult


@dataclass(frozen=True)
class Outcome:
    """The result of a preparation, with its method or the reason why it was not done."""

    done: bool
    how: str


@dataclass(frozen=True)
class Ceiling:
    """The load generator's own limit, with a target that does nothing."""

    iops: float
    cpu_seconds_per_request: float
    command: list[str] = field(default_factory=list)


class Driver(Protocol):
    """Makes load on one target, step by step. The target stays as each step leaves it."""

    name: str
    version: str

    @property
    def capacity(self) -> int:
        """Returns the bytes of the target that are used."""

    @property
    def block(self) -> int:
        """Returns the smallest request in bytes. All others are multiples of it."""

    def purge(self) -> Outcome:
        """Purges the target as thoroughly as it allows, or says why not."""

    def run(self, step: Step) -> StepResult:
        """Runs a step. On Ctrl-C it returns the result so far, marked as interrupted.

        Raises `ToolError` with the tool's message if that failed."""

    def ceiling(self, outstanding: int) -> Ceiling | None:
        """Measures its own limit. Returns `None` if it has none, as in virtual time."""

    def close(self) -> None:
        """Ends everything it started."""


@runtime_checkable
class SteadyDriver(Protocol):
    """A driver whose target can be put into its steady state at once."""

    def purge_steady(self) -> Outcome | None:
        """Purges the target to its steady state. Returns `None` if it has a start of its own."""
