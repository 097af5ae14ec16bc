"""A database on the target: MariaDB under sysbench, at rising thread counts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hemi_lab import database
from hemi_lab.audit import CPU
from hemi_lab.bench import Bench
from hemi_lab.database import OltpResult, OltpRun, PlacementResult
from hemi_lab.database.results import Step as DatabaseStep
from hemi_lab.drivers.database import DatabaseDriver
from hemi_lab.errors import LabError
from hemi_lab.methods.estimate import Estimate
from hemi_lab.methods.transactions import step_result
from hemi_lab.plans.model import DatabaseTest
from hemi_lab.results.model import Check, Outcome
from hemi_lab.steps import Step, StepResult, no_causes, no_intervals
from hemi_lab.transactions import DatabaseLoad
from hemi_lab.units import counted, shown_size

_LOADS = 30e6, 2e6
"""Assumed range of the rate of loading tables, in bytes a second, checks included."""

_PROCESSOR_SECONDS = 10.0
"""Shorter steps are not checked for processor time, since connecting the threads counts in it."""

_STARTS = 30.0
"""Longest time in seconds for installing, starting and stopping a server."""


def estimate(test: DatabaseTest) -> Estimate:
    """Estimates warm-ups, steps and rests. Loading the tables comes on top."""
    settings = test.settings(1.0, 1)
    count = len(settings.placements)
    amount = count * settings.expected_bytes()
    planned = float(settings.planned_seconds())
    loads = (amount / _LOADS[0], amount / _LOADS[1] + count * _STARTS)
    return Estimate(planned, planned, count * len(settings.threads), loads)


def run(test: DatabaseTest, bench: Bench, outcome: Outcome) -> None:
    """Runs each placement in turn.

    Results are kept however it ends. A database that is inconsistent afterwards ends the plan."""
    driver = bench.driver
    if not isinstance(driver, DatabaseDriver):
        raise LabError(f"{test.name}: this target holds no database", "Name dir:PATH, say.")
    keeper = _Keeper(test, bench, outcome)
    settings = test.settings(bench.writer.result.time_scale, bench.seed)
    run = OltpRun(settings, driver.targets, say=keeper.say, on_step=keeper.step)
    try:
        with database.Workplace() as place:
            run.execute(place)
    except database.LabError as error:
        raise LabError(f"{test.name}: {error}") from error
    finally:
        keeper.end(run.result)
    broken = [check for check in outcome.audit if "consistency" in check.name and not check.passed]
    if broken:
        raise LabError(
            f"{broken[0].name}: {broken[0].said}",
            "Something has lost or invented a row; database.json has the rows.",
        )


class _Keeper:
    """Adds the database part's reports to the run's result."""

    def __init__(self, test: DatabaseTest, bench: Bench, outcome: Outcome) -> None:
        self._test = test
        self._bench = bench
        self._outcome = outcome

    def say(self, text: str) -> None:
        """Shows the start of a stage."""
        self._bench.stage(self._test.name, text)

    def step(self, placement: PlacementResult, step: DatabaseStep) -> None:
        """Adds a step that is done or was interrupted."""
        number = len(placement.steps)
        if number > 1:
            self._rest()
        load = DatabaseLoad(
            workload=self._test.workload, placement=placement.placement, threads=step.threads
        )
        stage = "warm-up" if step.warm_up else "measure"
        asked = Step(
            self._test.name, stage, load.shown(), load, float(step.seconds),
            seed=self._test.settings(1.0, self._bench.seed).seed + number - 1,
            histogram=not step.warm_up,
        )  # fmt: skip
        self._bench.record(asked, step_result(step))

    def _rest(self) -> None:
        seconds = self._test.settings(
            self._bench.writer.result.time_scale, self._bench.seed
        ).idle_seconds
        if seconds:
            idle = Step(self._test.name, "idle", "idle", None, float(seconds), histogram=False)
            self._bench.record(
                idle, StepResult(float(seconds), {}, 0, 0, no_intervals(), no_causes())
            )

    def end(self, result: OltpResult) -> None:
        """Adds the final figures, however the test ended."""
        for placement in result.placements:
            for step in placement.steps:
                if step.report is None and step.series:
                    self.step(placement, step)
        self._bench.writer.result.notes += [
            f"{self._test.name}: {said}" for said in result.deviations
        ]
        self._outcome.facts |= _facts(result)
        self._outcome.audit += _checks(
            self._test.name, result, self._bench.writer.result.host.cores
        )
        self._bench.writer.add_database(self._test.name, told(result))


def told(result: OltpResult) -> dict[str, Any]:
    """Returns everything as plain data, except what is in the tables: series and bins."""
    whole = asdict(result)
    for placement in whole["placements"]:
        for step in placement["steps"]:
            if (report := step["report"]) is not None:
                del report["series"], report["bins"]
                for kind in report["kinds"]:
                    del kind["bins"]
    return whole


def _facts(result: OltpResult) -> dict[str, float | str]:
    facts: dict[str, float | str] = {}
    for one in result.placements:
        if one.server_version:
            facts["server"] = one.server_version
        if one.data_bytes and one.pool_bytes:
            facts[f"{one.placement}: data, buffer pool"] = (
                f"{shown_size(one.data_bytes)}, {shown_size(one.pool_bytes)}"
            )
        if one.load_seconds is not None:
            facts[f"{one.placement}: loading, s"] = one.load_seconds
        options = one.server_settings
        if options:
            facts["flushes at each commit"] = options.get("innodb_flush_log_at_trx_commit", "–")
            facts["doublewrite"] = options.get("innodb_doublewrite", "–")
            facts["redo log"] = shown_size(int(options.get("innodb_log_file_size", 0)))
    return facts


def _checks(test: str, result: OltpResult, cores: int) -> list[Check]:
    """Returns the database part's checks of each step and of the consistency conditions."""
    done = [
        (
            f"{one.placement}, {counted(step.threads, 'thread')}"
            f"{' (warm-up)' if step.warm_up else ''}",
            step,
        )
        for one in result.placements
        for step in one.steps
        if step.audit is not None
    ]
    problems = [
        f"{where}: {problem}"
        for where, step in done
        if step.audit
        for problem in step.audit.problems
    ]
    checks = [
        Check(
            name=f"{test}: sysbench's report",
            passed=not problems if done else None,
            said="; ".join(problems)
            or (
                f"{counted(len(done), 'step')}: threads were in transactions all the time, every "
                "event is in the histogram, and its 95th percentile is sysbench's own"
                if done
                else "no step came to its end"
            ),
        )
    ]
    used = [
        ((step.sysbench_cpu_seconds + step.server_cpu_seconds) / step.report.seconds / cores, where)
        for where, step in done
        if step.report and step.report.seconds >= _PROCESSOR_SECONDS
    ]
    if done and not used:
        said = f"no step took {_PROCESSOR_SECONDS:g} s: connecting would count too much"
        checks.append(Check(name=f"{test}: processors", passed=None, said=said))
    if used:
        worst, where = max(used)
        checks.append(
            Check(
                name=f"{test}: processors",
                passed=worst <= CPU,
                said=(
                    f"MariaDB and sysbench used {worst:.0%} of {counted(cores, 'core')} at most "
                    f"({where}); "
                    "beyond the bound the figures are the processors', not the storage's"
                ),
                value=worst,
                bound=CPU,
            )
        )
    for one in result.placements:
        for when, findings in (("load", one.checks_after_load), ("run", one.checks_after_run)):
            if findings:
                broken = [finding for finding in findings if not finding.holds]
                said = f"{len(findings) - len(broken)} of {len(findings)} TPC-C conditions hold"
                said += "".join(
                    f"; 3.3.2.{finding.number} ({finding.statement}) is broken "
                    f"{counted(finding.violations, 'time')}, such as {'; '.join(finding.examples)}"
                    for finding in broken
                )
                name = f"{test}, {one.placement}: consistency after the {when}"
                checks.append(Check(name=name, passed=not broken, said=said))
    return checks
