"""What a driver is. A new engine (`hemi load`, say) is one more class of this shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from hemi_lab.steps import Step, StepResult


@dataclass(frozen=True)
class Outcome:
    """Something done before measuring, or why not."""

    done: bool
    how: str


@dataclass(frozen=True)
class Ceiling:
    """What the load generator can do at most, with a target that does nothing."""

    iops: float
    cpu_seconds_per_request: float
    command: list[str] = field(default_factory=list)


class Driver(Protocol):
    """Makes load on one target, step by step; the target stays as each step leaves it."""

    name: str
    version: str

    @property
    def capacity(self) -> int:
        """Bytes of the target that are used."""

    @property
    def block(self) -> int:
        """The smallest request in bytes, of which all others are multiples."""

    def purge(self) -> Outcome:
        """Brings the target as near to fresh out of the box as it can, or says why not."""

    def run(self, step: Step) -> StepResult:
        """Does a step. On Ctrl-C it returns what was found until then, marked interrupted.

        Raises `ToolError` with the tool's message where that failed."""

    def ceiling(self, outstanding: int) -> Ceiling | None:
        """Measures its own limit; `None` where it has none, in virtual time."""

    def close(self) -> None:
        """Ends what it started."""
