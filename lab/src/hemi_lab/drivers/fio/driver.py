"""The fio driver: one short job for each step. The relations of steps are the lab's matter."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import polars as pl

from hemi_lab import requests, tool
from hemi_lab.drivers.base import Ceiling, Outcome
from hemi_lab.drivers.fio import document, job, output
from hemi_lab.drivers.fio.records import records
from hemi_lab.errors import LabError, ToolError
from hemi_lab.faults import Faults
from hemi_lab.steps import Little, Step, StepResult, no_causes, no_intervals
from hemi_lab.workload import Load

INSTALL = "Install fio (Debian: apt-get install fio), or name it with HEMI_LAB_FIO."

_CEILING_SECONDS = 2.0

_FINE_SECONDS = 0.1
"""Length of an interval in a step with a fault."""

CauseWatch = Callable[[], AbstractContextManager[Callable[[], pl.DataFrame]]]
"""Samples a target while a step runs. The context's function returns the samples afterwards."""


def find_fio() -> str:
    """Returns fio's path."""
    return tool.find("fio", "HEMI_LAB_FIO", INSTALL)


class FioDriver:
    """fio on one destination."""

    name = "fio"

    def __init__(
        self,
        destination: job.Destination,
        purge: Callable[[], Outcome],
        watch: CauseWatch | None = None,
        notes: list[str] | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._fio = find_fio()
        self.version = tool.run([self._fio, "--version"]).output.strip().removeprefix("fio-")
        self.destination = destination
        self.watch = watch
        self.faults = faults
        self._purge = purge
        self.notes = list(notes or [])
        self._folder = tempfile.TemporaryDirectory(prefix="hemi-lab-fio-")
        self._steps = 0

    @property
    def capacity(self) -> int:
        """Size of the destination in bytes."""
        return self.destination.capacity

    @property
    def block(self) -> int:
        """Smallest request of the destination."""
        return self.destination.block

    def purge(self) -> Outcome:
        """Purges as the target can."""
        return self._purge()

    def run(self, step: Step) -> StepResult:
        """Runs one job and reads its JSON and its logs."""
        if step.load is None:
            return idle(step.seconds or 0.0)
        if not isinstance(step.load, Load):
            raise LabError(f"fio makes closed loops only: {step.load.shown()}", "")
        each = step.fault is not None
        text, notes = job.job(
            self.destination, step.load, step.seed, step.seconds, step.bytes, each
        )
        watch = self.watch() if self.watch else nullcontext(no_causes)
        with watch as causes:
            finished, folder, command = self._fio_run(text)
        found = _first_job(folder / "out.json", finished.interrupted, command)
        if found is None:
            return StepResult(
                0.0, {}, 0, 0, no_intervals(), no_causes(), command=command, interrupted=True
            )
        if found["error"]:
            said = f"error {found['error']} in the job\n{finished.errors}"
            raise ToolError(command, said, "Look into the kernel's log for I/O errors.")
        operations = output.operations(found)
        seconds = output.seconds(found)
        issued, completed = output.issued_and_completed(found)
        whole = operations["all"].moments
        rate = whole.count / seconds if seconds else 0.0
        single, began = records(folder) if each else (None, None)
        return StepResult(
            seconds=seconds,
            operations=operations,
            issued=issued,
            completed=completed,
            intervals=output.intervals(folder, found)
            if single is None
            else requests.intervals(single, _FINE_SECONDS),
            causes=causes(),
            little=Little(float(step.load.outstanding), rate * whole.mean),
            cpu_seconds=finished.cpu_seconds,
            command=command,
            notes=notes,
            interrupted=finished.interrupted,
            records=single,
            began=began,
        )

    def ceiling(self, outstanding: int) -> Ceiling | None:
        """Measures fio's own limit: one thread against its null engine."""
        finished, folder, command = self._fio_run(job.null_job(outstanding, _CEILING_SECONDS))
        found = _first_job(folder / "out.json", finished.interrupted, command)
        if found is None:
            return None
        whole = output.operations(found)["all"].moments
        return Ceiling(
            whole.count / max(output.seconds(found), 1e-9),
            finished.cpu_seconds / max(whole.count, 1),
            command,
        )

    def close(self) -> None:
        """Removes job files and logs."""
        self._folder.cleanup()

    def _fio_run(self, text: str) -> tuple[tool.Finished, Path, list[str]]:
        """Runs a job file.

        The returned command has the job on its command line, so that it can be repeated without the
        file."""
        self._steps += 1
        folder = Path(self._folder.name) / str(self._steps)
        folder.mkdir()
        (folder / "job.fio").write_text(text)
        command = [self._fio, "--output-format=json+", "--output=out.json", "job.fio"]
        shown = [self._fio, "--output-format=json+", *_as_arguments(text)]
        try:
            return tool.run(command, folder), folder, shown
        except ToolError as error:
            told = folder / "out.json"
            said = _before_json(told.read_text()) if told.exists() else ""
            raise ToolError(shown, f"{said}{error.message}") from error


def probe_engine(options: dict[str, str], capacity: int, block: int) -> tuple[str, list[str]]:
    """Returns the best engine that works here: io_uring, libaio or psync.

    A sandbox or an old kernel may lack the first, and says so only when asked."""
    refused = []
    for engine in ("io_uring", "libaio", "psync"):
        destination = job.Destination(options, engine, capacity, block)
        driver = FioDriver(destination, lambda: Outcome(False, ""))
        text = f"""[global]
ioengine={engine}
rw=randread
bs={block}
size={capacity - capacity % block}
runtime=50ms
time_based=1
thread=1
"""
        text += "".join(f"{key}={value}\n" for key, value in options.items()) + "[probe]\n"
        try:
            driver._fio_run(text)
        except ToolError as error:
            refused.append(error)
        else:
            tried = ", ".join(("io_uring", "libaio", "psync")[: len(refused)])
            return engine, [f"fio's engine is {engine}: {tried} did not work"] if refused else []
        finally:
            driver.close()
    raise refused[0]


def idle(seconds: float) -> StepResult:
    """Sleeps for a time of the wall clock."""
    begun = time.monotonic()
    interrupted = False
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        interrupted = True
    took = time.monotonic() - begun
    return StepResult(took, {}, 0, 0, no_intervals(), no_causes(), interrupted=interrupted)


def _first_job(path: Path, interrupted: bool, command: list[str]) -> dict[str, Any] | None:
    try:
        return document.first_job(path.read_text())
    except (OSError, ValueError, KeyError, IndexError, json.JSONDecodeError) as error:
        if interrupted:
            return None
        raise LabError(
            f"fio ended well, but its JSON cannot be read: {error}", "Try another version of fio."
        ) from error


def _before_json(text: str) -> str:
    return text.split("{", 1)[0]


def _as_arguments(text: str) -> list[str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("[")]
    name = [line.strip("[]") for line in text.splitlines() if line.startswith("[")][-1]
    return [f"--name={name}", *(f"--{line}" for line in lines)]
