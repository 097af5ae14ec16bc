"""Scans of a table on the target by index and by layout, each with a cold pool."""

from __future__ import annotations

from dataclasses import asdict

from hemi_lab import database
from hemi_lab.bench import Bench
from hemi_lab.database import Scan, ScanResult, ScanRun
from hemi_lab.drivers.database import DatabaseDriver
from hemi_lab.errors import LabError
from hemi_lab.methods.estimate import Estimate
from hemi_lab.plans.model import ScanTest
from hemi_lab.results.model import Check, Outcome
from hemi_lab.statistics.histogram import Histogram, Moments
from hemi_lab.steps import Operation, Step, StepResult, no_causes, no_intervals
from hemi_lab.transactions import ScanLoad
from hemi_lab.units import shown_size

_RATES = 500e6, 5e6
"""Assumed range of a scan's rate in bytes a second: in key order, and row by row."""

_STARTS = 2.0, 15.0
"""Assumed range of seconds to start and stop the server for a scan."""

_SUBJECTS = 5
"""Three access paths and two layouts."""

_FILL = 30e6, 2e6


def estimate(test: ScanTest) -> Estimate:
    """Estimates the scans. Creating the table and its copies comes on top."""
    settings = test.settings(1)
    amount, count = settings.expected_bytes(), _SUBJECTS * settings.repeats
    least, most = (
        count * (amount / rate + start) for rate, start in zip(_RATES, _STARTS, strict=True)
    )
    fill = (amount / _FILL[0], amount / _FILL[1])
    # No time here could be scaled.
    return Estimate(0.0, 0.0, count, (least + fill[0], most + fill[1]))


def run(test: ScanTest, bench: Bench, outcome: Outcome) -> None:
    """Runs each scan as a step of one request. Results are kept however it ends."""
    driver = bench.driver
    if not isinstance(driver, DatabaseDriver):
        raise LabError(f"{test.name}: this target holds no database", "Name dir:PATH, say.")
    settings = test.settings(bench.seed)

    def say(text: str) -> None:
        bench.stage(test.name, text)

    def keep(scan: Scan) -> None:
        load = ScanLoad(comparison=scan.comparison, subject=scan.subject)
        asked = Step(test.name, "measure", load.shown(), load, None, seed=settings.seed)
        bench.record(asked, step_result(scan))

    scans = ScanRun(settings, driver.targets["A"], say=say, on_scan=keep)
    try:
        with database.Workplace() as place:
            scans.execute(place)
    except database.LabError as error:
        raise LabError(f"{test.name}: {error}") from error
    finally:
        outcome.facts |= _facts(scans.result)
        outcome.audit.append(_check(test.name, scans.result))
        bench.writer.add_database(test.name, asdict(scans.result))


def step_result(scan: Scan) -> StepResult:
    """Returns one request, as long as the scan."""
    nanoseconds = round(scan.seconds * 1e9)
    moments = Moments(1, scan.seconds, 0.0, scan.seconds)
    bins = Histogram.of([(nanoseconds, nanoseconds, 1)])
    one = Operation(moments, scan.read_bytes, bins)
    return StepResult(scan.seconds, {"scan": one, "all": one}, 1, 1, no_intervals(), no_causes())


def _facts(result: ScanResult) -> dict[str, float | str]:
    facts: dict[str, float | str] = {}
    if result.server_version:
        facts["server"] = result.server_version
    if result.data_bytes and result.pool_bytes:
        data, pool = shown_size(result.data_bytes), shown_size(result.pool_bytes)
        facts["data, buffer pool"] = f"{data}, {pool}"
    for name, layout in result.layouts.items():
        facts[f"{name}: fragments of the file"] = f"{layout.fragments:,}"
    for name, said in result.explained.items():
        facts[f"{name}: the optimizer's way"] = said
    return facts


def _check(test: str, result: ScanResult) -> Check:
    """Checks that the layouts differ enough to be compared."""
    if not result.layouts:
        return Check(name=f"{test}: layouts", passed=None, said="no layout was made")
    said = ", ".join(f"{name}: {one.fragments:,}" for name, one in result.layouts.items())
    return Check(
        name=f"{test}: layouts",
        passed=not result.problems,
        said="; ".join(result.problems) or f"fragments of the table's file, {said}",
    )
