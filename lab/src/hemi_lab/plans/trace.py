"""Puts a user's own trace into a plan's replays."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from hemi_lab.errors import UsageError
from hemi_lab.plans.model import Plan, ReplayTest
from hemi_lab.timed import TraceFormat

FORMATS: tuple[str, ...] = get_args(TraceFormat)


def with_trace(plan: Plan, trace: str, format_: str | None, volume: str | None) -> Plan:
    """Returns the plan with this trace in every replay."""
    if format_ is not None and format_ not in FORMATS:
        raise UsageError(
            f"--trace-format {format_}: there is no such format", f"There are {', '.join(FORMATS)}."
        )
    if not Path(trace).is_file():
        raise UsageError(f"--trace {trace}: there is no such file", "Name a trace.")
    replays = [test for test in plan.tests if isinstance(test, ReplayTest)]
    if not replays:
        raise UsageError(
            f"--trace {trace}: no test of {plan.name} replays a trace", "The plan mail has one."
        )
    changed: dict[str, str | None] = {"trace": str(Path(trace).resolve()), "format": format_}
    if volume is not None:
        changed["volume"] = volume
    tests = [
        test.model_copy(update=changed) if isinstance(test, ReplayTest) else test
        for test in plan.tests
    ]
    return plan.model_copy(update={"tests": tests})
