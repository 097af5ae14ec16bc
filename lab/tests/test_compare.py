"""Comparisons: sides, verdicts, interleaving, the page."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pages
import polars as pl
import pytest
from fakes import CAPACITY, FakeDriver, FakeTarget
from hemi_lab.cli import app
from hemi_lab.comparison import page, summary
from hemi_lab.comparison.figures import Compared, Figure, compared
from hemi_lab.comparison.freezes import SHOWN, compared_freezes
from hemi_lab.comparison.interleave import Turns, take_turns
from hemi_lab.comparison.shown import share
from hemi_lab.comparison.sides import Side, side
from hemi_lab.errors import RefusedError, UsageError
from hemi_lab.plans.load import parse
from hemi_lab.report.freezes import stalls
from hemi_lab.results.model import Freeze
from hemi_lab.results.store import FREEZES, Reader
from hemi_lab.steps import Step
from hemi_lab.targets.base import Description, Hazards
from hemi_lab.tool import Interrupted
from test_runner import HEAD
from typer.testing import CliRunner

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
    """A fake target with a name of its own."""

    def __init__(self, name: str, driver: FakeDriver, found: Hazards | None = None) -> None:
        super().__init__(driver, f"/dev/{name}", found or Hazards())
        self.name = name

    def describe(self) -> Description:
        return Description(self.name, "file", bytes=CAPACITY)


def taken(
    tmp_path: Path, rates: dict[str, float], rounds: int, noise: float = 0.01, seed: int = 1
) -> list[Path]:
    """Runs rounds on targets of these mean rates, all of which drift together."""
    chance = random.Random(seed)
    made: list[str] = []

    def target(text: str) -> Named:
        def rate(step: Step, number: int) -> float:
            # Every run of all sides is slower than the one before, which an interleaved pair
            # shares.
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
    """Merges three rounds at 1 ms and one at 100 ms.

    Half of all requests took 1 ms, whatever the mean of the rounds' medians is."""
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


def frozen(longest: float, meanwhile: float, drain: float | None, ended: float = 3.0) -> Freeze:
    """Returns a freeze of leg 1 for 1 s, with only some fields of interest."""
    fields = dict.fromkeys(Freeze.model_fields, 0.0) | {
        "step": 2,
        "leg": 1,
        "test": "writes",
        "label": "leg 1 frozen for 1 s",
        "seconds": 1.0,
        "began_seconds": ended - 1,
        "ended_seconds": ended,
        "longest_request_seconds": longest,
        "longest_silence_seconds": longest,
        "drain_seconds": drain,
        "during_iops": meanwhile,
        "during_p50_seconds": longest / 2,
        "during_p99_seconds": None,
        "during_p999_seconds": None,
    }
    counts = {f"{phase}_count": 10 for phase in ("before", "during", "after")}
    return Freeze.model_validate(fields | counts)


def with_freezes(folders: list[Path], runs: list[list[Freeze]]) -> list[Side]:
    """Returns the sides, each run of which has a freeze."""
    for folder, freezes in zip(folders, runs, strict=True):
        for run, freeze in zip(sorted(folder.iterdir()), freezes, strict=True):
            pl.DataFrame([freeze.model_dump()], schema=FREEZES).write_parquet(
                run / "freezes.parquet"
            )
    return sides_of(folders)


@pytest.fixture
def frozen_sides(tmp_path: Path) -> list[Side]:
    """Returns a mirror that waits for its leg, and one that does not, otherwise equally fast."""
    mirror = [frozen(longest, 0, 0) for longest in (1.0, 1.01, 1.004)]
    other = [
        frozen(longest, rate, 0.3) for longest, rate in ((0.05, 900), (0.04, 990), (0.06, 940))
    ]
    return with_freezes(taken(tmp_path, {"one": 1000, "two": 1000}, 3), [mirror, other])


def test_a_freeze_is_compared_by_itself(frozen_sides: list[Side]) -> None:
    (found,) = compared_freezes(frozen_sides[0], frozen_sides[1])
    assert found.freeze
    assert found.label == "leg 1 frozen for 1 s: around the freeze"
    known = {item.name: item for item in found.figures}
    longest = known["longest request"]
    # The worst of the runs. The difference is of the rounds.
    assert (longest.a, longest.b) == (1.01, 0.06)
    assert longest.better is True
    assert -0.98 < longest.low < 0.05 - 1 < longest.high < -0.9
    assert known["longest silence"].better is True
    # Neither side had enough requests for it.
    assert "99 % meanwhile" not in known


def test_what_is_zero_has_a_verdict_and_no_ratio(frozen_sides: list[Side]) -> None:
    known = {
        item.name: item for item in compared_freezes(frozen_sides[0], frozen_sides[1])[0].figures
    }
    rate, drain = known["IOPS meanwhile"], known["drained in"]
    assert (rate.difference, rate.verdict, rate.better) == (None, "more", True)
    assert rate.a == 0
    assert rate.b == pytest.approx((900 + 990 + 940) / 3)
    assert (drain.difference, drain.better) == (None, False)
    a = frozen_sides[0]
    (same,) = compared_freezes(a, replace(a, letter="C"))
    assert same.figures[2].name == "IOPS meanwhile"
    assert same.figures[2].said() == "inside the noise"


def test_one_freeze_each_has_values_and_no_interval(tmp_path: Path) -> None:
    folders = taken(tmp_path, {"one": 1000, "two": 1000}, 1)
    a, b = with_freezes(folders, [[frozen(1.0, 0, 0)], [frozen(0.05, 900, None)]])
    (found,) = compared_freezes(a, b)
    assert all(item.said() == "not known" for item in found.figures)
    longest = found.figures[0]
    assert longest.difference == pytest.approx(-0.95)
    assert next(item for item in found.figures if item.name == "drained in").b is None


def test_a_freeze_before_the_load_is_in_no_figure(tmp_path: Path) -> None:
    mirror = [frozen(1.0, 5, 0), frozen(0.0, 0, 0, ended=-0.4), frozen(1.02, 5, 0)]
    other = [frozen(0.05, 900, 0)] * 3
    a, b = with_freezes(taken(tmp_path, {"one": 1000, "two": 1000}, 3), [mirror, other])
    (found,) = compared_freezes(a, b)
    assert found.rounds == (2, 3)
    assert found.figures[0].better is True
    assert any("only after the freeze" in said for said in page.warnings([a, b]))


def test_the_page_has_the_freezes(frozen_sides: list[Side], tmp_path: Path) -> None:
    a, b = frozen_sides
    path = tmp_path / "page.html"
    page.write([a, b], {"B": [*compared_freezes(a, b), *compared(a, b)]}, path)
    text = pages.read(path)
    assert "Longest request against the freeze" in text
    assert "B, leg 1 frozen" in text
    assert text.index("around the freeze</h3>") < text.index("1T/1Q</h3>")


def test_two_rounds_are_said_to_be_few(tmp_path: Path) -> None:
    two = sides_of(taken(tmp_path / "two", {"one": 1000, "two": 1000}, 2))
    three = sides_of(taken(tmp_path / "three", {"one": 1000, "two": 1000}, 3))
    assert any("more rounds" in said for said in page.warnings(two))
    assert not any("more rounds" in said for said in page.warnings(three))


def test_a_report_marks_what_was_missed() -> None:
    rows = [frozen(1.0, 5, 0), frozen(0.0, 0, 0, ended=-0.4)]
    table = stalls(pl.DataFrame([row.model_dump() for row in rows], schema=FREEZES))
    assert [row[0] for row in table.rows] == [
        "leg 1 frozen for 1 s",
        "leg 1 frozen for 1 s: MISSED, over before the load began",
    ]


def test_loads_of_one_label_are_not_laid_over_each_other(frozen_sides: list[Side]) -> None:
    """Uses two tests that freeze the same leg for the same time."""
    a, b = frozen_sides
    for known in (a, b):
        (runs,) = known.freezes.values()
        known.freezes[("reads", "leg 1 frozen for 1 s")] = runs
    figure = page._forest(compared_freezes(a, b), SHOWN)
    names = [str(trace.y[0]) for trace in figure.data]
    assert len(names) == len(set(names)) == 4
    assert "writes, leg 1 frozen for 1 s, longest request" in names


def test_differences_have_a_true_minus() -> None:
    assert share(-0.123) == "\N{MINUS SIGN}12.3 %"
    assert share(0.123) == "+12.3 %"


def test_the_page_begins_with_all_tests_and_their_verdicts(tmp_path: Path) -> None:
    a, b = sides_of(taken(tmp_path, {"one": 1000, "two": 500}, 4))
    found = {"B": compared(a, b)}
    rows = summary.table([a, b], found).rows
    # One test, so there is no mean of several.
    assert len(rows) == 1
    assert rows[0][0] in ("Reads, 1T/1Q", "Reads, 2T/4Q")
    assert float(rows[0][3].removeprefix("× ")) == pytest.approx(0.5, rel=0.05)
    assert (rows[0][4], rows[0][6]) == ("worse", "worse")
    page.write([a, b], found, tmp_path / "page.html")
    text = pages.read(tmp_path / "page.html")
    assert text.index("<figure>") < text.index("Test by test") < text.index("B against A")
    (first, *_) = pages.figures(tmp_path / "page.html").values()
    bars = [trace for trace in first["data"] if trace["type"] == "bar"]
    assert [trace["name"] for trace in bars] == [f"A: {a.name}", f"B: {b.name}"]
    assert all(trace["error_x"]["visible"] for trace in bars)


def test_no_difference_is_called_so_in_the_summary(tmp_path: Path) -> None:
    a, b = sides_of(taken(tmp_path, {"one": 1000, "two": 1000}, 5))
    (row,) = summary.table([a, b], {"B": compared(a, b)}).rows
    assert row[4] == "no difference"


def test_a_freeze_stands_in_the_summary_by_its_longest_request(frozen_sides: list[Side]) -> None:
    a, b = frozen_sides
    found = {"B": [*compared_freezes(a, b), *compared(a, b)]}
    rows = summary.table([a, b], found).rows
    assert "around the freeze" in rows[0][0]
    assert rows[0][4] == "better"
    # A time and a rate have no mean ratio.
    assert (rows[-1][0], rows[-1][3]) == ("all, geometric mean", "–")


def test_a_comparison_wants_two_sides() -> None:
    with pytest.raises(UsageError) as caught:
        CliRunner().invoke(app, ["compare", "a"], catch_exceptions=False)
    assert caught.value.what == "a comparison wants from 2 to 26 sides, and 1 side is named"
    assert "another side" in caught.value.way_out
    with pytest.raises(UsageError, match="and 27 sides are named"):
        CliRunner().invoke(app, ["compare", *"a" * 27], catch_exceptions=False)
