"""Tests of the readings of this machine that say what disturbs a run."""

from __future__ import annotations

import time

import pytest
from hemi_lab import host


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Leaves the readings as they are, since they are what is tested here."""


def test_a_wall_clock_that_is_set_is_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    walls, monotonics = iter([1000.0, 1010.5]), iter([5.0, 15.0])
    monkeypatch.setattr(time, "time", lambda: next(walls))
    monkeypatch.setattr(time, "monotonic", lambda: next(monotonics))
    assert host.Watch().drift() == pytest.approx(0.05)


def test_a_stall_between_two_readings_is_no_drift(monkeypatch: pytest.MonkeyPatch) -> None:
    walls, monotonics = iter([1000.0, 1010.015]), iter([5.0, 15.0])
    monkeypatch.setattr(time, "time", lambda: next(walls))
    monkeypatch.setattr(time, "monotonic", lambda: next(monotonics))
    assert host.Watch().drift() == 0.0


def test_time_that_other_machines_took_is_a_share_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([(10.0, 1000.0), (15.0, 1200.0)])
    monkeypatch.setattr(host, "_stolen", lambda: next(ticks))
    assert host.Watch().stolen() == pytest.approx(0.025)
