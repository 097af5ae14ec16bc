"""Histories: steps in series of runs, and their table and page."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import pytest
from fakes import FakeDriver, NoisyDriver
from hemi_lab.errors import UsageError
from hemi_lab.history import page
from hemi_lab.history.series import chosen, runs, series
from hemi_lab.results.store import HEADER
from hemi_lab.statistics.changes import changes
from test_compare import PLAN
from test_runner import carry_out


def noisy(levels: list[tuple[float, int]], seed: int = 1, noise: float = 0.01) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(level, noise * level) for level, runs in levels for _ in range(runs)]


def test_a_step_is_found_where_it_is() -> None:
    (found,) = changes(noisy([(1000, 8), (900, 7)]))
    assert found.at == 8
    assert found.found.low < -0.1 < found.found.high < -0.08


def test_two_steps_are_two() -> None:
    assert [one.at for one in changes(noisy([(1000, 6), (1300, 6), (1100, 6)]))] == [6, 12]


def test_scatter_alone_is_no_step() -> None:
    false = sum(bool(changes(noisy([(1000, 12)], seed))) for seed in range(200))
    # One series in twenty at most, and three deviations of such a count.
    assert false <= 19


def test_the_last_run_alone_is_held_against_the_others() -> None:
    assert [one.at for one in changes([*noisy([(1000, 6)]), 700.0])] == [6]
    assert changes([*noisy([(1000, 6)]), 1015.0]) == []
    # Two runs have no scatter to hold a third against.
    assert changes([1000.0, 1001.0, 700.0]) == []


def test_a_step_below_the_least_is_none() -> None:
    values = [1000.0] * 5 + [1004.0] * 5
    assert changes(values) == []
    assert [one.at for one in changes(values, least=0.001)] == [5]


def test_figures_of_zero_have_no_steps() -> None:
    with pytest.raises(ValueError, match="positive"):
        changes([1.0, 0.0, 1.0])


def made(folder: Path, rates: list[float]) -> Path:
    """Makes runs of one target a day apart."""
    for day, rate in enumerate(rates):
        ended = carry_out(PLAN, NoisyDriver(lambda step, number, r=rate: r), folder)  # type: ignore[misc]
        started = ended.result.started + timedelta(days=day)
        moved = ended.result.model_copy(update={"started": started})
        (ended.folder / HEADER).write_text(moved.model_dump_json())
    return folder


def test_a_history_tells_its_step_in_table_and_page(tmp_path: Path) -> None:
    made(tmp_path / "runs", [1000, 1010, 995, 1005, 700, 705, 698])
    readers = runs([tmp_path / "runs"])
    assert len(readers) == 7
    (one,) = series(readers)
    assert [step.at for step in one.of_rate] == [4]
    rows = page.table(one).rows
    assert [number for number, row in enumerate(rows) if row[3]] == [4]
    assert rows[4][3].startswith("worse: −3")
    assert "1 step" in page.said(one) or "2 steps" in page.said(one)
    path = tmp_path / "history.html"
    page.write([one], path)
    assert rows[4][3] in path.read_text()


def test_runs_of_another_target_or_plan_are_no_series(tmp_path: Path) -> None:
    made(tmp_path / "a", [1000, 1000])
    (tmp_path / "b").mkdir()
    other = PLAN.replace('name = "own"', 'name = "other"')
    carry_out(other, FakeDriver(), tmp_path / "b")
    readers = runs([tmp_path])
    assert len(readers) == 3
    assert [len(one.points) for one in series(readers)] == [2]
    with pytest.raises(UsageError, match="no run is of it"):
        chosen(readers, "elsewhere", None, [])
    with pytest.raises(UsageError, match="no run has it"):
        chosen(readers, None, None, ["nothing"])


def test_what_changed_between_runs_is_noted(tmp_path: Path) -> None:
    folder = made(tmp_path, [1000, 1000, 1000])
    readers = runs([folder])
    engine = readers[2].result.engine.model_copy(update={"version": "2"})
    readers[2].result = readers[2].result.model_copy(
        update={"engine": engine, "status": "partial", "time_scale": 0.5}
    )
    (one,) = series(readers)
    assert one.points[1].notes == []
    assert one.points[2].notes == ["partial", "times × 0.5 instead of 1", "fake 2"]
