"""The PTS's rule against vectors computed by hand, and its line against scipy."""

from __future__ import annotations

import math

import pytest
from hemi_lab.statistics.steady import departure, judge, steadiness
from scipy import stats


def test_the_series_that_fio_calls_steady_is_not() -> None:
    # mean 104; range 120 - 88 = 32, 30.8 %; slope -8 a round, 32 over the window: 30.8 %.
    verdict = judge([120, 112, 104, 96, 88])
    assert verdict.mean == 104
    assert verdict.slope == -8
    assert verdict.range_share == pytest.approx(32 / 104)
    assert verdict.excursion_share == pytest.approx(32 / 104)
    assert not verdict.steady


@pytest.mark.parametrize(
    ("window", "steady", "why"),
    [
        ([100, 100, 100, 100, 100], True, "nothing moves"),
        ([90, 110, 100, 90, 110], True, "range exactly 20 %, slope 2 a round: 8 %"),
        ([90, 110, 100, 89, 111], False, "range 22 %"),
        ([95, 97.5, 100, 102.5, 105], True, "excursion exactly 10 %"),
        ([94, 97, 100, 103, 106], False, "range 12 %, but excursion 12 %"),
        ([106, 103, 100, 97, 94], False, "falling is no better than rising"),
        ([100, 80, 100, 120, 100], False, "range 40 %"),
        ([0, 0, 0, 0, 0], False, "nothing at all is no steady state"),
    ],
)
def test_both_conditions_to_their_bounds(window: list[float], steady: bool, why: str) -> None:
    assert judge(window).steady is steady, why


def test_bounds_hold_in_any_unit() -> None:
    for factor in (1e-9, 0.1, 1 / 3, 7e11):
        assert judge([value * factor for value in (95, 97.5, 100, 102.5, 105)]).steady


def test_the_line_is_scipys() -> None:
    window = [41234.5, 40991.2, 42001.9, 41502.0, 40777.7]
    fit = stats.linregress(range(5), window)
    verdict = judge(window)
    assert verdict.slope == pytest.approx(fit.slope)
    assert verdict.intercept == pytest.approx(fit.intercept)
    assert verdict.excursion_share == pytest.approx(abs(fit.slope) * 4 / (sum(window) / 5))


def test_the_first_steady_window_counts() -> None:
    found = steadiness([300, 200, 150, 120, 104, 102, 100, 101, 99, 100, 100])
    # Rounds 5 to 9: 104..99. Rounds 4 to 8 have a range of 20/105.4 = 19 % but fall by 17 %.
    assert (found.reached, found.first, found.last) == (True, 5, 9)
    assert found.said() == "steady in rounds 5 to 9"
    assert len(found.values) == 9


def test_no_more_than_twenty_five_rounds() -> None:
    falling = [1000 * 0.9**n for n in range(25)]
    found = steadiness([*falling, 5, 5, 5, 5, 5])
    assert not found.reached
    assert (found.first, found.last) == (21, 25)
    assert "NOT REACHED in 25 rounds" in found.said()


def test_five_rounds_are_needed() -> None:
    assert steadiness([100, 100, 100, 100]).verdict is None
    assert not steadiness([100] * 4).reached
    assert steadiness([100] * 5).reached


def test_leaving_steady_state_is_seen() -> None:
    calm = [100.0] * 8
    steady = steadiness(calm)
    assert departure(calm, steady) is None
    # A cache is full from round 9 on. The first window with too much of it is 5..9.
    full = [*calm, 40, 40, 40, 40, 40, 40]
    left = departure(full, steadiness(full))
    assert left is not None
    assert left.round == 6  # rounds 6 to 10; the first after the steady window's own five
    # A slow slide: each window is steady by itself, but the level has moved.
    slide = [100 * 0.98**n for n in range(20)]
    gone = departure(slide, steadiness(slide))
    assert gone is not None
    assert gone.change < -0.10


def test_a_line_needs_two_points() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        judge([1.0])
    assert math.isinf(judge([-1, -1]).range_share)
