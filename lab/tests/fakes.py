"""A target with known answers, so that results of methods, audit and reports can be predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from hemi_lab.drivers.base import Ceiling, Outcome
from hemi_lab.errors import UsageError
from hemi_lab.statistics.histogram import Histogram, Moments, fio_bin, fio_index
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
    text: str = "device:/dev/fake"

    def describe(self) -> Description:
        return Description("fake", "file", bytes=self.driver.capacity)

    def hazards(self) -> Hazards:
        return self.found

    def check(self, needs: Needs) -> None:
        if needs.freezes and not hasattr(self.driver, "faults"):
            raise UsageError("no leg can be frozen")

    def open(self, seed: int) -> FakeDriver:
        return self.driver


_DRAWN = 4000
"""Most latencies that a step of the noisy driver draws."""


@dataclass
class NoisyDriver(FakeDriver):
    """Makes steps whose seconds and latencies scatter as a drive's do, from the steps' seeds."""

    def run(self, step: Step) -> StepResult:
        plain = super().run(step)
        if step.load is None or not plain.all.moments.count:
            return plain
        chance = np.random.default_rng(step.seed)
        mean = plain.all.moments.mean
        count = plain.all.moments.count
        # Each drawn latency stands for as many requests, so that few need to be drawn.
        each = -(-count // _DRAWN)
        drawn = mean * chance.lognormal(-0.32, 0.8, size=count // each)
        # Bins of fio's width, as real results have.
        kept = Histogram.of((*fio_bin(fio_index(round(one * 1e9))), 1) for one in drawn)
        bins = Histogram(kept.low, kept.high, kept.count * each)
        deviation, most = float(drawn.std()), float(drawn.max())
        total = bins.total
        whole = Operation(
            Moments(total, float(drawn.mean()), deviation, most),
            round(total * (step.load.mean_size() or 0)),
            bins,
        )
        seconds = plain.intervals.height
        rates = chance.normal(1.0, 0.06, size=seconds)
        intervals = plain.intervals.with_columns(
            (pl.col("count") * pl.Series(rates)).round().cast(pl.Int64).alias("count"),
            (pl.col("mean_seconds") / pl.Series(rates)).alias("mean_seconds"),
            (pl.col("mean_seconds") * pl.Series(chance.uniform(4, 30, size=seconds))).alias(
                "maximum_seconds"
            ),
            pl.lit(deviation).alias("standard_deviation_seconds"),
        )
        kind = next(name for name in plain.operations if name != "all")
        writes = intervals.with_columns(pl.lit(kind).alias("operation"))
        return replace(
            plain,
            operations={kind: whole, "all": whole},
            issued=total,
            completed=total,
            intervals=pl.concat([intervals, writes]),
        )
