"""Watts and IOPS of one drive: given, from a run, or from a preset's model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from hemi_lab.costs.plan import FromPreset, FromRun, Option
from hemi_lab.drivers.simulated import SimulatedDriver
from hemi_lab.errors import UsageError
from hemi_lab.report.spare import write_amplification
from hemi_lab.results.store import Reader
from hemi_lab.steps import Step
from hemi_lab.targets.drives import scale_most
from hemi_lab.targets.simulated import quoted

SCALE = 16
"""The divisor of a preset's flash by default, where the preset allows it."""


@dataclass(frozen=True)
class Power:
    """Power and rate of one drive."""

    idle_watts: float
    active_watts: float
    iops: float | None
    source: str
    simulated: bool
    write_amplification: float | None = None
    warnings: tuple[str, ...] = ()
    """Reasons why a model's figures may not be those of the drive, each with the way out."""


@dataclass(frozen=True)
class _Measured:
    """Figures of a run or a model."""

    idle_watts: float | None
    active_watts: float | None
    iops: float | None
    write_amplification: float | None
    warnings: tuple[str, ...] = ()


def power(option: Option, folder: Path, needs_iops: bool) -> Power:
    """Returns the drive's power and rate. The option's own values take precedence over measured
    ones."""
    idle, active, iops = option.idle_watts, option.active_watts, option.iops
    source, simulated = "given", False
    found = _Measured(None, None, None, None)
    if option.run is not None:
        found = _of_run(option.run, folder, option.name)
        source, simulated = f"run {option.run.folder.name}, {option.run.label}", True
    elif option.preset is not None:
        found = _of_preset(option.preset, folder)
        source, simulated = f"model of {option.preset.name}, {option.preset.load.shown()}", True
    idle = found.idle_watts if idle is None else idle
    active = found.active_watts if active is None else active
    iops = found.iops if iops is None else iops
    if idle is None or active is None:
        raise UsageError(
            f"option {option.name!r}: idle_watts is not known: the run has no idle step",
            "Give idle_watts.",
        )
    if iops is None and needs_iops:
        raise UsageError(
            f"option {option.name!r}: iops is missing, and the demand has some", "Give its iops."
        )
    return Power(idle, active, iops, source, simulated, found.write_amplification, found.warnings)


def _of_run(given: FromRun, folder: Path, name: str) -> _Measured:
    reader = Reader(folder / given.folder)
    steps = reader.table("steps").filter(
        pl.col("energy_joules").is_not_null() & (pl.col("length_seconds") > 0)
    )
    if steps.is_empty():
        raise UsageError(
            f"option {name!r}: {given.folder}: the run has no energy",
            "Simulated runs have; of a real drive give idle_watts and active_watts.",
        )
    own = steps.filter((pl.col("test") == given.test) & (pl.col("label") == given.label))
    if own.is_empty():
        known = steps.filter(pl.col("count") > 0).select("test", "label").unique().sort("test")
        listed = "; ".join(f"{test}: {label}" for test, label in known.iter_rows())
        raise UsageError(
            f"option {name!r}: {given.folder}: no step {given.label!r} of test {given.test!r}",
            f"There are {listed}.",
        )
    active = _watts(own)
    rests = steps.filter(pl.col("stage") == "idle")
    seconds = float(own["length_seconds"].to_numpy().sum())
    iops = float(own["count"].to_numpy().sum()) / seconds
    amplified = write_amplification(reader.table("causes"), own["step"].to_list())
    return _Measured(_idle_watts(rests), active, iops, amplified)


def _watts(steps: pl.DataFrame) -> float:
    joules, seconds = steps["energy_joules"].to_numpy(), steps["length_seconds"].to_numpy()
    return float(joules.sum() / seconds.sum())


def _idle_watts(rests: pl.DataFrame) -> float | None:
    """Returns the mean power. An idle step's energy is counted to its last whole second."""
    counted = rests.with_columns(pl.col("length_seconds").add(1e-6).floor())
    counted = counted.filter(pl.col("length_seconds") >= 1)
    return None if counted.is_empty() else _watts(counted)


def _of_preset(given: FromPreset, folder: Path) -> _Measured:
    name = given.name
    if name.endswith(".toml"):
        name = str((folder / name).resolve())
    scale = given.scale
    if scale is None:
        most = scale_most(name)
        scale = SCALE if most is None else max(1, min(SCALE, most))
    spec = "\n".join(
        [
            'title = "Energy"',
            "[system]",
            'policy = "single"',
            f"legs = [{quoted(name)}]",
            f"scale = {scale}",
            f"precondition = {quoted(given.precondition)}",
            "",
        ]
    )
    driver = SimulatedDriver(spec, 1)
    warnings = tuple(
        # It names the key of a system's file. Here it is one of the preset's.
        warning.replace("system.scale", "scale")
        for warning in driver.warnings
    )
    try:
        # Idle energy is counted to the last whole second.
        rest = driver.run(Step("tco", "idle", "idle", None, float(math.ceil(given.seconds))))
        work = driver.run(Step("tco", "measure", "load", given.load, given.seconds, seed=1))
    finally:
        driver.close()
    # Virtual time: both exist, whatever the machine did meanwhile.
    idle = (rest.energy_joules or 0.0) / max(rest.seconds, 1e-9)
    active = (work.energy_joules or 0.0) / max(work.seconds, 1e-9)
    causes = work.causes.with_columns(pl.lit(1, dtype=pl.Int64).alias("step"))
    return _Measured(idle, active, work.iops, write_amplification(causes, [1]), warnings)
