"""Settings: refusals and their messages, deviations, and the size of the pool."""

from __future__ import annotations

from typing import Any

import pytest
from hemi_lab.database import BadSetting, DirectoryTarget, OltpRun, ScanSettings
from hemi_lab.database.settings import MEBIBYTE, OltpSettings, Placement, placement, pool_bytes
from hemi_lab.plans.model import DatabaseTest


def test_the_standard_is_no_deviation() -> None:
    standard = OltpSettings()
    assert standard.threads == (8, 16, 24, 32, 48, 64, 96, 128)
    assert (standard.seconds, standard.idle_seconds) == (300, 30)
    assert standard.deviations() == []


def test_a_shorter_run_says_so() -> None:
    said = OltpSettings(
        threads=(8, 32), seconds=30, idle_seconds=5, customers=60, server_options={"a": "1"}
    ).deviations()
    assert said == [
        "threads 8, 32 instead of 8, 16, 24, 32, 48, 64, 96, 128",
        "steps of 30 s instead of 300 s",
        "5 s idle between steps instead of 30 s",
        "60 customers in a district instead of 3000",
        "MariaDB with a=1",
    ]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"workload": "tpch"}, "workload = 'tpch'.*one of tpcc, oltp_read_write"),
        ({"threads": ()}, "threads.*at least one"),
        ({"threads": (8, 0)}, "threads = 0.*from 1 to 4096"),
        ({"seconds": 0}, "seconds = 0"),
        ({"idle_seconds": -1}, "idle_seconds = -1"),
        ({"seed": 0}, "seed = 0.*from 1"),
        ({"warehouses": 0}, "warehouses = 0"),
        ({"items": 99}, "items = 99.*from 100 to 100000"),
        ({"customers": 3001}, "customers = 3001"),
        ({"pool_share": 0.0}, "pool_share = 0.0"),
        ({"placements": ()}, "placements"),
        ({"server_options": {"datadir": "/x"}}, "datadir.*set by the lab itself"),
        ({"server_options": {"port": "3306"}}, "port.*set by the lab itself"),
        ({"server_options": {"a-b": "1"}}, "a-b.*underscores"),
        ({"server_options": {"a": "1\n[mysqld]"}}, "server_options.a.*one line"),
    ],
)
def test_what_cannot_be_run_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        OltpSettings(**settings)


@pytest.mark.parametrize(
    "settings", [{"rows": 9}, {"repeats": 0}, {"piece_bytes": 5000}, {"pool_share": 3.0}]
)
def test_scans_that_cannot_be_run_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=next(iter(settings))):
        ScanSettings(**settings)


def test_how_long_it_will_take() -> None:
    # 60 s of warm-up, 8 rests, 8 steps.
    assert OltpSettings().planned_seconds() == 60 + 8 * 30 + 8 * 300
    four = tuple(placement(text) for text in ("A/A", "A/B", "B/A", "B/B"))
    short = OltpSettings(
        threads=(8, 32), seconds=10, idle_seconds=5, warm_up_seconds=0, placements=four
    )
    assert short.planned_seconds() == 4 * (10 + 5 + 10)


def test_placements() -> None:
    assert placement("A/B") == Placement("A", "B")
    assert str(placement("B/A")) == "B/A"
    for bad in ("", "A", "A/C", "a/b", "A/B/A"):
        with pytest.raises(BadSetting, match="data/log"):
            placement(bad)


def test_a_placement_needs_its_target(tmp_path: Any) -> None:
    settings = OltpSettings(placements=(Placement("A", "B"),))
    with pytest.raises(BadSetting, match="no target B"):
        OltpRun(settings, {"A": DirectoryTarget(tmp_path)})


def test_the_pool_is_whole_mebibytes_and_never_too_small() -> None:
    assert pool_bytes(4000 * MEBIBYTE, 1 / 20) == 200 * MEBIBYTE
    assert pool_bytes(1010 * MEBIBYTE, 1 / 20) == 50 * MEBIBYTE
    assert pool_bytes(MEBIBYTE, 1 / 20) == 8 * MEBIBYTE


def test_a_plan_gives_the_settings_all_it_has() -> None:
    changed = {"warehouses": 3, "tables": 5, "rows": 7, "pool_share": 0.5, "checks": "none"}
    plan = {"kind": "database", "name": "t", "title": "t", "workload": "tpcc", "time": "40 s"}
    settings = DatabaseTest.model_validate(plan | changed).settings(0.5, 1)
    assert {name: getattr(settings, name) for name in changed} == changed
    assert (settings.seconds, settings.placements) == (20, (Placement("A", "A"),))
