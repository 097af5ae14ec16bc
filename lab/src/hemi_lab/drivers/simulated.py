"""The driver of simulated targets: one process of `hemi sim session` that keeps the state."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import polars as pl

from hemi_lab import tool
from hemi_lab.cards import Cards
from hemi_lab.drivers.base import Ceiling, Outcome
from hemi_lab.drivers.fio.output import with_all
from hemi_lab.drivers.load.output import operations
from hemi_lab.drivers.rest import Rests
from hemi_lab.drivers.workloads import workload
from hemi_lab.errors import LabError, ToolError
from hemi_lab.steps import (
    CAUSES,
    INTERVALS,
    Little,
    Step,
    StepResult,
    no_causes,
    no_intervals,
)

INSTALL = "Build hemi (make release) and put it on the PATH, or name it with HEMI."

_KINDS = {"read": "reads", "write": "writes"}

_SHORTEST = 0.02
"""Shortest interval in seconds. The rest of a step in which its last requests end is none."""


class SimulatedDriver:
    """A system of models. A purge recreates it."""

    name = "hemi sim"

    def __init__(self, spec: str, seed: int) -> None:
        self._hemi = tool.find("hemi", "HEMI", INSTALL)
        self.version = tool.run([self._hemi, "--version"]).output.strip().removeprefix("hemi ")
        self._folder = tempfile.TemporaryDirectory(prefix="hemi-lab-sim-")
        self._spec = Path(self._folder.name) / "system.toml"
        self._spec.write_text(spec)
        self._as_given = spec
        self._command = [self._hemi, "sim", "session", str(self._spec), "--seed", str(seed)]
        self._process: subprocess.Popen[str] | None = None
        self._rests = Rests()
        self.opened: dict[str, Any] = self._open()
        self._fresh = True

    @property
    def capacity(self) -> int:
        """Size of the simulated volume in bytes."""
        return int(self.opened["bytes"])

    @property
    def block(self) -> int:
        """Size of a sector, the smallest request of simulated drives."""
        return 512

    @property
    def warnings(self) -> list[str]:
        """Reasons why the figures may not be those of the drives, each with the way out."""
        return [str(warning) for warning in self.opened.get("warnings", [])]

    @property
    def notes(self) -> list[str]:
        """The warnings, and the models that no published figure holds."""
        legs = zip(self.opened["legs"], self.opened.get("not_validated", []), strict=False)
        return self.warnings + [
            f"{name}: the model's {' and '.join(classes)} are not validated: no published figure "
            "of the drive is known"
            for name, classes in dict((str(leg[0]), tuple(kinds)) for leg, kinds in legs).items()
            if classes
        ]

    def purge(self) -> Outcome:
        """Restarts the session, which restores the drives to their state before the first
        request."""
        if not self._fresh or self._spec.read_text() != self._as_given:
            self._reopen(self._as_given)
        return Outcome(True, "simulated drives made anew")

    def purge_steady(self) -> Outcome | None:
        """Restarts the session with flash as long random writes leave it.

        Returns `None` if the system's file says itself what happened to the flash before."""
        steady = _steady(self._as_given)
        if steady is None:
            return None
        if not self._fresh or self._spec.read_text() != steady:
            self._reopen(steady)
        return Outcome(True, "simulated drives made anew, in their steady state")

    def _reopen(self, spec: str) -> None:
        self.close_process()
        self._spec.write_text(spec)
        self.opened = self._open()
        self._rests = Rests()
        self._fresh = True

    def run(self, step: Step) -> StepResult:
        """Runs one step of the session."""
        self._fresh = False
        asked: dict[str, Any] = {"name": step.label, "seed": step.seed}
        if step.load is None:
            asked["idle"] = f"{(step.seconds or 0) * 1e6:.0f} us"
        else:
            asked["workload"] = workload(step, self.capacity)
        text = json.dumps(asked)
        command = ["sh", "-c", f"echo '{text}' | {' '.join(self._command)}"]
        try:
            report = self._ask(text)
        except KeyboardInterrupt:
            # The result of the rest of the step is unknown.
            self.close_process()
            return StepResult(
                0.0, {}, 0, 0, no_intervals(), no_causes(), command=command, interrupted=True
            )
        self._rests.settle(report, resting=step.load is None)
        return _result(report, command)

    def ceiling(self, outstanding: int) -> Ceiling | None:
        """Returns `None`: in virtual time the generator has no limit."""
        return None

    def cards(self) -> Cards:
        """Starts making the model cards, in parallel with the run."""
        return Cards(self._hemi, [str(name) for name, _ in self.opened["legs"]])

    def close_process(self) -> None:
        """Ends the session."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        """Ends the session and removes its file."""
        self.close_process()
        self._folder.cleanup()

    def _open(self) -> dict[str, Any]:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(self._command, str(error), INSTALL) from error
        return self._answer()

    def _ask(self, text: str) -> dict[str, Any]:
        if self._process is None or self._process.stdin is None:
            raise LabError("the simulation has ended already", "This is a mistake of the lab's.")
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended. Its reason is read below.
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None
        line = process.stdout.readline()
        if not line:
            _, errors = process.communicate()
            self._process = None
            raise ToolError(self._command, errors, _way_out(errors))
        answer: dict[str, Any] = json.loads(line)
        return answer


def _steady(spec: str) -> str | None:
    """Returns a system's file with its flash in steady state, or `None` if it has a state."""
    if "precondition" in tomllib.loads(spec).get("system", {}):
        return None
    steady, found = re.subn(
        r"(?m)^[ \t]*\[system\][^\n]*$", '[system]\nprecondition = "steady"', spec, count=1
    )
    return steady if found else None


def _way_out(errors: str) -> str:
    if "run.limit" in errors:
        return (
            "Flash divided by too large a scale has no room to collect garbage in, and stands "
            "still: take a smaller one."
        )
    return "hemi help sim session tells what it takes."


def _result(report: dict[str, Any], command: list[str]) -> StepResult:
    in_system, by_stay = report["little"]
    return StepResult(
        seconds=float(report["measured"] or report["time"]),
        operations=operations(report, float(report["measured"])),
        issued=int(report["requests"]),
        completed=int(report["all"]["count"]),
        intervals=_intervals(report),
        causes=_causes(report),
        little=Little(in_system, by_stay) if report["requests"] else None,
        energy_joules=sum(leg["energy"] for leg in report["legs"]),
        command=command,
        notes=[str(warning) for warning in report["warnings"]],
    )


def _intervals(report: dict[str, Any]) -> pl.DataFrame:
    rows = []
    for interval in report["intervals"]:
        if interval["length"] < _SHORTEST:
            continue
        for kind in ("read", "write"):
            part = interval[_KINDS[kind]]
            if part["count"]:
                rows.append(
                    {
                        "start_seconds": interval["start"] - report["start"],
                        "length_seconds": interval["length"],
                        "operation": kind,
                        "count": part["count"],
                        "bytes": part["bytes"],
                        "mean_seconds": part["mean"],
                        "maximum_seconds": part["max"],
                        "standard_deviation_seconds": part["standard_deviation"],
                    }
                )
    return with_all(pl.DataFrame(rows, schema=INTERVALS))


def _causes(report: dict[str, Any]) -> pl.DataFrame:
    rows: list[tuple[float, float, int | None, str, float]] = []
    for interval in report["intervals"]:
        length = interval["length"]
        if length < _SHORTEST:
            continue
        start = interval["start"] - report["start"]
        rows.append((start, length, None, "exposure_bytes", float(interval["exposure_bytes"])))
        rows.append((start, length, None, "exposure_age_seconds", float(interval["exposure_age"])))
        whole = sum(leg["read_bytes"] + leg["written_bytes"] for leg in interval["legs"])
        for number, leg in enumerate(interval["legs"]):
            moved = leg["read_bytes"] + leg["written_bytes"]
            figures = {
                "share": moved / whole if whole else 0.0,
                "bytes_per_second": moved / length,
                "busy": leg["busy"],
                "write_amplification": leg["write_amplification"],
                "watts": leg["energy"] / length,
            }
            if not leg["written_bytes"]:
                # Pages that garbage collection moved without any writes amplify nothing.
                del figures["write_amplification"]
            rows += [(start, length, number, name, float(v)) for name, v in figures.items()]
    return pl.DataFrame(rows, schema=CAUSES, orient="row")
