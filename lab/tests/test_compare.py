"""Comparisons: sides, verdicts, interleaving, the page."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import CAPACITY, FakeDriver, FakeTarget
from hemi_lab.comparison import page
from hemi_lab.comparison.figures import Compared, Figure, compared
from hemi_lab.comparison.interleave import Turns, take_turns
from hemi_lab.comparison.sides import Side, side
from hemi_lab.errors import RefusedError, UsageError
from hemi_lab.plans.load import parse
from hemi_lab.results.store import Reader
from hemi_lab.steps import Step
from hemi_lab.targets.base import Description, Hazards
from hemi_lab.tool import Interrupted
from test_runner import HEAD

PLAN = (
    HEAD
    + """
[[tests]]
name = "reads"
title = "Reads"
kind = "sweep"
purge = false
load = { read_percent = 100, sizes = "4 KiB" }
points = [[1, 1], [2, 4]]
time = "20 s"
repeat_first = false
"""
)


class Named(FakeTarget):
    """A fake target by a name of its own."""

    def __init__(self, name: str, driver: FakeDriver, found: Hazards | None = None) -> None:
        super().__init__(driver, f"/dev/{name}", found or Hazards())
        self.name = name

    def describe(self) -> Description:
        return Description(self.name, "file", bytes=CAPACITY)


def taken(
    tmp_path: Path, rates: dict[str, float], rounds: int, noise: float = 0.01, seed: int = 1
) -> list[Path]:
    """Rounds on targets of these mean rates, all of which drift together."""
    chance = random.Random(seed)
    made: list[str] = []

    def target(text: str) -> Named:
        def rate(step: Step, number: int) -> float:
            # Every run of all sides is slower than the one before: an interleaved pair shares it.
            return rates[text] * 0.98 ** (len(made) // 2) * (1 + chance.gauss(0, noise))

        return Named(text, FakeDriver(rate))

    def told(number: int, letter: str, ended: object) -> None:
        made.append(letter)

    turns = Turns(
        parse(PLAN, "own.toml"), PLAN, list(rates), target, rounds, tmp_path / "out", 7, 1.0, []
    )
    folders = take_turns(turns, lambda step, found: None, told)
    assert made == [folder.name for _ in range(rounds) for folder in folders]
    return folders


def sides_of(folders: list[Path]) -> list[Side]:
    return [side(folder.name, folder) for folder in folders]


def figure(found: list[Compared], point: tuple[str, str], name: str) -> Figure:
    known = next(item for item in found if item.point == point)
    return next(item for item in known.figures if item.name == name)


ONE = ("reads", "1T/1Q")


def test_a_difference_is_found_in_spite_of_drift(tmp_path: Path) -> None:
    a, b = sides_of(taken(tmp_path, {"one": 1000, "two": 1200}, 6))
    found = compared(a, b)
    assert {item.point for item in found} == {ONE, ("reads", "2T/4Q")}
    assert {item.basis for item in found} == {"pairs"}
    iops, mean = figure(found, ONE, "IOPS"), figure(found, ONE, "mean")
    assert (iops.verdict, iops.better) == ("more", True)
    assert iops.low < 0.2 < iops.high
    assert (mean.verdict, mean.better) == ("less", True)
    assert mean.low < 1 / 1.2 - 1 < mean.high
    assert figure(found, ONE, "max").better is True


def test_no_difference_is_called_noise(tmp_path: Path) -> None:
    a, b = sides_of(taken(tmp_path, {"one": 1000, "two": 1000}, 6, noise=0.03))
    found = compared(a, b)
    iops = figure(found, ONE, "IOPS")
    assert iops.low < 0 < iops.high
    assert iops.said() == "inside the noise"
    assert iops.better is None


def test_seeds_are_of_the_round(tmp_path: Path) -> None:
    a, b = sides_of(taken(tmp_path, {"one": 1000, "two": 1000}, 3))
    seeds = [[reader.result.seed for reader in known.readers] for known in (a, b)]
    assert seeds == [[7, 8, 9], [7, 8, 9]]
    assert [reader.result.repeat for reader in a.readers] == [1, 2, 3]


def test_sides_of_unequal_runs_are_no_pairs(tmp_path: Path) -> None:
    a, b = sides_of(taken(tmp_path, {"one": 1000, "two": 2000}, 4))
    fewer = replace(b, points={point: runs[:3] for point, runs in b.points.items()})
    found = compared(a, fewer)
    assert {item.basis for item in found} == {"runs"}
    assert figure(found, ONE, "IOPS").verdict == "more"


def test_one_run_each_says_what_it_does_not_know(tmp_path: Path) -> None:
    folders = taken(tmp_path, {"one": 1000, "two": 1500}, 1)
    a, b = sides_of([next(folder.iterdir()) for folder in folders])
    found = compared(a, b)
    assert {item.basis for item in found} == {"within"}
    assert figure(found, ONE, "IOPS").difference == pytest.approx(0.5, abs=0.1)
    assert figure(found, ONE, "max").said() == "not known"
    path = tmp_path / "page.html"
    page.write([a, b], {b.letter: found}, path)
    assert "NOT in these intervals" in path.read_text()


def test_percentiles_are_of_merged_bins(tmp_path: Path) -> None:
    """Three rounds at 1 ms and one at 100 ms: half of all requests took 1 ms, whatever the mean
    of the rounds' medians is."""
    values = iter([1000.0, 1000.0, 10.0, 1000.0, 1000.0, 1000.0, 1000.0, 1000.0])
    plan = PLAN.replace("[[1, 1], [2, 4]]", "[[1, 1]]")
    turns = Turns(
        parse(plan, "own.toml"),
        plan,
        ["one", "two"],
        lambda text: Named(text, FakeDriver(lambda step, number: next(values))),
        4,
        tmp_path / "out",
        1,
        1.0,
        [],
    )
    a, b = sides_of(take_turns(turns, lambda step, found: None, lambda number, letter, run: None))
    assert figure(compared(a, b), ONE, "50 %").a == pytest.approx(1e-3)


def test_agreement_to_the_bin_is_no_agreement_to_the_nanosecond(tmp_path: Path) -> None:
    a, b = sides_of(taken(tmp_path, {"one": 1000, "two": 1000}, 3, noise=0))
    found = figure(compared(a, b), ONE, "50 %")
    assert found.low <= 0 <= found.high


def test_a_target_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    driver = FakeDriver()
    turns = Turns(
        parse(PLAN, "own.toml"),
        PLAN,
        ["one", "two"],
        lambda text: Named(text, driver, Hazards(holds=["data"])),
        2,
        tmp_path / "out",
        1,
        1.0,
        [],
    )
    with pytest.raises(RefusedError, match="not empty"):
        take_turns(turns, lambda step, found: None, lambda number, letter, run: None)
    assert not driver.steps


def test_a_run_that_ends_early_ends_the_turns(tmp_path: Path) -> None:
    turns = Turns(
        parse(PLAN, "own.toml"),
        PLAN,
        ["one", "two"],
        lambda text: Named(text, FakeDriver(interrupt_at=1 if text == "two" else None)),
        2,
        tmp_path / "out",
        1,
        1.0,
        [],
    )
    with pytest.raises(Interrupted):
        take_turns(turns, lambda step, found: None, lambda number, letter, run: None)
    a, b = sides_of([tmp_path / "out" / letter for letter in "AB"])
    assert any("partial" in said for said in page.warnings([a, b]))


def test_what_makes_no_side(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run in it"):
        side("A", tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        side("A", tmp_path / "gone")


def test_runs_one_after_another_are_told(tmp_path: Path) -> None:
    a, b = sides_of(taken(tmp_path, {"one": 1000, "two": 1000}, 2))
    assert not any("turns" in said for said in page.warnings([a, b]))
    for known, hour in ((a, 1), (b, 2)):
        for reader in known.readers:
            reader.result.started = reader.result.started.replace(hour=hour)
    assert any("turns" in said for said in page.warnings([a, b]))


def test_the_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    a, b = sides_of(taken(tmp_path, {"one": 1000, "<b>two</b>": 1200}, 3))
    path = tmp_path / "page.html"
    page.write([a, b], {"B": compared(a, b)}, path)
    text = path.read_text()
    assert "<link" not in text.replace("<link>", "")
    assert "<b>two</b>" not in text
    assert "better" in text
    assert "B against A" in text
    assert isinstance(a.readers[0], Reader)
