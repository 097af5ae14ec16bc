"""Scans as tests of a plan: steps, report, comparison."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from hemi_lab.comparison.figures import compared
from hemi_lab.comparison.sides import side
from hemi_lab.database import Scan, ScanResult
from hemi_lab.errors import UsageError
from hemi_lab.methods.scans import step_result
from hemi_lab.plans import load as plans
from hemi_lab.plans.model import ScanTest
from hemi_lab.report import build, scans
from hemi_lab.results.store import Reader
from hemi_lab.runner import Order, run
from hemi_lab.targets.database import parse_database

PLAN = """
name = "tiny-scans"
title = "Tiny scans"
source = "ours"

[[tests]]
name = "scans"
title = "Scans"
kind = "scans"
rows = 60_000
repeats = 2
piece = "32 KiB"
"""


def scan(subject: str, seconds: float, read: int, comparison: str = "access") -> Scan:
    return Scan(comparison, subject, seconds, 1000, read, read // 16384, 10)


def test_a_scan_is_one_request_as_long_as_itself() -> None:
    result = step_result(scan("key order", 0.25, 1 << 20))
    assert result.seconds == 0.25
    assert result.issued == result.completed == result.all.moments.count == 1
    assert result.all.moments.mean == result.all.moments.maximum == 0.25
    assert result.all.bytes == 1 << 20
    assert list(result.all.histogram.bins()) == [(250_000_000, 250_000_000, 1)]


def test_scans_are_told_against_the_first_of_their_kind() -> None:
    found = ScanResult({}, scans=[
        scan("key order", 1.0, 16 << 20), scan("row by row", 30.0, 160 << 20),
        scan("row by row", 50.0, 160 << 20), scan("key order", 3.0, 16 << 20),
        scan("contiguous", 1.0, 16 << 20, "layout"),
    ])  # fmt: skip
    (access, first), (_, second) = scans.parts(asdict(found))
    assert access == "By way of access"
    assert first.rows[0][:5] == ["key order", "2", "2 s", "1 s to 3 s", "× 1"]
    assert first.rows[1][:6] == ["row by row", "2", "40 s", "30 s to 50 s", "× 20", "25"]
    assert first.rows[1][6] == "160 MiB"
    assert [row[0] for row in second.rows] == ["contiguous"]
    # Interrupted before the first scan.
    assert scans.parts(asdict(ScanResult({}))) == []


def test_a_scan_in_a_plan_is_checked_like_any_other() -> None:
    (test,) = plans.parse(PLAN, "tiny.toml").tests
    assert isinstance(test, ScanTest)
    assert test.settings(0).piece_bytes == 32 << 10
    assert test.settings(0).seed == 1
    assert plans.parse(PLAN, "tiny.toml").of_databases
    for bad, says in (("rows = 100", "rows"), ("piece = '5 KiB'", "piece_bytes")):
        name = bad.split(" ")[0]
        kept = [line for line in PLAN.splitlines() if not line.startswith(f"{name} ")]
        with pytest.raises(UsageError, match=says):
            plans.parse("\n".join([*kept, bad]), "own.toml")


@pytest.mark.long
def test_a_plan_of_scans(tmp_path: Path, mariadb_installed: None) -> None:
    """Checks that row lookups cost more than key order, and that nothing is left over."""
    folders = []
    for seed in (1, 2):
        target = tmp_path / f"target-{seed}"
        target.mkdir()
        database = parse_database(f"dir:{target}")
        order = Order(plans.parse(PLAN, "tiny.toml"), PLAN, database, tmp_path / "out", seed, 1.0)
        ended = run(order, lambda step, found: None)
        assert ended.error is None, ended.error
        assert list(target.iterdir()) == []
        folders.append(ended.folder)
    reader = Reader(folders[0])
    steps = reader.table("steps")
    assert steps.height == 2 * 5
    assert steps["count"].to_list() == [1] * 10
    mean = {
        label: steps.filter(steps["label"] == label)["mean_seconds"].mean()
        for label in steps["label"].unique()
    }
    lookup = mean["access: secondary-index lookup of every row"]
    assert lookup > 2 * mean["access: key order"]  # type: ignore[operator]
    (outcome,) = reader.result.tests
    parts = [
        int(str(outcome.facts[f"{name}: fragments of the file"]).replace(",", ""))
        for name in ("contiguous", "fragmented")
    ]
    assert parts[0] < parts[1]
    page = tmp_path / "report.html"
    build.write([reader], page)
    assert "secondary-index lookup of every row" in page.read_text()
    a, b = (side(name, folder) for name, folder in zip("AB", folders, strict=True))
    found = compared(a, b)
    assert len(found) == 5
    assert [[figure.name for figure in one.figures] for one in found] == [["scan"]] * 5
