"""Methods: one file for each kind of test, which runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hemi_lab.bench import Bench
from hemi_lab.methods import (
    checkpoints,
    cross_stimulus,
    database,
    demand_intensity,
    freeze,
    idle_recovery,
    matrix,
    replay,
    saturation,
    scans,
    stalls,
    sweep,
)
from hemi_lab.methods.estimate import Estimate
from hemi_lab.results.model import Outcome


@dataclass(frozen=True)
class Method:
    """The functions of one kind of test: run it, and estimate its time."""

    run: Callable[[Any, Bench, Outcome], None]
    estimate: Callable[[Any], Estimate]


METHODS = {
    "matrix": Method(matrix.run, matrix.estimate),
    "saturation": Method(saturation.run, saturation.estimate),
    "idle-recovery": Method(idle_recovery.run, idle_recovery.estimate),
    "cross-stimulus": Method(cross_stimulus.run, cross_stimulus.estimate),
    "sweep": Method(sweep.run, sweep.estimate),
    "demand-intensity": Method(demand_intensity.run, demand_intensity.estimate),
    "freeze": Method(freeze.run, freeze.estimate),
    "stalls": Method(stalls.run, stalls.estimate),
    "checkpoints": Method(checkpoints.run, checkpoints.estimate),
    "database": Method(database.run, database.estimate),
    "scans": Method(scans.run, scans.estimate),
    "replay": Method(replay.run, replay.estimate),
}
"""Methods by the plan's `kind`. A new kind is a model in `plans/model.py` and a line here."""
