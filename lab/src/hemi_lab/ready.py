"""Checks that a plan can run on a target, before anything is written to it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hemi_lab.errors import LabError, UsageError
from hemi_lab.estimate import of_plan
from hemi_lab.plans.model import (
    AnyTest,
    CheckpointTest,
    CrossStimulusTest,
    DemandIntensityTest,
    FreezeTest,
    MatrixTest,
    Plan,
    ReplayTest,
    StallTest,
    SweepTest,
)
from hemi_lab.targets.base import Needs, Target, check_room
from hemi_lab.units import shown_size
from hemi_lab.workload import Load

_RESULT_BYTES = 1 << 20
"""Bytes of a result's header and of its tables, whatever it has."""

_RESULT_RATE = 600
"""Bytes of a result for each second of load, of tables and their copy while they are replaced."""

_LOG_RATE = 16 << 10
"""Bytes that an engine logs a second while a step runs: fio's histogram logs, both directions."""


def check(plan: Plan, target: Target, out: Path | None = None, time_scale: float = 1.0) -> None:
    """Raises if the run would fail, with every reason that can be known before it.

    Reasons are a missing program, room, leg or trace, a load that does not fit in the target, and
    a place for the results that cannot take them. Changes nothing. Both a dry run and the run
    itself call this."""
    found: list[LabError] = []

    def fails(one: Callable[[], None]) -> bool:
        try:
            one()
        except LabError as error:
            found.append(error)
            return True
        return False

    fails(lambda: _check_traces(plan))
    # A target with an error may have no size, or the same error again.
    if not fails(lambda: target.check(needs(plan))):
        description = target.describe()
        fails(lambda: _check_loads(plan, description.bytes))
        if not description.simulated:
            fails(lambda: _check_logs(plan, time_scale))
    if out is not None:
        fails(lambda: _check_results(plan, out, time_scale))
    if len(found) == 1:
        raise found[0]
    if found:
        several = LabError(
            "\n".join(error.what for error in found),
            "\n".join(dict.fromkeys(error.way_out for error in found if error.way_out)),
        )
        several.exit_code = max(error.exit_code for error in found)
        raise several


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


def _check_traces(plan: Plan) -> None:
    for test in plan.tests:
        if not isinstance(test, ReplayTest) or test.trace is None:
            continue
        trace = Path(test.trace)
        if not trace.exists():
            raise UsageError(
                f"{test.name}: trace = {test.trace}: there is no such file",
                "Name one with --trace, or leave the plan's out.",
            )
        if not trace.is_file() or not os.access(trace, os.R_OK):
            raise UsageError(
                f"{test.name}: trace = {test.trace}: it is no file that can be read",
                "Name a file with --trace, or change its permissions.",
            )


def _check_loads(plan: Plan, size: int | None) -> None:
    """Raises if a load's requests do not fit in a target of `size` bytes."""
    if size is None:
        return
    for test in plan.tests:
        if test.fill and test.fill.size > size:
            raise _does_not_fit(test, "fill", test.fill.size, size)
        for load in loads(test):
            span = int(size * load.span_percent / 100)
            # Each sequential thread has a stretch of its own.
            stretches = load.threads if load.pattern == "sequential" else 1
            largest = max(part.size for part in load.mix())
            if largest * stretches > span:
                raise _does_not_fit(test, load.shown(), largest * stretches, span)


def _does_not_fit(test: AnyTest, what: str, needed: int, room: int) -> UsageError:
    return UsageError(
        f"{test.name}: {what}: needs {shown_size(needed)}, and the target has {shown_size(room)} "
        "for it",
        "Take a larger target, or leave the test out with --test.",
    )


def loads(test: AnyTest) -> Iterator[Load]:
    """Yields the closed loops of a test, at the most threads that it has."""
    if isinstance(test, MatrixTest):
        for size in test.sizes:
            yield Load(
                read_percent=test.read_percents[0],
                sizes=size,
                pattern=test.pattern,
                threads=test.threads,
                queue_depth=test.queue_depth,
            )
    elif isinstance(test, CrossStimulusTest):
        for section in test.sections:
            yield section.load
    elif isinstance(test, SweepTest):
        threads = max(point[0] for point in test.points)
        if test.precondition:
            threads = max(threads, test.precondition.threads)
        yield test.load.model_copy(update={"threads": threads})
    elif isinstance(test, DemandIntensityTest):
        yield test.load.model_copy(update={"threads": max(test.threads)})
    elif isinstance(own := getattr(test, "load", None), Load):
        yield own


def _check_results(plan: Plan, out: Path, time_scale: float) -> None:
    """Raises if the results' directory cannot be made, written, or hold them."""
    folder = out.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"--out {out}: {folder} is no directory", "Give another --out.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"--out {out}: {folder} cannot be written by this user", "Give another --out."
        )
    needed = _RESULT_BYTES + round(of_plan(plan, time_scale).most * _RESULT_RATE)
    hint = "Make room, or give another --out."
    check_room(f"--out {out}: results may need", folder, needed, hint)


def _check_logs(plan: Plan, time_scale: float) -> None:
    """Raises if the longest step's logs may not fit in the directory for temporary files."""
    longest = max((_longest(test) for test in plan.tests), default=0.0) * time_scale
    folder = Path(tempfile.gettempdir())
    needed, free = round(longest * _LOG_RATE), shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"{folder}: logs of the longest step may need {shown_size(needed)}, and "
            f"{shown_size(free)} are free",
            "Make room, or name another directory with TMPDIR.",
        )


def _longest(test: AnyTest) -> float:
    """Returns a bound on the seconds of a test's longest step."""
    names = ("cell", "point", "time", "round", "baseline", "histogram", "calm", "before", "after")
    times = [value for name in names if isinstance(value := getattr(test, name, None), float)]
    if test.fill and test.fill.most:
        times.append(test.fill.most)
    # A saturation's time is that of all its points.
    return float(getattr(test, "point", 0.0)) or max(times, default=0.0)
