"""Real block devices: loop devices on sparse files. Only root may attach them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
from hemi_lab.errors import LabError, RefusedError, UsageError
from hemi_lab.plans.load import parse as parse_plan
from hemi_lab.results.model import Found
from hemi_lab.runner import Ended, Order, run
from hemi_lab.steps import Step
from hemi_lab.targets import safety
from hemi_lab.targets.device import DeviceTarget
from hemi_lab.targets.parse import parse

Attach = Callable[..., str]

MIB = 1 << 20

PLAN = """
name = "short"
title = "Short"
source = "Of this test."

[[tests]]
name = "mixed"
title = "Mixed"
kind = "sweep"
fill = { size = "64 KiB", times = 1 }
load = { read_percent = 50, sizes = "4 KiB" }
points = [[1, 2]]
time = "1 s"
"""


def losetup(*words: str | Path) -> str:
    command = ["losetup", *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def attach(tmp_path: Path) -> Iterator[Attach]:
    """Returns a function that attaches a sparse file of a size, or an existing one, with
    losetup."""
    if os.geteuid() != 0:
        pytest.skip("only root may attach loop devices")
    attached: list[str] = []

    def attach(over: int | str, *options: str) -> str:
        path = over
        if isinstance(over, int):
            path = str(tmp_path / f"disk{len(attached)}")
            with Path(path).open("wb") as file:
                file.truncate(over)
        device = losetup("--find", "--show", *options, str(path))
        attached.append(device)
        return device

    yield attach
    for device in reversed(attached):
        losetup("--detach", device)


def carried_out(text: str, out: Path, wipe: list[str]) -> Ended:
    def quiet(step: Step, found: Found | None) -> None:
        pass

    target = parse(text)
    target.describe()
    safety.check(target, wipe)
    return run(Order(parse_plan(PLAN, "short.toml"), PLAN, target, out), quiet)


@pytest.mark.parametrize("block", [512, 4096])
def test_a_plan_on_a_device(block: int, attach: Attach, tmp_path: Path) -> None:
    device = attach(8 * MIB, "--sector-size", str(block))
    assert DeviceTarget("x", Path(device)).describe().logical_block_bytes == block
    ended = carried_out(device, tmp_path / "out", [])
    assert ended.error is None and ended.result.status == "whole"
    assert [(done.what, done.done) for done in ended.result.preparations] == [
        ("purge", True),
        ("precondition", True),
    ]
    steps = pl.read_parquet(ended.folder / "steps.parquet")
    assert steps["written_bytes"][0] == 8 * MIB
    # Data that the run has left there counts.
    with pytest.raises(RefusedError, match=f"--wipe {device}|not empty"):
        carried_out(device, tmp_path / "out", [])


def test_a_device_below_another_loop_device_is_in_use(attach: Attach) -> None:
    lower = attach(8 * MIB)
    upper = attach(lower)
    with pytest.raises(RefusedError, match=f"behind the loop device {Path(upper).name}"):
        safety.check(parse(lower), [lower])
    assert parse(upper).hazards().in_use == []


def test_a_device_is_no_file_whatever_it_is_called(attach: Attach) -> None:
    device = attach(8 * MIB)
    with Path(device).open("rb+") as disk:
        disk.write(b"diary")
    for text in (f"file:{device}", f"file:{device},size=4MiB"):
        with pytest.raises(UsageError, match="is a block device"):
            parse(text).describe()
        with pytest.raises(UsageError, match="is a block device"):
            safety.check(parse(text), [device])


def test_a_device_has_no_options(attach: Attach) -> None:
    device = attach(8 * MIB)
    for text in (f"{device},size=4MiB", f"device:{device},size=4MiB"):
        with pytest.raises(UsageError, match="has no options"):
            parse(text)


def test_a_device_that_cannot_be_written_is_said_to_be(attach: Attach) -> None:
    device = attach(8 * MIB, "--read-only")
    with pytest.raises(LabError, match=f"{device} is read-only"):
        parse(device).describe()


def test_a_device_with_nothing_to_speak_of_is_too_small(attach: Attach) -> None:
    with pytest.raises(UsageError, match=r"64 KiB is too small"):
        parse(attach(64 << 10)).describe()


def test_a_device_by_a_name_with_colons_and_relative(
    attach: Attach, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = attach(8 * MIB)
    (tmp_path / "pci-0000:00:1f.2-ata-1").symlink_to(device)
    monkeypatch.chdir(tmp_path)
    ended = carried_out("device:pci-0000:00:1f.2-ata-1", tmp_path / "out", [])
    assert ended.error is None
    assert any(Path(device).read_bytes()[-MIB:])


def test_a_file_by_a_relative_name_is_the_one_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = carried_out("file:probe,size=8MiB", tmp_path / "out", [])
    assert ended.error is None
    assert any((tmp_path / "probe").read_bytes()[-MIB:])
