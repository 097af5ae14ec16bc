"""No target that holds data or is in use is written to."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

import pytest
from fakes import FakeDriver, FakeTarget
from hemi_lab.cli import app
from hemi_lab.errors import RefusedError
from hemi_lab.targets import safety
from hemi_lab.targets.base import Hazards
from hemi_lab.targets.file import FileTarget
from typer.testing import CliRunner


def target(hazards: Hazards) -> FakeTarget:
    return FakeTarget(FakeDriver(), found=hazards)


def test_what_holds_something_has_to_be_named() -> None:
    full = target(Hazards(holds=["ext4 (filesystem)"]))
    with pytest.raises(RefusedError, match="ext4") as caught:
        safety.check(full, [])
    assert caught.value.way_out.endswith("--wipe /dev/fake")
    with pytest.raises(RefusedError):
        safety.check(full, ["/dev/other"])
    # By its path, or as it was given.
    for named in ("/dev/fake", "device:/dev/fake"):
        assert safety.check(full, [named]) == ["ext4 (filesystem)"]


def test_what_is_in_use_is_refused_whatever_is_said() -> None:
    with pytest.raises(RefusedError, match="mounted on /home"):
        safety.check(target(Hazards(in_use=["sda1 is mounted on /home"])), ["/dev/fake"])


def test_names_may_be_links(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert safety.same(str(tmp_path / "link"), str(tmp_path / "real"))
    assert not safety.same(str(tmp_path / "real"), str(tmp_path / "other"))


@pytest.mark.parametrize("offset", [0, 512, 1 << 20, (8 << 20) - 1])
def test_data_is_seen_at_the_beginning_and_at_the_end(offset: int, tmp_path: Path) -> None:
    disk = bytearray(8 << 20)
    disk[offset] = 1
    found = safety.content(lambda at, length: bytes(disk[at : at + length]), len(disk))
    assert found
    empty = bytes(8 << 20)
    assert safety.content(lambda at, length: empty[at : at + length], len(empty)) == []


def test_a_file_with_data_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_bytes(b"diary" + bytes(2 << 20))
    assert FileTarget("x", path, None).hazards().holds
    ran = CliRunner().invoke(app, ["run", "quick", "-t", str(path), "--out", str(tmp_path / "out")])
    assert isinstance(ran.exception, RefusedError)
    assert path.read_bytes()[:5] == b"diary"
    assert not (tmp_path / "out").exists()


def test_mounts_holders_and_swap_of_a_drive_and_its_partitions(tmp_path: Path) -> None:
    drive = tmp_path / "devices/sdx"
    part = drive / "sdx1"
    (part / "holders").mkdir(parents=True)
    (drive / "holders").mkdir()
    (drive / "dev").write_text("8:160\n")
    (part / "dev").write_text("8:161\n")
    (part / "partition").write_text("1\n")
    (part / "holders/md0").mkdir()
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / "dev/block/8:160").symlink_to(drive)
    assert safety.uses_of_device((8, 160), tmp_path) == ["sdx1 is held by md0"]
    assert safety.partitions_of((8, 160), tmp_path) == ["sdx1"]


def test_what_is_mounted_here_is_seen() -> None:
    line = Path("/proc/self/mountinfo").read_text().splitlines()[0].split()
    assert line[4] in safety._mounts(line[2])


def test_a_file_behind_a_loop_device_is_in_use(tmp_path: Path) -> None:
    image = tmp_path / "disk.img"
    image.write_bytes(b"")
    loop = tmp_path / "block/loop7/loop"
    loop.mkdir(parents=True)
    (loop / "backing_file").write_text(f"{image}\n")
    (tmp_path / "link.img").hardlink_to(image)
    (tmp_path / "other.img").write_bytes(b"")
    for name in ("disk.img", "link.img"):
        found = safety.uses_of_file(tmp_path / name, tmp_path)
        assert found == ["it is behind the loop device loop7"]
    assert safety.uses_of_file(tmp_path / "other.img", tmp_path) == []


def test_names_that_are_no_utf_8_hide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = (
        b"29 1 0:43 / /mnt/caf\xe9 rw - tmpfs tmpfs rw\n31 1 8:1 / /srv rw - ext4 /dev/sda1 rw\n"
    )
    (tmp_path / "mountinfo").write_bytes(mounts)
    odd = tmp_path / os.fsdecode(b"caf\xe9.img")
    odd.write_bytes(b"")
    (tmp_path / "swaps").write_bytes(b"Filename Type\n" + os.fsencode(odd) + b" file 1 0 -2\n")
    loop = tmp_path / "block/loop3/loop"
    loop.mkdir(parents=True)
    (loop / "backing_file").write_bytes(os.fsencode(odd) + b"\n")
    real = Path.read_text

    def read(path: Path, *given: str | None, **named: str | None) -> str:
        shown = {"/proc/self/mountinfo": "mountinfo", "/proc/swaps": "swaps"}.get(str(path))
        return real(tmp_path / shown if shown else path, *given, **named)

    monkeypatch.setattr(Path, "read_text", read)
    assert safety._mounts("8:1") == ["/srv"]
    assert safety._mounts("0:43") == ["/mnt/caf\N{REPLACEMENT CHARACTER}"]
    found = safety.uses_of_file(odd, tmp_path)
    assert found == ["it is behind the loop device loop3", "it is used as swap"]


@pytest.mark.parametrize("kind", ["flock", "range"])
def test_a_locked_file_is_in_use_whatever_is_said(kind: str, tmp_path: Path) -> None:
    leg = tmp_path / "leg.img"
    leg.write_bytes(bytes(1 << 20))
    with leg.open("rb+") as held:
        if kind == "flock":
            fcntl.flock(held, fcntl.LOCK_EX)
        else:
            whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(held, fcntl.F_OFD_SETLK, whole)
        with pytest.raises(RefusedError, match="it is locked"):
            safety.check(FileTarget("x", leg, None), [str(leg)])
    assert safety.uses_of_file(leg) == []


def test_dry_run_touches_nothing(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    arguments = ["run", "steady", "-t", f"file:{path},size=2MiB", "--dry-run"]
    ran = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    for said in ("iops: IOPS", "write-saturation", "destroys  nothing", "time "):
        assert said in ran.output
    assert list(tmp_path.iterdir()) == []
