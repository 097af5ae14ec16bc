"""Sweeps: keys, write-once results that are not run again, local processes and Ray."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hemi_lab.cli.sweep import seeds_of
from hemi_lab.errors import LabError, UsageError
from hemi_lab.parallel.base import Pool, pool
from hemi_lab.parallel.kept import write_once
from hemi_lab.sweeps import cases
from hemi_lab.sweeps.cases import Task, Version
from hemi_lab.sweeps.store import Store
from hemi_lab.sweeps.sweep import keep_table, sweep, table
from hemi_lab.sweeps.task import simulate
from polars.testing import assert_frame_equal

hemi = pytest.mark.skipif(
    shutil.which(os.environ.get("HEMI", "hemi")) is None, reason="needs hemi (make build)"
)

SPEC = """
title = "Queue depths"
seed = 5
[system]
policy = "single"
legs = ["x25e-32gb"]
scale = 16
[workload.closed]
threads = 1
queue_depth = 4
duration = "0.2 s"
access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 70 } }
[sweep]
"workload.closed.queue_depth" = [1, 8]
"workload.closed.access.mix.read_percent" = [0, 70]
"""


def written(folder: Path, text: str = SPEC) -> Path:
    path = folder / "spec.toml"
    path.write_text(text)
    return path


def run(tasks: list[Task], store: Store, workers: Pool | None = None) -> int:
    swept = sweep(tasks, store, workers or InPlace(), lambda done, whole, last: None)
    assert not swept.failed, swept.failed[0].failed
    return swept.run


class InPlace:
    """Runs tasks in this process."""

    def run(self, function, tasks):  # type: ignore[no-untyped-def]
        yield from map(function, tasks)


@hemi
def test_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    tasks = cases.tasks(written(tmp_path), [])
    store = Store(tmp_path / "out")
    assert run(tasks[:3], store) == 3
    assert run(tasks, store) == 1
    assert run(tasks, store) == 0
    found = table(tasks, store)
    assert found["case"].to_list() == [0, 1, 2, 3]
    assert found["workload.closed.queue_depth"].to_list() == [1, 8, 1, 8]
    assert (found["iops"] > 0).all()
    bins = store.table("latencies", tasks)
    assert bins["count"].sum() == found["count"].sum()
    assert pl.read_parquet(keep_table(tasks, store)).height == 4


@hemi
def test_a_key_is_of_spec_seed_and_version(tmp_path: Path) -> None:
    plain = cases.tasks(written(tmp_path), [])
    keys = {task.key for task in plain}
    assert len(keys) == 4
    # Another title, another order of values, one more value: the same experiments.
    longer = SPEC.replace("Queue depths", "Others").replace("[1, 8]", "[8, 2, 1]")
    assert keys < {task.key for task in cases.tasks(written(tmp_path, longer), [])}
    # Another seed or another system: other experiments.
    assert not keys & {task.key for task in cases.tasks(written(tmp_path), [6])}
    other = SPEC.replace('"4 KiB"', '"8 KiB"')
    assert not keys & {task.key for task in cases.tasks(written(tmp_path, other), [])}
    assert {task.seed for task in plain} == {5}


@hemi
def test_a_preset_beside_the_spec_is_part_of_the_key(tmp_path: Path) -> None:
    preset = tmp_path / "own.toml"
    spec = SPEC.replace('["x25e-32gb"]', '["own.toml"]')
    text = (Path(__file__).parents[2] / "crates/drives/presets/x25e-32gb.toml").read_text()
    preset.write_text(text)
    first = cases.tasks(written(tmp_path, spec), [])
    assert [item.name for item in first[0].attached] == ["own.toml"]
    preset.write_text(text.replace("power_idle = ", "power_idle=  "))
    second = cases.tasks(written(tmp_path, spec), [])
    assert first[0].key != second[0].key
    # Another machine has neither spec nor preset, so the task brings them.
    preset.unlink()
    (tmp_path / "spec.toml").unlink()
    assert simulate(second[0]).failed is None


@hemi
def test_a_failure_is_said_and_leaves_the_others(tmp_path: Path) -> None:
    tasks = cases.tasks(written(tmp_path), [])
    store = Store(tmp_path / "out")
    broken = replace(tasks[0], spec_text=tasks[0].spec_text.replace("x25e-32gb", "no-such-drive"))
    swept = sweep([broken, *tasks[1:]], store, InPlace(), lambda done, whole, last: None)
    assert swept.run == 3
    assert "no-such-drive" in str(swept.failed[0].failed)
    assert not store.has(broken)
    assert run(tasks, store) == 1


@hemi
def test_another_build_of_hemi_is_refused(tmp_path: Path) -> None:
    task = cases.tasks(written(tmp_path), [])[0]
    other = replace(task, version=replace(task.version, build="0" * 16))
    assert "another build" in str(simulate(other).failed)


def test_a_result_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "cases" / "one.parquet"
    write_once(path, pl.DataFrame({"a": [1]}))
    write_once(path, pl.DataFrame({"a": [2]}))
    assert pl.read_parquet(path)["a"].to_list() == [1]
    assert [item.name for item in path.parent.iterdir()] == ["one.parquet"]
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(LabError, match="file"):
        write_once(blocked / "x.parquet", pl.DataFrame({"a": [1]}))


def test_a_result_that_is_not_whole_is_not_there(tmp_path: Path) -> None:
    """Checks that a sweep killed before the figures, which come last, has no result."""
    store = Store(tmp_path)
    version = Version("/hemi", "1", "a")
    task = Task("key", "spec", 0, 1, {}, "", version)
    for name in ("latencies", "legs", "intervals"):
        write_once(store.path(name, task), pl.DataFrame({"a": [1]}))
    assert not store.has(task)


def test_seeds() -> None:
    assert seeds_of(None) == []
    assert seeds_of("1-3,7,2") == [1, 2, 3, 7]
    for wrong in ("", "3-1", "a", "1-", "1-99999999"):
        with pytest.raises(UsageError, match="--seeds"):
            seeds_of(wrong)


def test_pools_are_named() -> None:
    with pytest.raises(UsageError, match="no such pool"):
        pool("cloud", None)
    with pytest.raises(UsageError, match="no address"):
        pool("local", 1, "there:1")


@hemi
@pytest.mark.long
def test_two_hundred_simulations_are_the_same_on_local_processes_and_on_ray(
    tmp_path: Path,
) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs Ray (pip install -e 'lab[ray]')")
    tasks = cases.tasks(written(tmp_path), list(range(1, 51)))
    assert len({task.key for task in tasks}) == 200
    stores = {}
    for on in ("local", "ray"):
        stores[on] = Store(tmp_path / on)
        assert run(tasks, stores[on], pool(on, 2)) == 200
    for name in ("cases", "latencies", "legs", "intervals"):
        local, ray = (store.table(name, tasks) for store in stores.values())
        assert_frame_equal(local, ray, check_exact=True)
    assert_frame_equal(*(table(tasks, store) for store in stores.values()), check_exact=True)
    # A file written by either equals the other's to the byte.
    for path in (tmp_path / "local" / "cases").rglob("*.parquet"):
        same = tmp_path / "ray" / path.relative_to(tmp_path / "local")
        assert path.read_bytes() == same.read_bytes()
    # Seeds differ, so results do.
    assert table(tasks, stores["local"])["mean_seconds"].n_unique() > 100
