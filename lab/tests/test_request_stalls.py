"""Stalls: a plan's phases, a step's requests by phase, the page, and a real volume."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import FakeDriver, FakeTarget
from hemi_lab import ready, requests
from hemi_lab.bench import Done
from hemi_lab.errors import LabError
from hemi_lab.methods.stalls import estimate, examined
from hemi_lab.plans.load import load
from hemi_lab.plans.model import Plan, PlannedStalls, StallTest
from hemi_lab.report import build, stalls
from hemi_lab.results.model import Found
from hemi_lab.results.store import STALLS, Reader
from hemi_lab.runner import Order, run
from hemi_lab.steps import CAUSES, RECORDS, Fault, StallPhase, StepResult
from hemi_lab.targets.parse import parse
from hemi_lab.targets.volume_faults import VolumeFaults, stall_option
from pydantic import ValidationError

SHARES = {"sustained": 1, "increasing": 5, "intermittent": 5, "decreasing": 5}


def test_the_published_experiments_take_a_quarter_of_an_hour_each() -> None:
    plan, _ = load("ebs-latency")
    for test in plan.tests:
        assert isinstance(test, StallTest)
        assert len(test.phases) == SHARES[test.name]
        assert sum(phase.time for phase in test.phases) == 15 * 60
        assert (test.open.rate, test.open.read_percent, test.open.size) == (300, 50, 4096)
        whole = estimate(test).most
        assert whole == 15 * 60 + test.before + test.after
    needs = ready.needs(plan)
    assert needs.freezes
    assert needs.timed
    assert needs.legs == frozenset([1])


def test_a_phase_with_a_share_has_a_delay() -> None:
    with pytest.raises(ValidationError, match="by how much requests stall"):
        PlannedStalls.model_validate({"time": "1 s", "read_percent": 1})
    with pytest.raises(ValidationError, match="read_percent"):
        PlannedStalls.model_validate({"time": "1 s", "read_percent": 101, "delay": "1 s"})
    assert PlannedStalls(time=1.0).shown() == "health"
    planned = PlannedStalls(time=1.0, read_percent=0.1, write_percent=25, delay=0.05)
    assert planned.shown() == "50 ms on 0.1 % of reads, 25 % of writes"


class Volume:
    """Records the commands it is given."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def command(self, *arguments: str) -> str:
        """Does nothing."""
        self.asked.append(arguments)
        return ""

    def status(self) -> dict[str, Any]:
        """Returns a status without legs."""
        return {"legs": []}

    closely: Any = None


def test_phases_are_one_command_and_clearing_leaves_delays() -> None:
    assert stall_option(StallPhase(1.5, 0.001, 0.25, 15.0)) == (
        "reads:0.001000,writes:0.250000,by:15000000000ns,for:1500000000ns"
    )
    volume = Volume()
    faults = VolumeFaults(volume)
    faults.stall(1, (StallPhase(1.0, 0.5, 1.0, 0.5), StallPhase(2.0, 0.0, 0.0, 0.0)), 7)
    assert volume.asked == [
        (
            *("inject", "--leg", "1"),
            *("--stall", "reads:0.500000,writes:1.000000,by:500000000ns,for:1000000000ns"),
            *("--stall", "for:2000000000ns"),
            *("--seed", "7"),
        )
    ]
    faults.clear(1)
    assert all("--clear" not in arguments for arguments in volume.asked)
    assert ("inject", "--leg", "1", "--stall", "for:1ns") in volume.asked


def test_a_request_belongs_to_the_phase_it_was_meant_to_go_in() -> None:
    rows = [
        ("write", 4096, 0.5, 3.5),
        ("read", 4096, 1.0, 1.1),
        ("write", 4096, 1.9, 4.0),
        ("read", 4096, 2.0, 2.1),
    ]
    phase = requests.between(pl.DataFrame(rows, schema=RECORDS, orient="row"), 1.0, 2.0)
    assert phase.count == 2
    assert phase.maximum == pytest.approx(2.1)
    assert phase.iops == pytest.approx(1.0), "of those done in it"


def step(fault: Fault, began: float) -> Done:
    """Makes a request each tenth of a second for 8 s. Writes of the first phase take 2 s longer."""
    rows = []
    for number in range(80):
        at = number / 10
        kind = "write" if number % 2 else "read"
        late = 2.0 if kind == "write" and began <= at < began + fault.stalls[0].seconds else 0.0
        rows.append((kind, 4096, at, at + 0.001 + late))
    causes = [(at / 4, 0.25, 1, "backlog_bytes", at * 100.0) for at in range(32)]
    result = StepResult(
        8.0,
        {},
        80,
        80,
        requests.intervals(pl.DataFrame(rows, schema=RECORDS, orient="row"), 0.1),
        pl.DataFrame(causes, schema=CAUSES, orient="row"),
        records=pl.DataFrame(rows, schema=RECORDS, orient="row"),
        fault=(began, began + fault.seconds),
    )
    zeros: dict[str, Any] = {
        name: 0
        for name, field in Found.model_fields.items()
        if field.is_required() and field.annotation in (int, float)
    }
    return Done(
        Found(**{**zeros, "step": 1}, test="t", stage="measure", label="l", command=""), result
    )


PHASES = (
    StallPhase(2.0, 0.0, 1.0, 2.0),
    StallPhase(1.0, 0.0, 0.0, 0.0),
    StallPhase(1.0, 0.5, 0, 1),
)
NAMES = ["2 s on all writes", "health", "1 s on half of the reads"]


def table(began: float = 2.0) -> pl.DataFrame:
    """Returns the phases of that step."""
    done = step(fault := Fault(1, 2.0, 4.0, PHASES), began)
    rows = [stall.model_dump() for stall in examined("t", NAMES, fault, done)]
    return pl.DataFrame(rows, schema=STALLS)


def test_each_phase_has_its_own_figures() -> None:
    found = table()
    assert found["phase"].to_list() == [None, 1, 2, 3, 0, None]
    assert found["label"].to_list() == ["before", *NAMES, "all phases", "after"]
    assert found["began_seconds"].to_list() == [0, 2, 4, 5, 2, 6]
    assert found["count"].to_list() == [20, 20, 10, 10, 40, 20]
    longest = found["maximum_seconds"].to_list()
    assert [round(value, 3) for value in longest] == [0.001, 2.001, 0.001, 0.001, 2.001, 0.001]
    assert found["reads_maximum_seconds"][1] == pytest.approx(0.001)
    assert found["writes_maximum_seconds"][1] == pytest.approx(2.001)
    # Samples at the ends of quarters of a second from 2 s on and before 4 s.
    assert found["backlog_peak_bytes"][1] == 1400
    assert found["exposure_peak_bytes"].to_list() == [None] * 6


def test_a_step_that_was_cut_short_has_none() -> None:
    fault = Fault(1, 2.0, 4.0, PHASES)
    done = step(fault, 2.0)
    cut = StepResult(1.0, {}, 0, 0, done.result.intervals, done.result.causes)
    assert examined("t", NAMES, fault, Done(done.found, cut)) == []


def test_the_picture_marks_every_phase() -> None:
    done = step(Fault(1, 2.0, 4.0, PHASES), 2.0)
    figure = stalls.over_time(table(), done.result.intervals, done.result.causes)
    assert [note.text for note in figure.layout.annotations] == ["2 s", "health", "1 s"]
    # From the first phase on.
    assert {shape.x0 for shape in figure.layout.shapes} == {0.0, 2.0, 3.0}
    slowest = next(line for line in figure.data if line.name == "slowest")
    assert max(value for value in slowest.y if value is not None) == pytest.approx(2.001)
    rows = stalls.phases(table()).rows
    assert [row[0] for row in rows][1] == "1: 2 s on all writes"
    assert rows[1][7] == "2 s"


def test_long_steps_keep_their_slowest_request() -> None:
    rows = [("read", 512, n / 10, n / 10 + 0.01) for n in range(9000)]
    rows[4321] = ("read", 512, 432.1, 432.1 + 7)
    found = stalls.gathered(
        requests.intervals(pl.DataFrame(rows, schema=RECORDS, orient="row"), 0.1)
    )
    assert found.height <= 3001
    assert found["maximum_seconds"].max() == pytest.approx(7)
    assert found["iops"].mean() == pytest.approx(10, rel=0.02)


def test_a_target_without_legs_is_refused(tmp_path: Path) -> None:
    ordered = Order(PLAN, "", FakeTarget(FakeDriver()), tmp_path / "runs")
    with pytest.raises(LabError, match="no leg"):
        run(ordered, lambda step, found: None)


PLAN = Plan.model_validate(
    {
        "name": "short",
        "title": "short",
        "source": "a test",
        "tests": [
            {
                "kind": "stalls",
                "name": "writes",
                "title": "writes",
                "purge": False,
                # However late on a busy machine, since this test is about seconds.
                "open": {"rate": 50, "read_percent": 0, "size": "4 KiB", "lateness": "10 s"},
                "phases": [{"time": "2 s", "write_percent": 100, "delay": "5 s"}, {"time": "1 s"}],
                "before": "3 s",
                "after": "1 s",
            }
        ],
    }
)


@pytest.mark.long
@pytest.mark.skipif("HEMI" not in os.environ, reason="HEMI names no hemi binary")
def test_a_plain_mirror_waits_for_what_stalls(tmp_path: Path) -> None:
    runs = []
    for policy in ("first", "all"):
        file = tmp_path / "pair.toml"
        file.write_text(f'size = "16 MiB"\nfolder = "{tmp_path}"\n[[legs]]\n[[legs]]\n')
        target = parse(f"setup:{file},policy={policy}")
        ended = run(Order(PLAN, "", target, tmp_path / "runs"), lambda step, found: None)
        assert ended.error is None
        runs.append(Reader(ended.folder))
        found = runs[-1].table("stalls")
        assert found["phase"].to_list() == [None, 1, 2, 0, None]
        assert found["count"][1] > 0
        if policy == "all":
            # A write takes its delay, or waits for an earlier one that does, and no machine makes
            # that shorter. The phase may begin a little after it was requested.
            assert found["maximum_seconds"][1] > 2.5
    build.write(runs, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "Latency over time" in text
    assert "writes: the slowest requests of each run" in text
    assert "writes: the runs by phase" in text
    assert not list(tmp_path.glob("hemi-*")), "nothing is left over"
