"""Plans: the built-in ones, and messages for invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hemi_lab.errors import UsageError
from hemi_lab.methods import METHODS
from hemi_lab.plans.load import built_in_names, load, parse
from hemi_lab.plans.model import MatrixTest, SweepTest

DOCUMENTS = Path(__file__).parents[2] / "docs" / "lab" / "plans"

PLAN = """
name = "own"
title = "Own"
source = "mine"
[[tests]]
name = "writes"
title = "Writes"
kind = "sweep"
load = { read_percent = 0, sizes = "4 KiB" }
points = [[1, 1]]
time = "10 s"
"""


@pytest.mark.parametrize("name", built_in_names())
def test_every_built_in_plan_is_valid_and_documented(name: str) -> None:
    plan, _ = load(name)
    assert plan.name == name
    page = (DOCUMENTS / f"{name}.md").read_text()
    for test in plan.tests:
        assert f"`{test.name}`" in page, f"{test.name} is not on {name}.md"
        estimate = METHODS[test.kind].estimate(test)
        assert 0 <= estimate.least <= estimate.most
        assert estimate.least + estimate.unscaled[0] > 0


def test_the_pts_matrix_has_its_56_cells() -> None:
    plan, _ = load("steady")
    iops = plan.tests[0]
    assert isinstance(iops, MatrixTest)
    assert len(iops.read_percents) * len(iops.sizes) == 56
    assert (iops.cell, iops.most_rounds) == (60, 25)
    assert iops.fill is not None
    assert (iops.fill.size, iops.fill.times) == (128 << 10, 2)


@pytest.mark.parametrize(
    ("name", "read_percent", "weights"),
    [
        (
            "file-server",
            80,
            {512: 10, 1024: 5, 2048: 5, 4096: 60, 8192: 2, 16384: 4, 32768: 4, 65536: 10},
        ),
        (
            "web-server",
            100,
            {
                512: 22,
                1024: 15,
                2048: 8,
                4096: 23,
                8192: 15,
                16384: 2,
                32768: 6,
                65536: 7,
                131072: 1,
                524288: 1,
            },
        ),
    ],
)
def test_published_profiles(name: str, read_percent: int, weights: dict[int, int]) -> None:
    plan, _ = load("enterprise")
    test = next(test for test in plan.tests if test.name == name)
    assert isinstance(test, SweepTest)
    assert test.load.read_percent == read_percent
    assert {part.size: part.weight for part in test.load.mix()} == weights
    assert sum(weights.values()) == 100
    assert test.precondition is not None
    assert (test.precondition.threads, test.precondition.time) == (16, 6 * 3600)


@pytest.mark.parametrize(
    ("wrong", "right", "says"),
    [
        ('time = "10 s"', 'time = "10 parsecs"', ["tests[0].time = '10 parsecs'", "1m 30s"]),
        ('sizes = "4 KiB"', 'sizes = "4 Kib"', None),
        ('sizes = "4 KiB"', 'sizes = "1000 B"', ["tests[0].load", "multiple of 512 B"]),
        ("read_percent = 0", "read_percent = 101", ["tests[0].load.read_percent = 101", "100"]),
        ('kind = "sweep"', 'kind = "swep"', ["tests[0]", "swep", "'sweep'"]),
        (
            "points = [[1, 1]]",
            "point = [[1, 1]]",
            ["tests[0].point: there is no such key", "tests[0].points is missing"],
        ),
        ("points = [[1, 1]]", "points = [[1, 0]]", ["tests[0].points[0][1] = 0"]),
        ('name = "writes"', 'name = "Wr ites"', ["tests[0].name = 'Wr ites'"]),
        ("[[tests]]", "[[tests]", ["line"]),
    ],
)
def test_what_is_wrong_is_named(wrong: str, right: str, says: list[str] | None) -> None:
    text = PLAN.replace(wrong, right)
    assert text != PLAN
    if says is None:  # Units are not about capitals.
        parse(text, "own.toml")
        return
    with pytest.raises(UsageError) as caught:
        parse(text, "own.toml")
    for said in ["own.toml", *says]:
        assert said in caught.value.what
    assert caught.value.way_out


def test_two_tests_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two are called 'writes'"):
        parse(PLAN + PLAN[PLAN.index("[[tests]]") :], "own.toml")


def test_no_such_plan() -> None:
    with pytest.raises(UsageError, match="no such plan") as caught:
        load("stedy")
    assert "steady" in caught.value.way_out
    with pytest.raises(UsageError, match="No such file"):
        load("./nowhere.toml")


def test_tests_can_be_chosen() -> None:
    plan, _ = load("enterprise")
    assert [test.name for test in plan.chosen(["spare-*"]).tests] == [
        "spare-write-4k",
        "spare-mixed-8k",
    ]
    assert plan.chosen(["nothing"]).tests == []


def test_a_test_that_goes_on_where_another_left_off_is_prepared_like_it() -> None:
    plan, _ = load("sql")
    first = plan.tests[0]
    assert first.fill is not None
    (alone,) = plan.chosen(["checkpoints"]).tests
    assert (alone.purge, alone.fill) == (first.purge, first.fill)
    # Once is enough, and as the plan has it if the first is chosen.
    several = plan.chosen(["random-8k-writes", "checkpoints"]).tests
    assert [test.fill is not None for test in several] == [True, False]
    assert plan.chosen([test.name for test in plan.tests]) == plan
    low = load("enterprise")[0].chosen(["low-write-4k"]).tests[0]
    assert isinstance(low, SweepTest)
    assert low.purge
    assert low.precondition is not None


def test_a_test_starts_steady_only_from_a_purge() -> None:
    text = PLAN.replace('kind = "sweep"', 'kind = "sweep"\nstart = "steady"')
    assert parse(text, "own.toml").tests[0].start == "steady"
    with pytest.raises(UsageError, match="starts as the one before left it"):
        parse(text.replace("start =", "purge = false\nstart ="), "own.toml")


def test_a_chosen_test_starts_as_the_one_it_continues() -> None:
    (chosen,) = load("quick")[0].chosen(["mixed"]).tests
    assert (chosen.purge, chosen.start) == (True, "steady")
    assert chosen.fill is not None
    # A test with a preconditioning of its own continues the one before, too.
    (chosen,) = load("quick")[0].chosen(["random-write"]).tests
    assert (chosen.purge, chosen.start) == (True, "steady")
    assert chosen.fill is not None
    assert isinstance(chosen, SweepTest)
    assert chosen.precondition is not None
    assert chosen.precondition.fills == 0
