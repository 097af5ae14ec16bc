"""Reports: whole, self-contained, with what went wrong at the top."""

from __future__ import annotations

import re
from pathlib import Path

from fakes import FakeDriver, always
from hemi_lab.report import build
from hemi_lab.results.store import Reader
from test_runner import MATRIX, SWEEP, carry_out


def page(tmp_path: Path, *runs: Path) -> str:
    path = tmp_path / "report.html"
    build.write([Reader(run) for run in runs], path)
    text = path.read_text()
    # What follows the library is the report's own.
    return re.sub(r"<script>/\*\*.*?</script>", "", text, count=1, flags=re.S)


def test_it_needs_nothing_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    build.write([Reader(carry_out(MATRIX, FakeDriver(), tmp_path / "runs").folder)], path)
    text = path.read_text()
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", text)
    assert "@import" not in text
    assert "Plotly" in text


def test_every_test_and_its_numbers_are_in_it(tmp_path: Path) -> None:
    text = page(tmp_path, carry_out(MATRIX, FakeDriver(), tmp_path / "runs").folder)
    for said in (
        "4 KiB, 0 % read",
        "Convergence",
        "Measurement window",
        "Steady in rounds 1 to 5",
        "Second by second",
        "Distribution of latencies",
        "Self-audit",
        "1,000",
    ):
        assert said in text, said
    assert "self-audit failed" not in text


def test_a_failed_audit_is_at_the_top(tmp_path: Path) -> None:
    text = page(tmp_path, carry_out(SWEEP, FakeDriver(lose=5), tmp_path / "runs").folder)
    assert text.index("The self-audit failed") < text.index("At a glance")
    assert "issued = completed" in text[: text.index("At a glance")]


def test_not_reached_is_said(tmp_path: Path) -> None:
    driver = FakeDriver(lambda step, number: 1e6 * 0.9 ** (step.round or 0))
    text = page(tmp_path, carry_out(MATRIX, driver, tmp_path / "runs").folder)
    assert "NOT REACHED in 25 rounds" in text


def test_a_partial_run_makes_a_report_that_says_so(tmp_path: Path) -> None:
    for stop in (0, 1, 6):
        run = carry_out(SWEEP, FakeDriver(interrupt_at=stop), tmp_path / "runs").folder
        text = page(tmp_path, run)
        assert text.index("Partial result") < text.index("At a glance")


def test_several_runs_agree_or_not(tmp_path: Path) -> None:
    runs = [
        carry_out(SWEEP, FakeDriver(always(rate)), tmp_path / "runs").folder
        for rate in (990, 1000, 1010)
    ]
    text = page(tmp_path, *runs)
    assert "Run to run" in text
    assert "990 to 1,010" in text


def test_names_are_text_and_not_markup(tmp_path: Path) -> None:
    plan = SWEEP.replace('title = "Reads"', 'title = "<script>alert(1)</script>"')
    text = page(tmp_path, carry_out(plan, FakeDriver(), tmp_path / "runs").folder)
    assert "<script>alert" not in text
