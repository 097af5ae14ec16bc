"""The bench: a target with its driver, on which a plan's tests run their steps.

Every step of a test goes through here. It is timed, recorded and shown. Ctrl-C between steps or
during one ends the run and keeps the results so far."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hemi_lab.drivers.base import Driver, SteadyDriver
from hemi_lab.results.model import Found, Outcome, Preparation, Round, Tracked
from hemi_lab.results.store import Writer
from hemi_lab.statistics.steady import Steadiness, departure
from hemi_lab.steps import Fault, Step, StepResult
from hemi_lab.timed import Timed
from hemi_lab.tool import Interrupted
from hemi_lab.units import shown_size
from hemi_lab.workload import Load

SHORTEST_SECONDS = 1.0
"""The shortest step, however small the plan's times are scaled."""

Show = Callable[[Step, Found | None], None]
"""Called with `None` before each step, and with its row after it."""


@dataclass(frozen=True)
class Done:
    """A finished step: its row in the tables and the driver's result."""

    found: Found
    result: StepResult


class Bench:
    """Runs the steps of one run."""

    def __init__(
        self, driver: Driver, writer: Writer, seed: int, time_scale: float, show: Show
    ) -> None:
        self.driver = driver
        self.writer = writer
        self.seed = seed
        self._time_scale = time_scale
        self._show = show
        self._steps = 0
        self._clock = 0.0
        self._written = 0

    @property
    def capacity(self) -> int:
        """Size of the target in bytes."""
        return self.driver.capacity

    def scaled(self, seconds: float) -> float:
        """Returns a plan's time scaled for this run, in seconds."""
        return max(SHORTEST_SECONDS, seconds * self._time_scale)

    @property
    def fills(self) -> float:
        """Bytes written since the last purge, as a multiple of the capacity."""
        return self._written / self.capacity

    def measure(
        self,
        test: str,
        stage: str,
        label: str,
        load: Load | Timed,
        seconds: float | None = None,
        amount: int | None = None,
        round_: int | None = None,
        keep: bool = True,
        fault: Fault | None = None,
        scale: bool = True,
    ) -> Done:
        """Runs a load for `seconds` or for `amount` bytes.

        `seconds` is a time of the plan. It is scaled here unless `scale` is false."""
        if seconds is not None and scale:
            seconds = self.scaled(seconds)
        return self._do(
            Step(test, stage, label, load, seconds, amount, round_, self._next_seed(), keep, fault)
        )

    def idle(self, test: str, label: str, seconds: float, round_: int | None = None) -> Done:
        """Waits for a time of the plan."""
        scaled = max(0.01, seconds * self._time_scale)
        return self._do(Step(test, "idle", label, None, scaled, None, round_, 0, False))

    def purge(self, test: str, start: Literal["fresh", "steady"] = "fresh") -> bool:
        """Purges the target as thoroughly as it allows, and records the method.

        Returns true if it is in its steady state then, which only simulated drives can be."""
        steady = None
        if start == "steady" and isinstance(self.driver, SteadyDriver):
            steady = self.driver.purge_steady()
        outcome = steady or self.driver.purge()
        if outcome.done:
            self._written = 0
        self._prepared(Preparation(test=test, what="purge", done=outcome.done, how=outcome.how))
        if steady is not None:
            how = "flash as long random writes leave it, by the model (precondition = steady)"
            self._prepared(Preparation(test=test, what="precondition", done=True, how=how))
        return steady is not None

    def fill(self, test: str, size: int, times: float, most_seconds: float | None) -> None:
        """Writes the whole target `times` times with large sequential requests.

        This is the PTS's workload-independent preconditioning. If `most_seconds` ends it early, the
        record says so."""
        load = Load(read_percent=0, sizes=size, pattern="sequential", threads=1, queue_depth=16)
        wanted = int(self.capacity * times)
        label = f"fill {times:g} × {shown_size(self.capacity)}"
        done = self.measure(test, "precondition", label, load, most_seconds, wanted, keep=False)
        written = done.result.all.bytes
        whole = written >= wanted * 0.98
        how = f"{written / self.capacity:.2f} capacities written in order, {shown_size(size)} each"
        if not whole:
            how += f" instead of {times:g}: the time for it was over"
        self._prepared(Preparation(test=test, what="precondition", done=whole, how=how))

    def _prepared(self, preparation: Preparation) -> None:
        self.writer.result.preparations.append(preparation)

    def prepared_by_load(self, test: str, done: bool, how: str) -> None:
        """Records that the test's own load brought the target into its state."""
        self._prepared(Preparation(test=test, what="precondition", done=done, how=how))

    def track(
        self, outcome: Outcome, label: str, unit: str, values: list[float], steady: Steadiness
    ) -> None:
        """Records a variable's way to steady state. `values` may go on beyond it."""
        verdict = steady.verdict
        left = departure(values, steady)
        outcome.tracked.append(
            Tracked(
                label=label,
                unit=unit,
                values=values,
                reached=steady.reached,
                window=steady.window,
                first=steady.first,
                last=steady.last,
                mean=verdict.mean if verdict else None,
                slope=verdict.slope if verdict else None,
                intercept=verdict.intercept if verdict else None,
                range_share=_finite(verdict.range_share if verdict else None),
                excursion_share=_finite(verdict.excursion_share if verdict else None),
                left_in_round=left.round if left else None,
            )
        )
        rounds = []
        for number, value in enumerate(values, 1):
            inside = bool(steady.first and steady.last and steady.first <= number <= steady.last)
            fitted = None
            if inside and verdict and steady.first:
                fitted = verdict.intercept + verdict.slope * (number - steady.first)
            rounds.append(
                Round(
                    test=outcome.name,
                    tracked=label,
                    unit=unit,
                    round=number,
                    value=value,
                    in_window=inside,
                    fitted=fitted,
                )
            )
        self.writer.add_rounds(rounds)

    def _next_seed(self) -> int:
        # Seeds far apart, so that no two steps of similar runs share one. They are below 2^53 for
        # the tables.
        return (self.seed * 0x9E3779B97F4A7C15 + (self._steps + 1) * 0xBF58476D1CE4E5B9) % 2**53

    def begin(self, step: Step) -> None:
        """Shows a step that something other than the driver runs. Call `record` when it is done."""
        self._show(step, None)

    def _do(self, step: Step) -> Done:
        self.begin(step)
        done = self.record(step, self.driver.run(step))
        if done.result.interrupted:
            raise Interrupted("interrupted", "What was measured until then is kept.")
        return done

    def stage(self, test: str, text: str) -> None:
        """Shows a stage of preparing a database. Nothing is measured."""
        self.begin(Step(test, "database", text, None, 0.0, histogram=False))

    def record(self, step: Step, result: StepResult) -> Done:
        """Records and shows the result of a step."""
        self._steps += 1
        found = self._found(step, result)
        self._clock += result.seconds
        self._written += found.written_bytes
        self.writer.add(found, result, step.histogram)
        self._show(step, found)
        return Done(found, result)

    def _found(self, step: Step, result: StepResult) -> Found:
        load, moments = step.load, result.all.moments
        bins = result.all.histogram
        little, late = result.little, result.lateness
        writes = result.operations.get("write")
        return Found(
            step=self._steps,
            test=step.test,
            stage=step.stage,
            label=step.label,
            round=step.round,
            read_percent=load.read_percent if load else None,
            size_bytes=load.mean_size() if load else None,
            pattern=("zoned" if load.zones else load.pattern) if load else None,
            threads=load.threads if load else None,
            queue_depth=load.queue_depth if load else None,
            span_percent=load.span_percent if load else None,
            start_seconds=self._clock,
            length_seconds=result.seconds,
            count=moments.count,
            bytes=result.all.bytes,
            iops=result.iops,
            bytes_per_second=result.bytes_per_second,
            mean_seconds=moments.mean,
            standard_deviation_seconds=moments.standard_deviation,
            p50_seconds=bins.known_percentile(0.5),
            p95_seconds=bins.known_percentile(0.95),
            p99_seconds=bins.known_percentile(0.99),
            p999_seconds=bins.known_percentile(0.999),
            p9999_seconds=bins.known_percentile(0.9999),
            p99999_seconds=bins.known_percentile(0.99999),
            maximum_seconds=moments.maximum,
            issued=result.issued,
            completed=result.completed,
            in_system=little.in_system if little else None,
            rate_by_stay=little.rate_by_stay if little else None,
            lateness_p50_seconds=late.p50 if late else None,
            lateness_p99_seconds=late.p99 if late else None,
            cpu_seconds=result.cpu_seconds,
            energy_joules=result.energy_joules,
            fills_before=self.fills,
            written_bytes=writes.bytes if writes else 0,
            seed=step.seed,
            command=shlex.join(result.command),
            notes="; ".join(result.notes),
            interrupted=result.interrupted,
        )


def _finite(value: float | None) -> float | None:
    return value if value is not None and value != float("inf") else None
