"""Simulated targets: `hemi sim session` as a driver."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hemi_lab.drivers.rest import Rests
from hemi_lab.drivers.simulated import SimulatedDriver
from hemi_lab.errors import ToolError, UsageError
from hemi_lab.plans import load as plans
from hemi_lab.plans.model import SweepTest
from hemi_lab.results.store import Reader
from hemi_lab.runner import Order, run
from hemi_lab.steps import Step
from hemi_lab.targets.parse import parse
from hemi_lab.timed import ReplayLoad
from hemi_lab.workload import Load, WeightedSize, Zone

needs_hemi = pytest.mark.skipif("HEMI" not in os.environ, reason="HEMI names no hemi binary")

WRITES = Load(read_percent=0, sizes=4096, threads=4, queue_depth=4)


def opened(text: str) -> SimulatedDriver:
    driver = parse(text).open(1)
    assert isinstance(driver, SimulatedDriver)
    return driver


@needs_hemi
def test_steps_of_every_kind() -> None:
    driver = opened("sim:gp3+gp3-16k,policy=first,volume=1 GiB")
    assert driver.capacity == 1 << 30
    mix = [WeightedSize(size=512, weight=1), WeightedSize(size=65536, weight=3)]
    zones = [Zone(accesses=80, space=20), Zone(accesses=20, space=80)]
    loads = [
        WRITES,
        Load(read_percent=70, sizes=mix, zones=zones, queue_depth=8),
        Load(read_percent=100, sizes=131072, pattern="sequential", span_percent=50),
    ]
    for load in loads:
        found = driver.run(Step("t", "measure", load.shown(), load, seconds=2.5, seed=1))
        assert found.issued == found.completed == found.all.moments.count > 0
        assert found.all.histogram.total == found.all.moments.count
        assert found.little is not None
        assert found.little.deviation < 1e-9
        whole = found.intervals.filter(pl.col("operation") == "all")
        assert 0.9 * found.all.moments.count <= whole["count"].sum() <= found.all.moments.count
    shares = found.causes.filter(pl.col("name") == "share")
    by_second = shares.group_by("start_seconds").agg(pl.col("value").sum())["value"]
    assert by_second.to_list() == pytest.approx([1.0] * len(by_second))
    idle = driver.run(Step("t", "idle", "rest", None, seconds=1.5))
    assert idle.seconds == pytest.approx(1.5)
    driver.close()


@needs_hemi
def test_the_same_seed_is_the_same_run_and_purging_begins_anew() -> None:
    driver = opened("sim:x25e-32gb,scale=16")
    step = Step("t", "measure", "w", WRITES, bytes=8 << 20, seed=5)
    first = driver.run(step)
    assert driver.purge().done
    again = driver.run(step)
    assert first.intervals.equals(again.intervals)
    assert first.all.moments == again.all.moments
    driver.close()


@needs_hemi
def test_what_a_replayed_recording_lacks_is_noted() -> None:
    driver = opened("sim:x25e-32gb,scale=16")
    whole = Path(__file__).parents[2] / "fuzz/corpus/capture/whole"
    load = ReplayLoad(trace=str(whole), queue_depth=8)
    (note,) = driver.run(Step("t", "measure", "again", load)).notes
    assert note.startswith(f"{whole} lacks 7 requests: the recorder could not keep up")
    driver.close()


@needs_hemi
def test_what_hemi_says_is_shown_with_the_command() -> None:
    with pytest.raises(ToolError) as caught:
        opened("sim:no-such-drive")
    assert "no-such-drive" in caught.value.what
    assert "sim session" in caught.value.what


@needs_hemi
def test_flash_scaled_so_far_that_it_stands_still_has_a_way_out() -> None:
    driver = opened("sim:iodrive-duo-640gb,scale=1024")
    fill = Load(read_percent=0, sizes=128 << 10, pattern="sequential", queue_depth=16)
    with pytest.raises(ToolError, match=r"run\.limit") as caught:
        driver.run(Step("t", "precondition", "fill", fill, bytes=driver.capacity, seed=1))
    assert "take a smaller one" in caught.value.way_out


@needs_hemi
def test_what_a_reader_has_to_know_of_the_models_is_noted() -> None:
    driver = opened("sim:qlc+hyperdisk-balanced,policy=all,scale=64,volume=1 GiB")
    warning, *notes = driver.notes
    assert driver.warnings == [warning]
    assert "qlc: with its flash divided by 512" in warning
    assert any("hyperdisk-balanced: the model's writes are not validated" in note for note in notes)
    driver.close()
    sound = opened("sim:nvme-enterprise")
    assert sound.warnings == sound.notes == []
    sound.close()


def shown_targets() -> list[tuple[str, str]]:
    """Returns the simulated targets of commands on pages, each with its page."""
    docs = Path(__file__).parents[2] / "docs"
    pages = {str(page.relative_to(docs)): page.read_text() for page in docs.glob("**/*.md")}
    found = {(page, name) for page in pages for name in re.findall(r"-t (sim:\S+)", pages[page])}
    # A page may say itself that its example warns.
    return sorted((page, name) for page, name in found if "hemi-lab warns" not in pages[page])


@needs_hemi
@pytest.mark.parametrize(("page", "target"), shown_targets())
def test_an_example_does_not_warn_of_itself(page: str, target: str) -> None:
    driver = opened(target)
    assert driver.warnings == [], page
    driver.close()


def test_a_target_by_its_name_says_what_it_is() -> None:
    told = parse("sim:gp3+gp3-16k,policy=all,scale=4").describe()
    assert (told.policy, told.legs, told.scale) == ("all", ["gp3", "gp3-16k"], 4)
    assert told.simulated


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sim:gp3,polcy=all", "polcy=all"),
        ("sim:gp3+gp3,policy=some", "policy = some"),
        ("sim:gp3,scale=0", "scale = 0"),
        ("sim:", "nothing is named"),
        ("sim:./none.toml", "No such file"),
        ("warp:drive", "no kind 'warp'"),
    ],
)
def test_names_that_make_no_sense(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert says in caught.value.what
    assert caught.value.way_out


def test_a_file_of_a_system(tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text('title = "t"\n[system]\npolicy = "all"\nlegs = ["gp3", "gp3"]\n')
    assert parse(f"sim:{file}").describe().policy == "all"
    file.write_text("title = ")
    with pytest.raises(UsageError, match="Invalid value"):
        parse(f"sim:{file}")


READS = Load(read_percent=100, sizes=4096)


@needs_hemi
def test_a_rest_has_its_own_energy() -> None:
    """Rests at 3.5 W for no whole number of seconds, which must not count in the following step."""
    driver = opened("sim:nvme-enterprise,volume=1 GiB")
    alone = driver.run(Step("t", "measure", "r", READS, seconds=2.0, seed=1))
    rest = driver.run(Step("t", "idle", "rest", None, seconds=2.7))
    after = driver.run(Step("t", "measure", "r", READS, seconds=2.0, seed=1))
    short = driver.run(Step("t", "idle", "rest", None, seconds=0.4))
    again = driver.run(Step("t", "measure", "r", READS, seconds=2.0, seed=1))
    driver.close()
    assert rest.energy_joules == pytest.approx(2.7 * 3.5, rel=1e-6)
    assert short.energy_joules == pytest.approx(0.4 * 3.5, rel=1e-6)
    assert alone.energy_joules is not None
    for found in (after, again):
        assert found.energy_joules == pytest.approx(alone.energy_joules, rel=1e-3)
    watts = rest.causes.filter(pl.col("name") == "watts")["value"].to_list()
    assert watts == pytest.approx([3.5] * 3)


def test_what_is_not_known_of_a_rest_is_not_made_up() -> None:
    """Rests for less than a second, which gives no watts, and adds to the energy of the next
    step."""

    def report(*seconds: tuple[float, float]) -> dict[str, Any]:
        parts = [{"length": length, "legs": [{"energy": joules}]} for length, joules in seconds]
        return {"legs": [{"energy": sum(joules for _, joules in seconds)}], "intervals": parts}

    rests = Rests()
    short, longer, load = report((0.7, 0.0)), report((1.0, 8.5), (0.5, 0.0)), report((1.0, 12.0))
    for told, resting in ((short, True), (longer, True), (load, False)):
        rests.settle(told, resting)
    assert short["legs"][0]["energy"] == 0
    # The 8.5 J of 1.7 s give no watts. Nothing is added to it or taken from the load.
    assert longer["legs"][0]["energy"] == 8.5
    assert load["legs"][0]["energy"] == 12.0
    whole, last = report((1.0, 5.0), (1.0, 5.0), (0.5, 0.0)), report((1.0, 9.5))
    rests.settle(whole, True)
    rests.settle(last, False)
    assert whole["legs"][0]["energy"] == 12.5
    assert last["legs"][0]["energy"] == 7.0


@needs_hemi
def test_a_purge_to_steady_state_is_no_fresh_drive() -> None:
    driver = opened("sim:x25e-32gb,scale=16")
    step = Step("t", "measure", "w", WRITES.model_copy(update={"queue_depth": 32}), seconds=2.0)
    fresh = driver.run(step)
    told = driver.purge_steady()
    assert told is not None and "steady state" in told.how
    steady = driver.run(step)
    assert steady.iops < 0.8 * fresh.iops
    # The next plain purge is a fresh drive again.
    assert driver.purge().done
    assert driver.run(step).all.moments == fresh.all.moments
    driver.close()


@needs_hemi
def test_a_system_with_a_state_of_its_own_keeps_it(tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text(
        'title = "t"\n[system]\npolicy = "single"\nlegs = ["x25e-32gb"]\nscale = 16\n'
        'precondition = "sequential"\n'
    )
    driver = opened(f"sim:{file}")
    assert driver.purge_steady() is None
    driver.close()


@needs_hemi
@pytest.mark.parametrize(
    "target",
    ["sim:x25e-32gb,scale=16", pytest.param("sim:nvme-enterprise+gp3", marks=pytest.mark.long)],
)
def test_quick_passes_its_own_audit(target: str, tmp_path: Path) -> None:
    """The flash of one is in its steady state, the exposure of the other at its bound."""
    plan, text = plans.load("quick")
    chosen = plan.chosen(["random-read", "random-write"])
    few = [
        test.model_copy(update={"points": test.points[:1]})
        for test in chosen.tests
        if isinstance(test, SweepTest)
    ]
    chosen = chosen.model_copy(update={"tests": few})
    order = Order(chosen, text, parse(target), tmp_path, time_scale=0.1)
    ended = run(order, lambda step, found: None)
    assert [check.name for check in ended.result.failed_checks()] == []
    drift = next(check for check in ended.result.audit if check.name == "drift")
    assert drift.passed
    assert not any(step == "fill" for step in Reader(ended.folder).table("steps")["label"])
    prepared = [item for item in ended.result.preparations if item.what == "precondition"]
    assert prepared[0].how == (
        "flash as long random writes leave it, by the model (precondition = steady)"
    )
    assert prepared[-1].done, prepared[-1].how
