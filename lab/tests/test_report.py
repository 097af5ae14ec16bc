"""Reports: whole, self-contained, with failures at the top."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fakes import FakeDriver, always
from hemi_lab.report import build
from hemi_lab.results.store import Reader
from test_runner import HEAD, MATRIX, SWEEP, carry_out


def page(tmp_path: Path, *runs: Path) -> str:
    path = tmp_path / "report.html"
    build.write([Reader(run) for run in runs], path)
    text = path.read_text()
    # The report's own part follows the library.
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
    # The audit also finds other work on this machine, which is not the run's.
    failed = re.findall(r'<li class="failed">\s*<b>([^<]*)</b>', text)
    assert set(failed) <= {"noisy neighbours"}


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


def test_rests_and_crossing_loads_have_their_charts(tmp_path: Path) -> None:
    load = '{ read_percent = 0, sizes = "4 KiB" }'
    large = load.replace("4 KiB", "1 MiB")
    plan = f"""{HEAD}
[[tests]]
name = "rest"
title = "Rest"
kind = "idle-recovery"
load = {load}
burst = "1 s"
rests = ["2 s", "3 s"]
bursts = 3
baseline = "2 s"
round = "1 s"

[[tests]]
name = "cross"
title = "Cross"
kind = "cross-stimulus"
sections = [{{ load = {load}, time = "3 s" }}, {{ load = {large}, time = "3 s" }}]
point = "1 s"
"""
    text = page(tmp_path, carry_out(plan, FakeDriver(), tmp_path / "runs").folder)
    rests = chart(text, "Bursts and what rests bring back")
    names = [trace["name"] for trace in rests]
    assert names == ["rest 2 s", "after rest 2 s", "rest 3 s", "after rest 3 s"]
    assert len(rests[0]["x"]) == 3
    # Three bursts of 1 s with 2 s after each, and then 2 s without rests.
    assert [trace["x"][0] for trace in rests] == [0.5, 10.0, 11.5, 24.0]
    assert len(chart(text, "One load after another")) == 2


def chart(text: str, title: str) -> list[dict[str, Any]]:
    """Returns the lines of a chart, as the page's script reads them."""
    found = re.search(
        rf"<h3>{re.escape(title)}</h3>.*?<script type=\"application/json\">(.*?)</script>",
        text,
        re.S,
    )
    assert found is not None, title
    lines: list[dict[str, Any]] = json.loads(found[1].replace("<\\/", "</"))["data"]
    return lines
