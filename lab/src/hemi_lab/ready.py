"""Checks that a plan can run on a target, before anything is written to it."""

from __future__ import annotations

from pathlib import Path

from hemi_lab.errors import UsageError
from hemi_lab.plans.model import CheckpointTest, FreezeTest, Plan, ReplayTest, StallTest
from hemi_lab.targets.base import Needs, Target


def check(plan: Plan, target: Target) -> None:
    """Raises if the run would fail for want of a program, room, a leg or a trace.

    Changes nothing. Both a dry run and the run itself call this."""
    for test in plan.tests:
        if (
            isinstance(test, ReplayTest)
            and test.trace is not None
            and not Path(test.trace).exists()
        ):
            raise UsageError(
                f"{test.name}: trace = {test.trace}: there is no such file",
                "Name one with --trace, or leave the plan's out.",
            )
    target.check(needs(plan))


def needs(plan: Plan) -> Needs:
    """Returns what a plan needs of a target besides reads and writes."""
    freezes = [test for test in plan.tests if isinstance(test, FreezeTest)]
    stalls = [test for test in plan.tests if isinstance(test, StallTest)]
    legs = {leg for test in freezes for leg in test.legs} | {test.leg for test in stalls}
    return Needs(
        freezes=bool(freezes or stalls),
        legs=frozenset(legs),
        timed=any(
            isinstance(test, CheckpointTest | ReplayTest | StallTest)
            or (isinstance(test, FreezeTest) and test.open is not None)
            for test in plan.tests
        ),
    )
