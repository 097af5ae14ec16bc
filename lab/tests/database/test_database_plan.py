"""Databases as a plan: targets, steps of sysbench as the lab's, whole runs and their reports."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hemi_lab.comparison.figures import compared
from hemi_lab.comparison.sides import side
from hemi_lab.database.results import Step
from hemi_lab.database.scans import ScanSettings
from hemi_lab.database.sysbench import Report, parse
from hemi_lab.errors import RefusedError, ToolError, UsageError
from hemi_lab.methods.transactions import step_result
from hemi_lab.plans import load as plans
from hemi_lab.plans.model import DatabaseTest, Plan, ScanTest
from hemi_lab.report import build
from hemi_lab.results.store import Reader
from hemi_lab.runner import Ended, Order, run
from hemi_lab.targets import safety
from hemi_lab.targets.base import Description, Hazards
from hemi_lab.targets.database import DatabaseTarget, Part, parse_database

CAPTURED = Path(__file__).parent / "captured"

TINY = """
name = "tiny"
title = "Tiny"
source = "ours"

[[tests]]
name = "orders"
title = "Orders"
kind = "database"
workload = "tpcc"
threads = [2, 4]
time = "20 s"
idle = "10 s"
warm_up = "10 s"
placements = ["A/A", "A/B"]
warehouses = 1
items = 200
customers = 30
"""


def tiny(**changed: object) -> Plan:
    plan = plans.parse(TINY, "tiny.toml")
    return plan.model_copy(update={"tests": [plan.tests[0].model_copy(update=changed)]})


def carry_out(plan: Plan, target: DatabaseTarget, out: Path) -> Ended:
    return run(Order(plan, TINY, target, out, 1, 0.1), lambda step, found: None)


@pytest.fixture
def report() -> Report:
    return parse((CAPTURED / "tpcc_like.txt").read_text())


def test_a_step_of_sysbench_as_the_labs(report: Report) -> None:
    step = Step(report.threads, 5, False, "2026-01-01", report.series, report)
    found = step_result(step)
    assert found.issued == found.completed == found.all.moments.count == report.events
    assert found.seconds == report.seconds
    assert found.all.moments.mean * 1e3 == pytest.approx(report.latency_mean_ms, abs=0.01)
    assert found.intervals["count"].to_list() == [round(s.transactions) for s in report.series]
    assert found.intervals["mean_seconds"].null_count() == len(report.series)
    assert not found.interrupted
    assert list(found.all.histogram.bins()) == list(
        report.bins.cut(report.latency_max_ms / 1e3).bins()
    )


def test_a_step_broken_off_has_its_seconds_alone(report: Report) -> None:
    found = step_result(Step(4, 300, False, "2026-01-01", report.series[:3]))
    assert found.interrupted
    assert found.intervals.height == 3
    assert found.all.histogram.total == 0
    assert "broken off" in found.notes[0]


def test_placements_with_a_second_target_only() -> None:
    plan, _ = plans.load("oltp")
    assert plan.of_databases
    for second, expected in ((False, 1), (True, 4)):
        *loads, scans = plan.placed(second).tests
        assert isinstance(scans, ScanTest)
        assert len(loads) == 2
        for test in loads:
            assert isinstance(test, DatabaseTest)
            assert len(test.placements) == expected
    assert tiny(placements=("A/B",)).placed(False).tests == []
    # Every other plan stays unchanged.
    quick, _ = plans.load("quick")
    assert quick.placed(False) == quick


def test_the_built_in_plan_is_the_standard() -> None:
    plan, _ = plans.load("oltp")
    *loads, scans = plan.tests
    assert isinstance(scans, ScanTest)
    assert scans.settings(0) == ScanSettings(seed=1)
    for test in loads:
        assert isinstance(test, DatabaseTest)
        assert test.settings(1.0, 1).deviations() == []
        assert any("steps of 30 s instead" in said for said in test.settings(0.1, 1).deviations())
        assert test.settings(1e-9, 0).seconds == test.settings(1.0, 0).seed == 1


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("warehouses = 0", "warehouses = 0 cannot be used"),
        ("threads = [4, 4]", "threads: one is named twice"),
        ('server_options = { port = "1" }', "set by the lab itself"),
        ('placements = ["A/C"]', "placements"),
        ("fill = { times = 1 }", "fill"),
    ],
)
def test_what_cannot_be_run_is_refused(key: str, says: str) -> None:
    name = key.split(" ")[0]
    kept = [line for line in TINY.splitlines() if not line.startswith(f"{name} ")]
    with pytest.raises(UsageError, match=says):
        plans.parse("\n".join([*kept, key]), "own.toml")


def test_targets_that_hold_no_database(tmp_path: Path) -> None:
    for text, says in (
        ("file:/tmp/x", "cannot hold a database"),
        ("dir:", "cannot hold a database"),
        (f"dir:{tmp_path}/none", "no directory"),
        ("device:/dev/null,file-system=fat", "file-system=fat"),
        ("sim:hdd-20tb,scale=16", "cannot hold a database"),
        ("hemi:/a,/b", "there is no option '/b'"),
        (f"setup:{tmp_path}/none.toml", "none.toml"),
    ):
        with pytest.raises(UsageError, match=says):
            parse_database(text)
    # The existence of an export is checked next.
    with pytest.raises(ToolError, match="nbdinfo failed"):
        parse_database("nbd+unix:///?socket=/nowhere,file-system=xfs")
    with pytest.raises(UsageError, match="it is the first target"):
        parse_database(f"dir:{tmp_path}", f"dir:{tmp_path}")


def test_each_target_has_to_be_named_to_be_wiped(tmp_path: Path) -> None:
    class Held:
        path = "/dev/b"

        def hazards(self) -> Hazards:
            return Hazards([], ["ext4"])

    first = parse_database(f"dir:{tmp_path}").parts[0]
    described = Description("device:/dev/b", "device")
    second = Part(
        "device:/dev/b",
        "/dev/b",
        "a new file system",
        first.opens,
        described,
        Held(),  # type: ignore[arg-type]
    )
    target = DatabaseTarget(first, second)
    with pytest.raises(RefusedError, match="/dev/b is not empty: ext4"):
        safety.check(target, [str(tmp_path)])
    assert safety.check(target, ["/dev/b"]) == ["ext4"]
    assert safety.paths(target) == [str(tmp_path), "/dev/b"]


@pytest.mark.long
def test_a_plan_from_target_to_report(tmp_path: Path, mariadb_installed: None) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    target = parse_database(f"dir:{tmp_path}/a", f"dir:{tmp_path}/b")
    ended = carry_out(tiny(), target, tmp_path / "out")
    assert ended.error is None
    assert ended.result.status == "whole"
    reader = Reader(ended.folder)
    steps = reader.table("steps")
    measured = steps.filter(steps["stage"] == "measure")
    assert measured["label"].to_list() == [
        f"{placement}, {threads} threads" for placement in ("A/A", "A/B") for threads in (2, 4)
    ]
    assert (steps.filter(steps["stage"] == "warm-up").height, measured.height) == (2, 4)
    for row in measured.iter_rows(named=True):
        assert reader.histogram([row["step"]]).total == row["count"] == row["completed"] > 0
        assert row["p50_seconds"] <= row["p95_seconds"] <= row["maximum_seconds"]
    told = reader.database("orders")
    assert told is not None
    assert [one["placement"] for one in told["placements"]] == ["A/A", "A/B"]
    for one in told["placements"]:
        assert len(one["checks_after_load"]) == 12
        assert len(one["checks_after_run"]) == 11
        assert "MariaDB" in one["server_version"]
        assert one["server_settings"]["innodb_flush_log_at_trx_commit"] == "1"
    assert any("sysbench" in command["line"] for command in told["commands"])
    names = [check.name for check in ended.result.audit if check.passed]
    assert "orders, A/B: consistency after the run" in names
    assert any("steps of 2 s instead of 300 s" in note for note in ended.result.notes)
    build.write([reader], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for part in ("tps against threads", "Latency against threads", "Consistency", "new order"):
        assert part in page
    # A result compared with itself has no difference.
    for item in compared(side("A", ended.folder), side("B", ended.folder)):
        assert item.figures[0].name == "tps"
        assert "95 %" in [figure.name for figure in item.figures]
        assert all(figure.better is None for figure in item.figures)
    assert list((tmp_path / "a").iterdir()) == list((tmp_path / "b").iterdir()) == []


@pytest.mark.long
def test_ctrl_c_leaves_a_partial_result(tmp_path: Path, mariadb_installed: None) -> None:
    target, out = tmp_path / "t", tmp_path / "out"
    target.mkdir()
    (tmp_path / "tiny.toml").write_text(TINY.replace('"20 s"', '"300 s"'))
    words = ["run", str(tmp_path / "tiny.toml"), "-t", f"dir:{target}", "--out", str(out)]
    lab = subprocess.Popen(
        [sys.executable, "-m", "hemi_lab", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert lab.stderr is not None
    for line in lab.stderr:
        if b"warm-up" in line:
            break
    # The rest after the warm-up takes 10 s. The first step's 300 s then need enough time for a
    # first report, also on a busy machine.
    time.sleep(40)
    lab.send_signal(signal.SIGINT)
    _, errors = lab.communicate(timeout=120)
    assert lab.returncode == 130, errors
    (folder,) = out.iterdir()
    reader = Reader(folder)
    assert reader.result.status == "partial"
    assert reader.result.why_partial == "interrupted"
    steps = reader.table("steps")
    assert steps["interrupted"].to_list()[-1] is True
    told = reader.database("orders")
    assert told is not None
    assert told["incomplete"] == "interrupted"
    build.write([reader], tmp_path / "report.html")
    assert list(target.iterdir()) == []


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_plan_on_a_hemi_volume(tmp_path: Path, mariadb_installed: None) -> None:
    if not (os.environ.get("HEMI") or shutil.which("hemi")) or shutil.which("nbdfuse") is None:
        pytest.skip("needs hemi (HEMI) and nbdfuse")
    for name in "ab":
        (tmp_path / name).mkdir()
    legs = ", ".join(f'{{ folder = "{tmp_path}/{name}" }}' for name in "ab")
    (tmp_path / "mirror.toml").write_text(f"legs = [{legs}]\n")
    target = parse_database(f"setup:{tmp_path}/mirror.toml,size=1G,file-system=xfs")
    assert target.describe().file_system == "xfs"
    ended = carry_out(tiny(placements=("A/A",)), target, tmp_path / "out")
    assert ended.error is None
    told = Reader(ended.folder).database("orders")
    assert told is not None
    assert told["targets"]["A"]["kind"] == "hemi volume"
    assert told["targets"]["A"]["file_system"] == "xfs"
    status = told["placements"][0]["steps"][0]["target_status"]["A"]
    assert len(status["legs"]) == 2
    # Unmounted in order, and xfs_repair found nothing to do.
    codes = {command["line"].split()[0]: command["exit_code"] for command in told["commands"]}
    assert codes["xfs_repair"] == codes["nbdfuse"] == 0
    assert list((tmp_path / "a").iterdir()) == list((tmp_path / "b").iterdir()) == []
