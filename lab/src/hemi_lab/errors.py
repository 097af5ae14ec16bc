"""Errors shown to the user: the problem and the way out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


class LabError(Exception):
    """A failure with its way out. The command prints both and exits with `exit_code`."""

    exit_code = 1

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out


class UsageError(LabError):
    """The command line, a plan or a target is invalid. Nothing was done."""

    exit_code = 2


class RefusedError(LabError):
    """Refused because it could destroy data somebody needs."""

    exit_code = 3


class ToolError(LabError):
    """A driven tool failed. Carries its own message and the command to repeat it."""

    def __init__(
        self, command: Sequence[str], message: str, way_out: str = "", code: int | None = None
    ) -> None:
        self.command = list(command)
        self.message = message
        self.code = code
        """Its exit status, if it ended."""
        shown = message.strip() or "it said nothing"
        super().__init__(f"{command[0]} failed: {shown}\n  command: {shlex.join(command)}", way_out)
