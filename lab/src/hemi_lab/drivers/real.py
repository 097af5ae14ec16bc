"""The driver of real targets: fio for closed loops, `hemi load` for open ones.

It also injects faults into the target's legs meanwhile."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import polars as pl

from hemi_lab.drivers.base import Ceiling, Driver, Outcome
from hemi_lab.drivers.fio.driver import FioDriver
from hemi_lab.drivers.load.driver import LoadDriver
from hemi_lab.errors import LabError
from hemi_lab.faults import Faults
from hemi_lab.steps import Fault, Step, StepResult
from hemi_lab.workload import Load

START_SECONDS = 0.5
"""Time for an engine to start before a fault's own time counts."""


class RealDriver:
    """fio and `hemi load` on one target."""

    def __init__(self, fio: FioDriver, faults: Faults | None) -> None:
        self.name = fio.name
        self.version = fio.version
        self.notes = fio.notes
        self.faults = faults
        self._fio = fio
        self._load: LoadDriver | None = None

    @property
    def capacity(self) -> int:
        """Size of the target in bytes."""
        return self._fio.capacity

    @property
    def block(self) -> int:
        """Smallest request of the target."""
        return self._fio.block

    def purge(self) -> Outcome:
        """Purges as the target can."""
        return self._fio.purge()

    def ceiling(self, outstanding: int) -> Ceiling | None:
        """Returns fio's ceiling. `hemi load` reports its lateness instead."""
        return self._fio.ceiling(outstanding)

    def run(self, step: Step) -> StepResult:
        """Runs one step on the engine it needs, with its fault if it has one."""
        if step.fault is not None:
            return self._run_with_fault(step, step.fault)
        return self._run(step)

    def close(self) -> None:
        """Ends both engines."""
        if self._load is not None:
            self._load.close()
        self._fio.close()

    def _run(self, step: Step) -> StepResult:
        if step.load is None or isinstance(step.load, Load):
            return self._fio.run(step)
        if self._load is None:
            options = self._fio.destination.options
            target = options.get("uri") or options["filename"].replace("\\:", ":")
            direct = options.get("direct", "1") == "1"
            self._load = LoadDriver(target, self.capacity, direct, self._fio.watch)
        return self._load.run(step)

    def _run_with_fault(self, step: Step, fault: Fault) -> StepResult:
        faults = self.faults
        if faults is None:
            raise LabError(
                "this target has no leg that can be made to fail",
                "Take a hemi volume that is served with --allow-inject, or setup:FILE.toml.",
            )
        over = threading.Event()
        laid: list[tuple[float, float]] = []
        failed: list[LabError] = []

        def lay() -> None:
            if over.wait(START_SECONDS + fault.after):
                return
            asked = time.time()
            try:
                if fault.stalls:
                    faults.stall(fault.leg, fault.stalls, fault.seed)
                else:
                    faults.freeze(fault.leg, fault.seconds)
                laid.append((asked, time.time()))
            except LabError as error:
                failed.append(error)

        thread = threading.Thread(target=lay, name="fault", daemon=True)
        asked = time.time()
        with faults.closely():
            thread.start()
            try:
                result = self._run(step)
            finally:
                over.set()
                thread.join()
                # Does nothing if the fault ended by itself.
                faults.clear(fault.leg)
        if failed:
            raise failed[0]
        if result.interrupted or result.began is None:
            return result
        if not laid:
            raise LabError(
                "the load was over before a leg could be made to fail",
                "Give the plan longer times.",
            )
        # It began between the request and the answer. Take the earliest begin and the latest end.
        first, last = laid[0]
        when = (first - result.began, last + fault.seconds - result.began)
        causes = result.causes.with_columns(pl.col("start_seconds") + (asked - result.began))
        return replace(result, fault=when, causes=causes)


def with_load(driver: Driver) -> Driver:
    """Adds `hemi load` and faults to fio's driver. A simulated target's driver has all it needs."""
    return RealDriver(driver, driver.faults) if isinstance(driver, FioDriver) else driver
