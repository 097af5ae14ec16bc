"""The driver of `hemi load`: open loops, checkpoint bursts and replays on real targets."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import polars as pl

from hemi_lab import tool
from hemi_lab.drivers.load import output, spec
from hemi_lab.drivers.workloads import workload
from hemi_lab.errors import LabError, ToolError
from hemi_lab.steps import Step, StepResult, no_causes, no_intervals
from hemi_lab.timed import ReplayLoad
from hemi_lab.transactions import OfDatabase
from hemi_lab.workload import Load

INSTALL = "Take a hemi that has it (make release), and name it with HEMI."

FINE_SECONDS = 0.1
"""Length of an interval of a step with a fault."""

CauseWatch = Callable[[], AbstractContextManager[Callable[[], pl.DataFrame]]]


def find_load() -> str:
    """Returns the path of a hemi with the command `load`."""
    hemi = tool.find("hemi", "HEMI", INSTALL)
    try:
        tool.run([hemi, "load", "--help"])
    except ToolError as error:
        raise LabError(f"{hemi} has no command `load`", INSTALL) from error
    return hemi


class LoadDriver:
    """`hemi load` on one target, named as hemi names it."""

    def __init__(
        self, target: str, capacity: int, direct: bool, watch: CauseWatch | None = None
    ) -> None:
        self._hemi = find_load()
        self.version = tool.run([self._hemi, "--version"]).output.strip().removeprefix("hemi ")
        self._target = target
        self._capacity = capacity
        self._direct = direct
        self._watch = watch
        self._folder = tempfile.TemporaryDirectory(prefix="hemi-lab-load-")
        self._steps = 0

    def run(self, step: Step) -> StepResult:
        """Runs one load, and reads its JSON and its requests."""
        load = step.load
        if load is None or isinstance(load, Load | OfDatabase):
            raise LabError("hemi load is for loads with times of their own", "Take fio.")
        self._steps += 1
        folder = Path(self._folder.name) / str(self._steps)
        folder.mkdir()
        text = spec.text(step.label, step.seed, workload(step, self._capacity))
        (folder / "load.toml").write_text(text)
        command = [self._hemi, "load", "load.toml", "--target", self._target]
        command += ["--wipe", self._target, "--json", "out.json", "--records", "records.parquet"]
        command += ["--lateness-bound", f"{load.lateness * 1e6:.0f}us"]
        if not self._direct:
            command.append("--buffered")
        if isinstance(load, ReplayLoad):
            command += ["--queue-depth-cap", str(load.queue_depth)]
        watch = self._watch() if self._watch else nullcontext(no_causes)
        failure: ToolError | None = None
        interrupted = False
        cpu_seconds = None
        with watch as causes:
            try:
                finished = tool.run(command, folder)
                interrupted, cpu_seconds = finished.interrupted, finished.cpu_seconds
            except ToolError as error:
                # It also fails if it was later than its bound. Then its result has the reason.
                failure = error
        report = _report(folder / "out.json")
        shown = spec.as_command(text, command)
        if report is None:
            if failure is not None:
                raise failure
            return StepResult(
                0.0, {}, 0, 0, no_intervals(), no_causes(), command=shown, interrupted=True
            )
        if report["refusal"] is None and failure is not None:
            raise failure
        return output.result(
            report,
            pl.read_parquet(folder / "records.parquet"),
            causes(),
            shown,
            cpu_seconds,
            interrupted,
            FINE_SECONDS if step.fault else 1.0,
            step.fault is not None,
            load.lateness,
        )

    def close(self) -> None:
        """Removes specs and results."""
        self._folder.cleanup()


def _report(path: Path) -> dict[str, Any] | None:
    try:
        report: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return report
