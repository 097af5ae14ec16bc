"""Runs from plan to result: methods, Ctrl-C, failures, the self-audit."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import polars as pl
import pytest
from fakes import CAPACITY, FakeDriver, FakeTarget, Rate
from hemi_lab.audit import audit
from hemi_lab.errors import ToolError
from hemi_lab.host import Watch
from hemi_lab.plans.load import parse
from hemi_lab.results.model import Check
from hemi_lab.results.store import TABLES, Reader
from hemi_lab.runner import Ended, Order, run
from hemi_lab.steps import Step
from hemi_lab.workload import Load

HEAD = 'name = "own"\ntitle = "Own"\nsource = "mine"\n'
MATRIX = (
    HEAD
    + """
[[tests]]
name = "iops"
title = "IOPS"
kind = "matrix"
fill = { size = "128 KiB", times = 2 }
read_percents = [100, 0]
sizes = ["8 KiB", "4 KiB"]
cell = "2 s"
tracked = [{ read_percent = 0, size = "4 KiB" }]
"""
)
SWEEP = (
    HEAD
    + """
[[tests]]
name = "reads"
title = "Reads"
kind = "sweep"
load = { read_percent = 100, sizes = "4 KiB" }
precondition = { threads = 2, queue_depth = 2, round = "10 s", time = "300 s", fills = 0 }
points = [[1, 1], [2, 4]]
time = "3 s"
"""
)


def carry_out(plan: str, driver: FakeDriver, out: Path, scale: float = 1.0) -> Ended:
    order = Order(parse(plan, "own.toml"), plan, FakeTarget(driver), out, 1, scale)
    return run(order, lambda step, found: None)


def check(ended: Ended, name: str) -> Check:
    return next(check for check in ended.result.audit if check.name == name)


def falling(until: int) -> Rate:
    """Returns rates of rounds that fall by 20 % each up to round `until`, and are even
    afterwards."""
    return lambda step, number: 1000 * 0.8 ** min(step.round or 1, until)


def test_a_matrix_goes_on_until_its_tracked_cell_is_steady(tmp_path: Path) -> None:
    driver = FakeDriver(falling(4))
    ended = carry_out(MATRIX, driver, tmp_path)
    assert ended.error is None
    tracked = ended.result.tests[0].tracked[0]
    assert (tracked.reached, tracked.first, tracked.last) == (True, 4, 8)
    assert tracked.label == "4 KiB, 0 % read"
    assert len(driver.steps) == 1 + 8 * 4
    fill = driver.steps[0]
    assert fill.bytes == 2 * CAPACITY
    assert isinstance(fill.load, Load)
    assert (fill.load.pattern, fill.load.sizes) == ("sequential", 128 << 10)
    reader = Reader(ended.folder)
    rounds = reader.table("rounds")
    assert rounds["in_window"].to_list() == [False] * 3 + [True] * 5
    assert rounds.filter(pl.col("in_window"))["fitted"].is_not_null().all()
    assert reader.result.status == "whole"
    done = [(item.what, item.done) for item in reader.result.preparations]
    assert done == [("purge", True), ("precondition", True)]


def test_twenty_five_rounds_and_it_says_so(tmp_path: Path) -> None:
    driver = FakeDriver(lambda step, number: 1e6 * 0.9 ** (step.round or 0))
    ended = carry_out(MATRIX, driver, tmp_path)
    tracked = ended.result.tests[0].tracked[0]
    assert not tracked.reached
    assert len(tracked.values) == 25
    assert ended.error is None, "not reaching steady state is a finding and no failure"


def test_reads_are_preconditioned_with_writes(tmp_path: Path) -> None:
    driver = FakeDriver()
    ended = carry_out(SWEEP, driver, tmp_path)
    before = [step for step in driver.steps if step.stage == "precondition"]
    assert len(before) == 5
    assert all(step.load and step.load.read_percent == 0 for step in before)
    assert all(isinstance(step.load, Load) and step.load.outstanding == 4 for step in before)
    points = [step.label for step in driver.steps if step.stage in ("measure", "again")]
    assert points == ["1T/1Q", "2T/4Q", "1T/1Q again"]
    assert ended.result.tests[0].facts["drift"] == 0


def test_a_fresh_plateau_is_no_steady_state(tmp_path: Path) -> None:
    """Uses even rates from the first round. A window counts only once two capacities were
    written."""
    plan = SWEEP.replace("fills = 0", "fills = 2")
    rate = CAPACITY / 4096 / 10 / 4  # a quarter of the capacity in each round of 10 s
    driver = FakeDriver(lambda step, number: rate)
    tracked = carry_out(plan, driver, tmp_path).result.tests[0].tracked[0]
    assert (tracked.first, tracked.last) == (9, 13)


def test_seeds_differ_by_step_and_come_again_with_the_run(tmp_path: Path) -> None:
    first, second = FakeDriver(), FakeDriver()
    one = carry_out(SWEEP, first, tmp_path)
    two = carry_out(SWEEP, second, tmp_path)
    seeds = [step.seed for step in first.steps]
    assert seeds == [step.seed for step in second.steps]
    assert len(set(seeds)) == len(seeds)
    assert one.result.id == two.result.id
    assert one.folder != two.folder, "runs are never written over"
    third = carry_out(SWEEP, FakeDriver(), tmp_path, scale=0.5)
    assert third.result.id != one.result.id
    assert any("multiplied by 0.5" in note for note in third.result.notes)


def test_interrupting_leaves_a_valid_partial_result(tmp_path: Path) -> None:
    driver = FakeDriver(interrupt_at=6)
    ended = carry_out(SWEEP, driver, tmp_path)
    assert ended.error is not None and ended.error.exit_code == 130
    reader = Reader(ended.folder)
    assert reader.result.status == "partial"
    assert reader.result.why_partial == "interrupted"
    assert not reader.result.tests[0].whole
    steps = reader.table("steps")
    assert steps["interrupted"].to_list() == [False] * 6 + [True]
    for name, columns in TABLES.items():
        assert reader.table(name).schema == pl.Schema(columns)
    assert driver.closed


def test_a_signal_ends_it_as_ctrl_c_does(tmp_path: Path) -> None:
    def rate(step: Step, number: int) -> float:
        if number == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return 1000.0

    before = signal.getsignal(signal.SIGTERM)
    ended = carry_out(SWEEP, FakeDriver(rate), tmp_path)
    assert Reader(ended.folder).result.status == "partial"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_tools_failure_is_kept_with_its_command(tmp_path: Path) -> None:
    def rate(step: Step, number: int) -> float:
        if number == 2:
            raise ToolError(["fio", "--name=a b"], "no such engine")
        return 1000.0

    ended = carry_out(SWEEP, FakeDriver(rate), tmp_path)
    why = Reader(ended.folder).result.why_partial
    assert why is not None
    assert "no such engine" in why
    assert "fio '--name=a b'" in why


def test_the_audit_passes_a_sound_run(tmp_path: Path) -> None:
    ended = carry_out(SWEEP, FakeDriver(), tmp_path)
    assert ended.result.failed_checks() == []
    assert check(ended, "Little's law").passed
    assert check(ended, "lateness").passed is None


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        (FakeDriver(little_off=0.03), "Little's law"),
        (FakeDriver(lose=1), "issued = completed"),
        (FakeDriver(lambda step, number: 800_000.0), "generator ceiling"),
        (FakeDriver(lambda step, number: 800 if step.stage == "again" else 1000), "drift"),
    ],
)
def test_the_audit_fails_what_is_wrong(driver: FakeDriver, name: str, tmp_path: Path) -> None:
    ended = carry_out(SWEEP, driver, tmp_path)
    assert name in [check.name for check in ended.result.failed_checks()]


@pytest.mark.parametrize(("reading", "name"), [("drift", "clock"), ("stolen", "noisy neighbours")])
def test_the_audit_fails_a_disturbed_machine(
    reading: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Watch, reading, lambda self: 0.05)
    ended = carry_out(SWEEP, FakeDriver(), tmp_path)
    assert [check.name for check in ended.result.failed_checks()] == [name]


def test_little_within_two_percent_passes(tmp_path: Path) -> None:
    assert check(carry_out(SWEEP, FakeDriver(little_off=0.019), tmp_path), "Little's law").passed


@pytest.mark.parametrize(
    ("late", "means", "counts", "passed", "says"),
    [
        ((1e-4, 2e-4), (1e-3, 1e-3), (9, 9), True, "200 µs"),
        # The latest is not the worst: 0.1 ms is little against 10 ms, but all of 0.05 ms.
        ((1e-4, 9e-5), (1e-2, 5e-5), (9, 9), False, "1 of 2 steps later than their mean"),
        ((1e-4, 7e-2), (1e-2, 0.0), (9, 0), False, "1 of them too late for latencies"),
    ],
)
def test_every_late_step_fails_the_audit(
    late: tuple[float, float],
    means: tuple[float, float],
    counts: tuple[int, int],
    passed: bool,
    says: str,
    tmp_path: Path,
) -> None:
    ended = carry_out(SWEEP, FakeDriver(), tmp_path)
    steps = Reader(ended.folder).table("steps").head(2)
    asked = {"lateness_p99_seconds": late, "mean_seconds": means, "count": counts}
    known = steps.with_columns(pl.Series(name, values) for name, values in asked.items())
    found = next(one for one in audit(ended.result, known, 0.0, 0.0) if one.name == "lateness")
    assert found.passed is passed
    assert says in found.said


def test_results_of_a_newer_schema_are_refused(tmp_path: Path) -> None:
    from hemi_lab.errors import UsageError

    ended = carry_out(SWEEP, FakeDriver(), tmp_path)
    path = ended.folder / "result.json"
    newer = json.loads(path.read_text()) | {"version": 99}
    path.write_text(json.dumps(newer))
    with pytest.raises(UsageError, match="version = 99"):
        Reader(ended.folder)
    path.write_text("{}")
    with pytest.raises(UsageError, match="id"):
        Reader(ended.folder)
