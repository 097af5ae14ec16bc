"""Causes from repeated queries of a volume's status."""

from __future__ import annotations

from typing import Any

import pytest
from hemi_lab.targets.volume import causes


def leg(number: int, reads: tuple[int, int], writes: tuple[int, int], moved: int) -> dict[str, Any]:
    """Returns counts and mean times in nanoseconds since the volume was opened."""
    return {
        "leg": number,
        "read_bytes": moved,
        "written_bytes": 0,
        "owed_bytes": 4096,
        "freezes": 0,
        "frozen_ns": 0,
        "reads": {"total": {"count": reads[0], "mean_ns": reads[1]}},
        "writes": {"total": {"count": writes[0], "mean_ns": writes[1]}},
    }


def status(*legs: dict[str, Any], dirty: int = 0) -> dict[str, Any]:
    return {
        "exposure": {"bytes": 8192, "age_ns": 5_000_000},
        "engine": {"dirty_regions": dirty},
        "legs": list(legs),
    }


def told(*seen: tuple[float, dict[str, Any]]) -> dict[tuple[float, int | None, str], float]:
    rows = causes(list(seen)).iter_rows(named=True)
    return {(row["start_seconds"], row["leg"], row["name"]): row["value"] for row in rows}


def test_legs_answer_in_the_time_of_this_interval_not_since_the_opening() -> None:
    before = status(leg(0, (10, 100), (10, 1000), 1000), leg(1, (0, 0), (10, 3000), 0))
    # Leg 0: 10 more reads of 300 ns, and 30 more writes of 2,000 ns. Leg 1 read nothing.
    after = status(leg(0, (20, 200), (40, 1750), 4000), leg(1, (0, 0), (20, 4000), 1000), dirty=7)
    known = told((0.0, before), (2.0, after))
    assert known[0.0, 0, "reads_per_second"] == 5
    assert known[0.0, 0, "read_seconds"] == pytest.approx(300e-9)
    assert known[0.0, 0, "writes_per_second"] == 15
    assert known[0.0, 0, "write_seconds"] == pytest.approx(2000e-9)
    assert known[0.0, 1, "reads_per_second"] == 0
    assert (0.0, 1, "read_seconds") not in known
    assert known[0.0, 1, "write_seconds"] == pytest.approx(5000e-9)
    assert known[0.0, None, "dirty_regions"] == 7
    assert known[0.0, 0, "share"] == pytest.approx(0.75)


def test_counts_of_a_leg_that_began_anew_count_from_zero() -> None:
    before = status(leg(0, (100, 50), (0, 0), 0))
    after = status(leg(0, (4, 700), (0, 0), 0))
    known = told((1.0, before), (2.0, after))
    assert known[1.0, 0, "reads_per_second"] == 4
    assert known[1.0, 0, "read_seconds"] == pytest.approx(700e-9)


def test_a_leg_that_joined_counts_from_zero() -> None:
    known = told((0.0, status()), (1.0, status(leg(2, (3, 10), (1, 20), 100))))
    assert known[0.0, 2, "read_seconds"] == pytest.approx(10e-9)
