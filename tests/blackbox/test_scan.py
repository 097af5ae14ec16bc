"""Legs found by their content: listing volumes, and starts that name no leg."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from hemi_harness import HEMI, Nbdkit, Sandbox, Volume, hemi, wait_until
from hemi_harness.hemi import MIB, assert_identical, check_message, hemi_fails, leg_bytes
from hemi_harness.journal import Journal
from hemi_harness.sandbox import Arg, answers, detach_loop, run, run_any

SIZE = 32 * MIB


def name_of(sandbox: Sandbox) -> str:
    """Returns a name that no other test's volume on this machine has."""
    return sandbox.dir.name


@pytest.fixture
def legs(sandbox: Sandbox) -> Path:
    """Returns a directory for legs alone."""
    directory = sandbox.path("legs")
    directory.mkdir()
    return directory


def found(*arguments: str | Path) -> dict[str, Any]:
    printed: dict[str, Any] = json.loads(hemi("inspect", "--scan", "--json", *arguments))
    return printed


def make(
    sandbox: Sandbox, legs: Path, specs: list[str] | None = None, options: tuple[str, ...] = ()
) -> Volume:
    """Returns a closed volume that will be served by a scan of a directory."""
    paths = [f"{legs}/leg0.img", f"{legs}/leg1.img"] if specs is None else specs
    for path in paths:
        if path.startswith("/"):
            sandbox.file(str(Path(path).relative_to(sandbox.dir)), leg_bytes(SIZE))
    volume = Volume(sandbox, list(paths), options=options)
    volume.create(SIZE, "--name", name_of(sandbox))
    # The legs learn each other's places when they are served.
    volume.start()
    volume.wait_converged()
    volume.stop()
    scanned(volume, legs)
    return volume


def scanned(volume: Volume, directory: Path) -> None:
    config = volume.sandbox.path("scan.toml")
    name = json.dumps(name_of(volume.sandbox))
    config.write_text(
        f"scan = {{ volume = {name}, in = [{json.dumps(str(directory))}] }}\n"
        f"control = {json.dumps(str(volume.control))}\n"
        f"exports = [{{ nbd = {json.dumps(f'unix:{volume.socket}')} }}]\n"
    )
    volume.serve_with(config)


def refused(volume: Volume, code: int, *says: str | Path) -> str:
    process = volume.sandbox.start(*volume.serve_argv(), name="hemi-refused")
    ended = process.wait(60)
    assert ended == code, f"exited {ended}, expected {code}:\n{process.output()}"
    check_message(process.output(), says)
    return process.output()


def test_a_volume_is_served_by_its_name(sandbox: Sandbox, legs: Path) -> None:
    volume = make(sandbox, legs)
    (legs / "notes.txt").write_text("no leg")
    name = name_of(sandbox)
    seen = [leg for leg in found("--scan-in", legs)["legs"] if leg["name"] == name]
    assert [leg["spec"] for leg in seen] == volume.legs
    text = hemi("inspect", "--scan", "--scan-in", legs)
    assert f'volume "{name}" {seen[0]["volume"]}  32MiB, closed\n' in text
    assert f"  leg 0  {volume.legs[0]}\n  leg 1  {volume.legs[1]}\n" in text
    # Neither the places nor the names of the legs matter.
    Path(volume.legs[0]).rename(legs / "other.img")
    volume.legs[0] = f"{legs}/other.img"
    volume.start()
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    assert journal.run(200)
    assert [leg["path"] for leg in volume.status()["legs"]] == volume.legs
    assert f'"{name}" {seen[0]["volume"]}  32MiB, served' in hemi(
        "inspect", "--scan", "--scan-in", legs
    ), "legs in use are found, too"
    journal.disconnect()
    volume.kill()
    # By its id, and by flags.
    options: list[Arg] = [
        "--scan-in",
        legs,
        "--control",
        volume.control,
        "--nbd",
        f"unix:{volume.socket}",
    ]
    run(HEMI, "settle", "--scan", seen[0]["volume"], "--scan-in", legs)
    process = sandbox.start(HEMI, "serve", "--scan", seen[0]["volume"], *options, name="by-id")
    wait_until("it is served", lambda: "control socket" in process.output())
    journal.verify()
    journal.disconnect()
    assert volume.status()["name"] == name
    wait_until("every leg is whole", lambda: bool(volume.status()["converged"]))
    assert process.terminate() == 0
    assert_identical(volume.legs, SIZE)


def test_nothing_found_says_where_it_was_looked_for(sandbox: Sandbox, legs: Path) -> None:
    volume = make(sandbox, legs)
    name = name_of(sandbox)
    options = f"scan={{ volume = {json.dumps(name)}, in = [{json.dumps(str(legs))}] }}"
    config = sandbox.path("check.toml")
    config.write_text("")
    probe: list[Arg] = ["config", "check", "--probe", config, "--set", options]
    assert f'legs of "{name}" looked for' in hemi(*probe)
    Path(volume.legs[0]).rename(f"{volume.legs[0]}.away")
    hemi_fails("config", "check", config, "--set", "scan=nosuch", "--probe", says=["was found"])
    (legs / "leg0.img.away").rename(sandbox.path("away.img"))
    hemi_fails(*probe, says=["scan: leg 0", "was not found"])
    sandbox.dir.joinpath("away.img").rename(volume.legs[0])
    (legs / "damaged.img").write_bytes(damaged(Path(volume.legs[1])))
    said = hemi_fails(
        "serve", "--scan", "nosuch", "--scan-in", legs, says=['"nosuch" was found', "--scan-in"]
    )
    check_message(said, [volume.legs[0], volume.legs[1], f'volume "{name}"', "damaged.img: "])
    # The drives may still appear, so a service manager tries again.
    code, _, _ = run_any(HEMI, "serve", "--scan", "nosuch", "--scan-in", legs)
    assert code == 1
    hemi_fails("serve", "--scan", "nosuch", "--scan-in", legs / "nosuch", says=["was found"])
    hemi_fails("serve", "--scan", "", says=["empty"])
    hemi_fails("serve", "--scan-in", legs, says=["--scan"])


def damaged(leg: Path) -> bytes:
    """Returns the beginning of a leg whose superblocks cannot be used."""
    head = bytearray(leg.read_bytes()[: 4 * MIB])
    for slot in (0, 64 << 10):
        for sector in range(slot, slot + 4096, 512):
            head[sector + 300] ^= 0xFF
    return bytes(head)


def test_two_volumes_of_one_name_are_refused(sandbox: Sandbox, legs: Path) -> None:
    volume = make(sandbox, legs)
    other = Volume(sandbox, [sandbox.file(f"legs/x{i}.img", leg_bytes(SIZE)) for i in range(2)])
    other.create(SIZE, "--name", name_of(sandbox))
    ids = {leg["volume"] for leg in found("--scan-in", legs)["legs"]}
    refused(volume, 3, "two volumes", *ids, "by its id")
    for leg in other.legs:
        Path(leg).unlink()
    volume.start()


def test_a_copy_of_a_leg_is_refused(sandbox: Sandbox, legs: Path) -> None:
    volume = make(sandbox, legs)
    shutil.copyfile(volume.legs[1], legs / "copy.img")
    refused(volume, 3, "leg 1", "is there twice", volume.legs[1], legs / "copy.img")
    # It may be one disk on two paths, which the system will soon combine into one device.
    volume.options = ["--wait-for-legs", "1h"]
    volume.launch()
    wait_until("hemi waits", lambda: "is there twice" in volume.process.output())
    (legs / "copy.img").unlink()
    volume.wait_serving()
    volume.stop()
    # Another name of the same file is no second leg.
    (legs / "name.img").hardlink_to(volume.legs[1])
    (legs / "link.img").symlink_to(volume.legs[0])
    volume.start()


def loop_device(sandbox: Sandbox, file: str | Path) -> str:
    """Returns a loop device on a file, which exists as long as the sandbox."""
    code, device, error = run_any("losetup", "--find", "--show", file)
    if code != 0:
        pytest.skip(f"no loop device: {error}")
    device = device.strip()
    sandbox.defer(lambda: detach_loop(Path(device), Path(file)))
    return device


def test_a_device_and_the_file_behind_it_are_one_leg(sandbox: Sandbox, legs: Path) -> None:
    volume = make(sandbox, legs)
    device = loop_device(sandbox, volume.legs[0])
    volume.start()
    legs_now = {leg["path"] for leg in volume.status()["legs"]}
    # Only the device on top may be mounted by somebody else.
    assert legs_now == {device, volume.legs[1]}
    properties = hemi("inspect", "--udev", device).splitlines()
    assert {"ID_FS_TYPE=hemi_leg", "ID_FS_USAGE=raid", "HEMI_LEG=0"} < set(properties)
    assert f"ID_FS_LABEL={name_of(sandbox)}" in properties
    assert hemi("inspect", "--udev", "/dev/null") == ""
    volume.stop()


def test_udev_knows_an_adopted_disk_and_what_is_on_it_stays(sandbox: Sandbox) -> None:
    disk, other = sandbox.file("disk.img", 64 * MIB), sandbox.path("other.img")
    run("mkfs.ext4", "-q", "-F", disk, "32M")
    device = loop_device(sandbox, disk)
    assert hemi("inspect", "--udev", f"end:{device}") == ""
    hemi("create", "--adopt", device, "--leg", other, "--name", name_of(sandbox))
    volume = json.loads(hemi("inspect", "--json", f"end:{device}"))["legs"][0]["superblock"]
    assert hemi("inspect", "--udev", f"end:{device}").splitlines() == [
        f"HEMI_ADOPTED={name_of(sandbox)}",
        f"HEMI_VOLUME_ID={volume['volume']}",
        "HEMI_LEG=0",
    ]
    # Nothing may hide the file system.
    assert "ID_FS" not in hemi("inspect", "--udev", f"end:{device}")
    # The other leg has its metadata in the usual place, and is not adopted.
    assert hemi("inspect", "--udev", f"end:{loop_device(sandbox, other)}") == ""
    assert hemi("inspect", "--udev", "end:/dev/null") == ""
    hemi_fails("inspect", "--udev", device, "end:x", says=["--udev takes one device"])


def test_a_missing_leg_that_is_in_is_waited_for_and_named(sandbox: Sandbox, legs: Path) -> None:
    volume = make(sandbox, legs)
    away = sandbox.path("away.img")
    Path(volume.legs[1]).rename(away)
    says = (f"leg 1 (last seen as {volume.legs[1]}) is missing", "not found on this machine")
    refused(volume, 3, *says, "hemi promote")
    text = hemi("inspect", "--scan", "--scan-in", legs)
    assert f"leg 1  not found; last seen as {volume.legs[1]}" in text
    volume.options = ["--wait-for-legs", "1h"]
    volume.launch()
    wait_until("hemi waits", lambda: "waiting for absent legs" in volume.process.output())
    away.rename(volume.legs[1])
    volume.wait_serving()
    wait_until("it is healthy", lambda: volume.status()["health"] == "healthy")
    volume.stop()
    # All of them are refused.
    for leg in volume.legs:
        Path(leg).rename(f"{sandbox.dir}/{Path(leg).name}")
    volume.launch()
    wait_until("hemi waits", lambda: "waiting for absent legs" in volume.process.output())
    for leg in volume.legs:
        Path(f"{sandbox.dir}/{Path(leg).name}").rename(leg)
    volume.wait_serving()


def test_a_missing_leg_that_is_out_does_not_keep_the_volume_down(
    sandbox: Sandbox, legs: Path
) -> None:
    volume = make(sandbox, legs)
    volume.options = ["--allow-inject", "--set", "engine.out_after=10s"]
    volume.start()
    volume.inject(1, "--freeze", "1h")
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    assert journal.run(200)
    volume.wait_leg_state(1, "out")
    journal.disconnect()
    volume.kill()
    away = sandbox.path("away.img")
    Path(volume.legs[1]).rename(away)
    begun = time.monotonic()
    volume.options += ["--wait-for-legs", "1h"]
    volume.start()
    assert time.monotonic() - begun < 60, "it is served without the wait for a leg that is needed"
    journal.verify()
    states = {leg["leg"]: leg for leg in volume.status()["legs"]}
    assert states[1]["state"] in ("out", "gone")
    assert states[1]["path"] == volume.legs[1], "status still says which disk it was"
    away.rename(volume.legs[1])
    journal.disconnect()
    volume.stop()
    # The next start finds it and drains to it.
    volume.start()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_a_leg_that_was_detached_is_left_out(sandbox: Sandbox, legs: Path) -> None:
    volume = make(sandbox, legs)
    volume.start()
    volume.command("leg", "detach", 1)
    volume.stop()
    volume.start()
    assert "left out" in volume.process.output()
    assert volume.status()["legs"][0]["path"] == volume.legs[0]
    assert "leg 1, detached" in hemi("inspect", "--scan", "--scan-in", legs)
    volume.stop()
    # By itself it is no volume.
    Path(volume.legs[0]).rename(sandbox.path("away.img"))
    refused(volume, 3, "was detached")


def test_a_remote_leg_is_known_by_the_local_one(sandbox: Sandbox, legs: Path) -> None:
    server = Nbdkit(sandbox, sandbox.file("remote.img", leg_bytes(SIZE)))
    volume = make(sandbox, legs, [f"{legs}/leg0.img", server.uri])
    volume.start()
    assert [leg["path"] for leg in volume.status()["legs"]] == volume.legs
    volume.stop()
    server.kill()
    refused(volume, 3, f"last seen as {server.uri}", "is absent")
    # Something else answers there.
    argv = ("nbdkit", "--foreground", "--unix", server.socket, "memory", leg_bytes(SIZE))
    other = sandbox.start(*argv, name="other")
    wait_until("it answers", lambda: answers(server.socket))
    refused(volume, 3, "something else is there now")
    other.kill()
    server.start()
    volume.start()
    volume.stop()


def test_a_stripe_is_found_by_its_devices(sandbox: Sandbox, legs: Path) -> None:
    parts = [sandbox.file(f"legs/part{i}.img", leg_bytes(SIZE)) for i in range(2)]
    stripe = f"stripe:{parts[0]},{parts[1]},chunk=128KiB"
    volume = make(sandbox, legs, [f"{legs}/leg0.img", stripe])
    # The order of the names is not that of the stripe.
    parts[0].rename(legs / "z.img")
    volume.start()
    paths = [leg["path"] for leg in volume.status()["legs"]]
    assert paths[1] == f"stripe:{legs}/z.img,{parts[1]},chunk=128KiB"
    volume.stop()
    (legs / "z.img").rename(sandbox.path("z.img"))
    refused(volume, 3, "leg 1", f"{parts[1]}: belongs to a stripe of 2 devices", "places 1 were")


@pytest.mark.long
def test_a_device_that_does_not_answer_holds_up_nobody_for_ever(
    sandbox: Sandbox, legs: Path
) -> None:
    volume = make(sandbox, legs)
    volume.options = ["--allow-inject", "--set", "engine.out_after=10s"]
    volume.start()
    volume.inject(1, "--freeze", "1h")
    with volume.client() as client:
        client.write(0, b"x" * 4096)
    volume.wait_leg_state(1, "out")
    volume.kill()
    server = Nbdkit(sandbox, Path(volume.legs[1]))
    mounted = sandbox.file("legs/hangs.img", 0)
    fuse = sandbox.start("nbdfuse", mounted, "--unix", server.socket, name="nbdfuse")
    try:
        wait_until("nbdfuse serves", lambda: mounted.stat().st_size > 0)
        # The leg exists only on that device.
        Path(volume.legs[1]).rename(sandbox.path("away.img"))
        server.pause()
        begun = time.monotonic()
        text = hemi("inspect", "--scan", "--scan-in", legs)
        took = time.monotonic() - begun
        assert f"{mounted}: did not answer within 15 s" in text
        assert 14 < took < 60, took
        volume.start()
        assert volume.status()["legs"][1]["state"] in ("out", "gone")
        volume.stop()
    finally:
        server.kill()
        run_any("fusermount3", "-u", "-z", mounted)
        fuse.kill()


def test_a_disk_that_was_adopted_is_found_by_its_end(sandbox: Sandbox, legs: Path) -> None:
    disk = sandbox.file("legs/disk.img", SIZE + 8 * MIB)
    run("mkfs.ext4", "-q", "-O", "^has_journal", disk, f"{SIZE >> 10}K")
    volume = Volume(sandbox, [f"end:{disk}", legs / "copy.img"])
    name = name_of(sandbox)
    hemi("create", "--adopt", disk, "--leg", volume.legs[1], "--name", name)
    seen = [leg for leg in found("--scan-in", legs)["legs"] if leg["name"] == name]
    assert {leg["spec"] for leg in seen} == {str(leg) for leg in volume.legs}
    scanned(volume, legs)
    volume.start()
    volume.wait_converged()
    assert [leg["path"] for leg in volume.status()["legs"]] == [str(leg) for leg in volume.legs]
