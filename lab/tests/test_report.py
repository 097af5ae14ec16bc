"""Reports: whole, self-contained, with failures at the top."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pages
import polars as pl
import pytest
from fakes import FakeDriver, NoisyDriver, always
from hemi_lab.plans.load import load
from hemi_lab.report import build, headline, marks, within
from hemi_lab.results.store import Reader
from plotly.offline import get_plotlyjs_version
from test_runner import HEAD, MATRIX, SWEEP, carry_out


def page(tmp_path: Path, *runs: Path) -> str:
    path = tmp_path / "report.html"
    build.write([Reader(run) for run in runs], path)
    return pages.read(path)


def test_it_needs_nothing_from_outside(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    build.write([Reader(carry_out(MATRIX, FakeDriver(), tmp_path / "runs").folder)], path)
    text = path.read_text()
    assert not re.search(r"<(script|link|img|iframe)[^>]*(src|href)=", text)
    assert "@import" not in text
    assert "DecompressionStream" in text


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
    assert re.findall(r'<li class="failed">\s*<b>([^<]*)</b>', text) == []


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
    page(tmp_path, carry_out(plan, FakeDriver(), tmp_path / "runs").folder)
    charts = pages.figures(tmp_path / "report.html")
    rests = charts["Bursts and what rests bring back"]["data"]
    names = [trace["name"] for trace in rests]
    assert names == ["rest 2 s", "after rest 2 s", "rest 3 s", "after rest 3 s"]
    assert len(rests[0]["x"]) == 3
    # Three bursts of 1 s with 2 s after each, and then 2 s without rests.
    assert [trace["x"][0] for trace in rests] == [0.5, 10.0, 11.5, 24.0]
    assert len(charts["One load after another"]["data"]) == 2


MOST_BYTES = 1_500_000
"""Largest page. A phone on a train still opens it."""

SHAPES = """
[[tests]]
name = "small"
title = "Small reads"
kind = "sweep"
fill = { size = "128 KiB", times = 1 }
load = { read_percent = 100, sizes = "4 KiB" }
points = [[1, 1], [4, 8]]
time = "20 s"

[[tests]]
name = "large"
title = "Large writes"
kind = "sweep"
purge = false
load = { read_percent = 0, sizes = "128 KiB", pattern = "sequential" }
points = [[1, 8]]
time = "20 s"
repeat_first = false
"""


def test_the_library_is_of_one_version_with_what_makes_the_figures() -> None:
    source = resources.files("hemi_lab.report") / "vendor" / "plotly-cartesian.min.js"
    head = source.read_text()[:200]
    assert f"v{get_plotlyjs_version()}" in head
    assert "cartesian" in head


@pytest.mark.parametrize("runs", [1, 4])
def test_pages_are_small(tmp_path: Path, runs: int) -> None:
    _, text = load("quick")
    readers = [
        Reader(
            carry_out(text, NoisyDriver(always(rate), capacity=64 << 20), tmp_path / "runs").folder
        )
        for rate in (2000.0, 2500.0, 3000.0, 3500.0)[:runs]
    ]
    path = tmp_path / "report.html"
    build.write(readers, path)
    assert 500_000 < path.stat().st_size <= MOST_BYTES


def test_the_headline_is_first_and_has_every_test_with_intervals(tmp_path: Path) -> None:
    run = carry_out(HEAD + SHAPES, NoisyDriver(always(5000.0)), tmp_path / "runs").folder
    text = page(tmp_path, run)
    assert text.index("<figure>") < text.index("<table")
    charts = pages.figures(tmp_path / "report.html")
    first = next(iter(charts.values()))
    assert next(iter(charts)) == "Each test at its best"
    bars = [trace for trace in first["data"] if trace["type"] == "bar"]
    # Small requests by their number, large ones by their bytes.
    assert [len(trace["x"]) for trace in bars] == [1, 1]
    assert bars[0]["x"][0] == pytest.approx(5000, rel=0.01)
    assert bars[1]["x"][0] == pytest.approx(5000 * (128 << 10), rel=0.01)
    assert all(trace["error_x"]["array"][0] > 0 for trace in bars)
    names = [name for axis in ("yaxis", "yaxis2") for name in first["layout"][axis]["ticktext"]]
    assert names == ["Small reads, 1T/1Q", "Large writes, 1T/8Q"]
    ranks = {trace.get("name") for trace in first["data"]}
    assert {"50 % of latency", "99 % of latency", "99.9 % of latency"} <= ranks


def test_runs_of_one_target_are_one_bar_with_their_interval(tmp_path: Path) -> None:
    runs = [
        carry_out(HEAD + SHAPES, NoisyDriver(always(rate)), tmp_path / "runs").folder
        for rate in (1000.0, 1100.0, 1200.0)
    ]
    (small, _) = headline.rows(headline.of_runs([Reader(run) for run in runs]))
    (bar,) = small.bars
    assert bar.value == pytest.approx(1100, rel=0.01)
    # Student's t of three: 4.303 deviations of the mean.
    assert (bar.high - bar.low) / 2 == pytest.approx(4.303 * 100 / 3**0.5, rel=0.05)


def test_all_systems_stand_with_the_same_load(tmp_path: Path) -> None:
    # One is fastest at the first point, the other at the second.
    slow = NoisyDriver(lambda step, number: 900.0 if step.label == "1T/1Q" else 800.0)
    fast = NoisyDriver(lambda step, number: 900.0 if step.label == "1T/1Q" else 1800.0)
    readers = [
        Reader(carry_out(HEAD + SHAPES, driver, tmp_path / "runs").folder)
        for driver in (slow, fast)
    ]
    systems = [headline.System("A", readers[:1]), headline.System("B", readers[1:])]
    small = headline.rows(systems)[0]
    assert small.label == "1T/1Q"
    assert [bar.value for bar in small.bars] == pytest.approx([900, 900], rel=0.01)


def test_seconds_are_named_by_their_step(tmp_path: Path) -> None:
    run = carry_out(HEAD + SHAPES, NoisyDriver(always(5000.0)), tmp_path / "runs").folder
    page(tmp_path, run)
    series = pages.figures(tmp_path / "report.html")["Second by second"]
    named = [one for one in series["layout"]["annotations"] if one["name"] == "step"]
    texts = [one["text"] for one in named]
    # The last test of the page has one step, which needs no mark; the first has four.
    assert texts == [] or texts[0].startswith("fill")
    spans = marks.spans(Reader(run).table("steps").filter(pl.col("test") == "small"))
    assert [name for name, _, _ in spans] == ["fill 1 × 1 GiB", "1T/1Q", "4T/8Q", "1T/1Q again"]
    assert spans[2][1] == pytest.approx(spans[1][2])


def test_rounds_and_preconditioning_are_spans_of_their_own(tmp_path: Path) -> None:
    steps = Reader(carry_out(SWEEP, FakeDriver(), tmp_path).folder).table("steps")
    assert [name for name, _, _ in marks.spans(steps)][:2] == ["precondition", "1T/1Q"]
    steps = Reader(carry_out(MATRIX, FakeDriver(), tmp_path).folder).table("steps")
    names = [name for name, _, _ in marks.spans(steps)]
    assert names[:3] == ["fill 2 × 1 GiB", "round 1", "round 2"]


def test_what_was_written_has_no_chart_where_nothing_was(tmp_path: Path) -> None:
    text = page(
        tmp_path, carry_out(HEAD + SHAPES, NoisyDriver(always(5000.0)), tmp_path / "runs").folder
    )
    small, large = text.split('id="A-large"')
    assert "Against what was written" not in small
    # The large writes go over the target twelve times.
    assert "Against what was written" in large


def test_error_bars_are_the_intervals_of_seconds(tmp_path: Path) -> None:
    reader = Reader(carry_out(HEAD + SHAPES, NoisyDriver(always(5000.0)), tmp_path).folder)
    steps, intervals = reader.table("steps"), reader.table("intervals")
    step = int(steps.filter(pl.col("label") == "4T/8Q")["step"][0])
    found = within.rate(step, intervals)
    assert found is not None
    assert found.low < 5000 < found.high
    assert within.rate(step, intervals.filter(pl.col("start_seconds") < 9)) is None
