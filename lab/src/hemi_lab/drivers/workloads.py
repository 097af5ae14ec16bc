"""Loads as `workload` sections of the specs that `hemi sim` and `hemi load` read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hemi_lab.steps import Step
from hemi_lab.timed import CheckpointLoad, OpenLoad, ReferenceLoad, ReplayLoad
from hemi_lab.workload import Load


def workload(step: Step, capacity: int) -> dict[str, Any]:
    """Returns a step's workload on a target of `capacity` bytes. Raises for an idle step."""
    load = step.load
    if isinstance(load, Load):
        return {"closed": _closed(load, capacity) | _limits(step, load)}
    duration = {} if step.seconds is None else {"duration": _time(step.seconds)}
    if isinstance(load, OpenLoad):
        access = {
            "addresses": "uniform",
            "sizes": f"{load.size} B",
            "mix": {"read_percent": load.read_percent},
        }
        return {"open": {"rate": load.rate, "access": access} | duration}
    if isinstance(load, ReferenceLoad):
        return {"closed": _closed(load.over, capacity) | duration}
    if isinstance(load, CheckpointLoad):
        bursts: dict[str, Any] = {
            "every": _time(load.every),
            "pages": load.pages,
            "page": f"{load.page} B",
            "addresses": "uniform",
            "over": {"closed": _closed(load.over, capacity) | duration},
        }
        if load.outstanding is not None:
            bursts["outstanding"] = load.outstanding
        return {"bursts": bursts | duration}
    if isinstance(load, ReplayLoad):
        replay: dict[str, Any] = {
            "trace": str(Path(load.trace).resolve()),
            "beyond": "wrap",
            "queue_depth": load.queue_depth,
        }
        if load.format is not None:
            replay["format"] = load.format
        if load.volume is not None:
            replay["volume"] = load.volume
        if load.speed != 1:
            replay["speed"] = load.speed
        return {"replay": replay | duration}
    raise ValueError("an idle step has no workload")


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us"


def _closed(load: Load, capacity: int) -> dict[str, Any]:
    mix = load.mix()
    access: dict[str, Any] = {
        "addresses": "uniform" if load.pattern == "random" else "sequential",
        "sizes": f"{mix[0].size} B",
        "mix": {"read_percent": load.read_percent},
    }
    if len(mix) > 1:
        access["sizes"] = [{"size": f"{part.size} B", "weight": part.weight} for part in mix]
    if load.zones:
        zones = [{"accesses": zone.accesses, "space": zone.space} for zone in load.zones]
        access["addresses"] = {"zoned": zones}
    if load.span_percent < 100:
        span = int(capacity * load.span_percent / 100) // 4096 * 4096
        access["span"] = f"{span} B"
    return {"threads": load.threads, "queue_depth": load.queue_depth, "access": access}


def _limits(step: Step, load: Load) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if step.seconds is not None:
        limits["duration"] = _time(step.seconds)
    if step.bytes is not None:
        limits["requests"] = max(1, round(step.bytes / load.mean_size()))
    return limits
