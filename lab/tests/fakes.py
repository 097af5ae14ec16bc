"""A target with known answers, so that results of methods, audit and reports can be predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import polars as pl
from hemi_lab.drivers.base import Ceiling, Outcome
from hemi_lab.errors import UsageError
from hemi_lab.statistics.histogram import Histogram, Moments
from hemi_lab.steps import INTERVALS, Little, Operation, Step, StepResult, no_causes
from hemi_lab.targets.base import Description, Hazards, Needs
from hemi_lab.workload import Load

CAPACITY = 1 << 30

Rate = Callable[[Step, int], float]
"""IOPS of a step, given the step and its number among all steps, from 0."""


def always(rate: float) -> Rate:
    """Returns a function that gives the same rate for every step."""
    return lambda step, number: rate


@dataclass
class FakeDriver:
    """Makes every step exactly as fast as told, at once."""

    rate: Rate = lambda step, number: 1000.0
    interrupt_at: int | None = None
    lose: int = 0
    little_off: float = 0.0
    name: str = "fake"
    version: str = "1"
    capacity: int = CAPACITY
    block: int = 512
    steps: list[Step] = field(default_factory=list)
    purges: int = 0
    closed: bool = False

    def purge(self) -> Outcome:
        self.purges += 1
        return Outcome(True, "forgotten")

    def run(self, step: Step) -> StepResult:
        number = len(self.steps)
        self.steps.append(step)
        if step.load is None:
            return StepResult(
                step.seconds or 0, {}, 0, 0, pl.DataFrame(schema=INTERVALS), no_causes()
            )
        assert isinstance(step.load, Load), "this one makes closed loops only"
        rate = self.rate(step, number)
        size = step.load.mean_size()
        seconds = step.seconds or (step.bytes or 0) / size / rate
        count = round(rate * seconds)
        mean = step.load.outstanding / rate
        nanoseconds = round(mean * 1e9)
        bins = Histogram.of([(nanoseconds, nanoseconds, count)])
        whole = Operation(Moments(count, mean, 0.0, mean), round(count * size), bins)
        kind = "read" if step.load.read_percent >= 50 else "write"
        rows = [
            (float(second), 1.0, "all", round(rate), round(rate * size), mean, mean, 0.0)
            for second in range(int(seconds))
        ]
        return StepResult(
            seconds,
            {kind: whole, "all": whole},
            count + self.lose,
            count,
            pl.DataFrame(rows, schema=INTERVALS, orient="row"),
            no_causes(),
            Little(float(step.load.outstanding), step.load.outstanding * (1 - self.little_off)),
            cpu_seconds=seconds * 0.1,
            command=["fake", step.label],
            interrupted=number == self.interrupt_at,
        )

    def ceiling(self, outstanding: int) -> Ceiling | None:
        return Ceiling(1e6, 1e-6)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeTarget:
    """The fake driver's target."""

    driver: FakeDriver
    path: str = "/dev/fake"
    found: Hazards = field(default_factory=Hazards)

    def describe(self) -> Description:
        return Description("fake", "file", bytes=self.driver.capacity)

    def hazards(self) -> Hazards:
        return self.found

    def check(self, needs: Needs) -> None:
        if needs.freezes and not hasattr(self.driver, "faults"):
            raise UsageError("no leg can be frozen")

    def open(self, seed: int) -> FakeDriver:
        return self.driver
