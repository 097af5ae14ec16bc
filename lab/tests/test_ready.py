"""Reasons for a run to fail are found before anything is written, by a dry run and by a run."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes import FakeDriver, FakeTarget, always
from hemi_lab.cli import app
from hemi_lab.errors import LabError, ToolError, UsageError
from hemi_lab.plans.load import load, parse
from hemi_lab.ready import check, needs
from hemi_lab.runner import Order, run, short
from hemi_lab.targets.base import Needs
from hemi_lab.targets.file import FileTarget, file_system_of
from hemi_lab.targets.parse import parse as target_of
from hemi_lab.targets.safety import hemi_leg
from hemi_lab.targets.volume_faults import VolumeFaults
from test_runner import HEAD, SWEEP
from typer.testing import CliRunner

NO_PRESET = """#!/bin/sh
case "$*" in *--version*) echo hemi 0.1.0; exit;; esac
echo "error: $3: system.legs: no preset is named \\`nosuch\\`; there are: hdd-20tb" >&2
echo "hint: hemi sim presets lists drives." >&2
exit 2
"""


def program(folder: Path, text: str) -> Path:
    path = folder / "hemi"
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("dry", [True, False], ids=["dry run", "run"])
@pytest.mark.parametrize(
    ("plan", "target", "environment", "said", "way_out"),
    [
        ("quick", "sim:nosuch", {}, "sim:nosuch.*system.legs: no preset.*`nosuch`", "presets"),
        ("quick", "sim:hdd-20tb", {"HEMI": "/no/such"}, "HEMI=/no/such: there is no", "Build hemi"),
        ("freeze", "sim:hdd-20tb", {}, "sim:hdd-20tb' has no leg that can be frozen", "setup:FILE"),
        ("freeze", "file:{}/new,size=2MiB", {}, "has no leg that can be frozen", "setup:FILE"),
        (
            "quick",
            "file:{}/new,size=1GiB",
            {"HEMI_LAB_FIO": "/no/such"},
            "HEMI_LAB_FIO=/no/such: there is no such program",
            "Install fio",
        ),
        ("quick", "file:{}/new,size=500TiB", {}, "needs 500 TiB, and .* free", "smaller size"),
        ("quick", "file:{}/none/new,size=2MiB", {}, "none is no directory", "Create it first"),
    ],
)
def test_what_is_missing_is_found_before_the_first_write(
    dry: bool,
    plan: str,
    target: str,
    environment: dict[str, str],
    said: str,
    way_out: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEMI", str(program(tmp_path, NO_PRESET)))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    arguments = ["run", plan, "--target", target.format(tmp_path), "--out", str(tmp_path / "out")]
    before = sorted(tmp_path.iterdir())
    ended = CliRunner().invoke(app, [*arguments, "--dry-run"] if dry else arguments)
    assert isinstance(ended.exception, LabError), ended.output
    with pytest.raises(LabError, match=f"(?s){said}"):
        raise ended.exception
    assert way_out in ended.exception.way_out
    assert ended.exception.exit_code in (1, 2)
    assert sorted(tmp_path.iterdir()) == before


def test_a_setup_is_checked_for_room_and_for_its_legs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEMI", "/bin/true")
    file = tmp_path / "pair.toml"
    file.write_text(f'size = "400 TiB"\nfolder = "{tmp_path}"\n[[legs]]\n[[legs]]\n')
    target = target_of(f"setup:{file}")
    with pytest.raises(UsageError, match="the plan freezes leg 4") as refused:
        target.check(Needs(freezes=True, legs=frozenset([1, 4])))
    assert "0, 1" in refused.value.way_out
    with pytest.raises(UsageError, match="it needs 800 TiB"):
        target.check(Needs(freezes=True))
    gone = target_of(f"setup:{file},size=1MiB")
    file.write_text(file.read_text().replace(str(tmp_path), "/no/such"))
    gone.check(Needs())
    with pytest.raises(UsageError, match="folder = /no/such"):
        target_of(f"setup:{file},size=1MiB").check(Needs())


def test_a_trace_that_is_not_there_is_found(tmp_path: Path) -> None:
    plan = parse(
        HEAD + '[[tests]]\nname = "again"\ntitle = "Again"\nkind = "replay"\n'
        'queue_depths = [1]\ntrace = "/no/such"\n',
        "own.toml",
    )
    with pytest.raises(UsageError, match="again: trace = /no/such"):
        check(plan, FileTarget("new", tmp_path / "new", 1 << 20))


def test_plans_say_what_they_need() -> None:
    assert needs(parse(SWEEP, "own.toml")) == Needs()
    assert needs(load("freeze")[0]).freezes
    assert needs(load("freeze")[0]).timed
    assert not needs(load("quick")[0]).timed


def test_a_volume_without_injection_is_found_and_left_alone() -> None:
    class Volume:
        def __init__(self, said: str) -> None:
            self.said = said
            self.asked: list[tuple[str, ...]] = []

        def command(self, *arguments: str) -> str:
            self.asked.append(arguments)
            raise ToolError(["hemi", *arguments], self.said)

    refusing = Volume("faults may not be injected into this volume\nServe it with --allow-inject")
    with pytest.raises(LabError, match="no leg can be frozen"):
        VolumeFaults(refusing).check()  # type: ignore[arg-type]
    assert refusing.asked[0][:3] == ("inject", "--leg", "255"), "no leg there is"
    VolumeFaults(Volume("there is no leg 255")).check()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sim:nvme-consumer", "sim-nvme-consumer"),
        ("/dev/disk/by-id/nvme-x", "dev-disk-by-id-nvme-x"),
        (
            "setup:lab/setups/two-legs.toml,policy=all,size=64MiB",
            "setup-lab-setups-two-legs.toml-policy",
        ),
        ("../../etc/x y", "etc-x-y"),
        ("nbd+unix:///?socket=/run/" + "a" * 60, "nbd-unix-socket-run"),
        ("a" * 60 + " b", "a" * 60),
        ("äöü", "unnamed"),
    ],
)
def test_folders_are_named_from_the_beginning(text: str, name: str) -> None:
    assert short(text) == name


def test_a_runs_folder_begins_with_plan_and_target(tmp_path: Path) -> None:
    target = FakeTarget(FakeDriver(always(1000.0)))
    ended = run(Order(parse(SWEEP, "own.toml"), SWEEP, target, tmp_path), lambda step, found: None)
    assert ended.folder.name == f"own-fake-{ended.result.id}"


def test_the_file_system_is_named_as_the_kernel_mounts_it() -> None:
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    mounted = {line.split()[1]: line.split()[2] for line in mounts}
    for folder, kind in (("/proc", "proc"), ("/", mounted["/"])):
        assert file_system_of(Path(folder)) == kind


def test_a_leg_of_a_volume_is_told_from_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "leg.img"
    path.write_bytes(b"HEMIVOL\0" + bytes(2 << 20))
    monkeypatch.setenv("HEMI", "/no/such")
    assert hemi_leg(str(path)) == ["a leg of a hemi volume"]
    path.write_bytes(b"data")
    assert hemi_leg(str(path)) == []


@pytest.mark.skipif("HEMI" not in os.environ, reason="HEMI names no hemi binary")
def test_a_leg_is_told_with_its_volume(tmp_path: Path) -> None:
    legs = [str(tmp_path / name) for name in ("a.img", "b.img")]
    named = [part for leg in legs for part in ("--leg", leg)]
    hemi = os.environ["HEMI"]
    subprocess.run([hemi, "create", "--size", "4MiB", "--name", "t", *named], check=True)
    target = target_of(f"file:{legs[1]}")
    assert target.hazards().holds == ["leg 1 of volume t"]


LARGE = (
    HEAD
    + """
[[tests]]
name = "large"
title = "Large"
kind = "sweep"
load = { read_percent = 0, sizes = "1 MiB", pattern = "sequential" }
points = [[1, 1], [4, 1]]
time = "24 h"
"""
)


def test_a_load_that_does_not_fit_in_the_target_is_found(tmp_path: Path) -> None:
    plan = parse(LARGE, "own.toml")
    # Each of four sequential threads needs a stretch of its own.
    with pytest.raises(UsageError, match="large: 1 MiB sequential write.*needs 4 MiB") as found:
        check(plan, FileTarget("new", tmp_path / "new", 3 << 20), tmp_path)
    assert "larger target" in found.value.way_out
    check(plan, FileTarget("new", tmp_path / "new", 4 << 20), tmp_path)
    narrow = parse(LARGE.replace('"sequential"', '"random", span_percent = 5'), "own.toml")
    with pytest.raises(UsageError, match="the target has 819"):
        check(narrow, FileTarget("new", tmp_path / "new", 16 << 20), tmp_path)


def test_a_place_that_cannot_take_the_results_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = parse(LARGE, "own.toml")
    target = FileTarget("new", tmp_path / "new", 4 << 20)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--out .*/file/x: .*/file is no directory"):
        check(plan, target, tmp_path / "file" / "x")
    free = SimpleNamespace(total=1 << 30, used=0, free=32 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda folder: free)
    # Two points and the first again, a day each.
    with pytest.raises(LabError) as found:
        check(plan, target, tmp_path / "new" / "deeper")
    logs, results = found.value.what.splitlines()
    assert "logs of the longest step may need 1.318 GiB, and 32 MiB are free" in logs
    assert "results may need" in results
    assert found.value.way_out.count("Make room") == 2
    # A minute fits.
    check(plan, target, tmp_path, time_scale=1 / 1440)


def test_every_reason_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEMI_LAB_FIO", "/no/such")
    plan = parse(
        HEAD + '[[tests]]\nname = "again"\ntitle = "Again"\nkind = "replay"\n'
        'queue_depths = [1]\ntrace = "/no/trace"\n',
        "own.toml",
    )
    with pytest.raises(LabError) as found:
        check(plan, FileTarget("new", tmp_path / "new", 4 << 20), Path("/dev/null/x"))
    said = found.value.what.splitlines()
    assert ["/no/trace" in said[0], "/no/such" in said[1], "/dev/null" in said[2]] == [True] * 3
    assert found.value.exit_code == 2
