"""What can go wrong and is said to a person: what it is, and the way out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


class LabError(Exception):
    """A failure with its way out. The command shows both and ends with `exit_code`."""

    exit_code = 1

    def __init__(self, what: str, way_out: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.way_out = way_out


class UsageError(LabError):
    """The command line, a plan or a target makes no sense; nothing was done."""

    exit_code = 2


class RefusedError(LabError):
    """Refused, because it could destroy what somebody needs."""

    exit_code = 3


class ToolError(LabError):
    """A driven tool failed: its own message, and the command to see it again."""

    def __init__(self, command: Sequence[str], message: str, way_out: str = "") -> None:
        self.command = list(command)
        self.message = message
        shown = message.strip() or "it said nothing"
        super().__init__(f"{command[0]} failed: {shown}\n  command: {shlex.join(command)}", way_out)
