"""A volume that is created with one leg, and gets the other one later."""

from __future__ import annotations

from pathlib import Path

from hemi_harness import HEMI, Sandbox, Volume, wait_until
from hemi_harness.hemi import (
    MIB,
    assert_identical,
    check_message,
    data_offset,
    hemi,
    hemi_fails,
    leg_bytes,
)
from hemi_harness.journal import Journal
from hemi_harness.sandbox import run, run_fails

SIZE = 64 * MIB


def one_leg(sandbox: Sandbox) -> tuple[Volume, Path]:
    """Creates a volume of one leg. Returns it with the disk that is to be the other."""
    first, second = (sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2))
    volume = Volume(sandbox, [first])
    said = volume.create(SIZE, "--leg", "missing")
    assert "the second leg is missing" in said and "hemi leg add LEG" in said, said
    assert not Path("missing").exists(), "the word names no file"
    return volume, second


def degraded(volume: Volume) -> bool:
    """Returns true if health says that one leg alone holds everything, and names the way out."""
    status = volume.status()
    return (
        status["health"] == "degraded"
        and status["one_copy_bytes"] == SIZE
        and any(
            risk["condition"] == "sole-leg"
            and risk["promise"] == "P1"
            and "hemi leg add" in risk["advice"]
            for risk in status["risks"]
        )
    )


def test_the_missing_leg_is_added_and_filled(sandbox: Sandbox) -> None:
    volume, second = one_leg(sandbox)
    volume.start()
    wait_until("one leg is known to be alone", lambda: degraded(volume))
    journal = Journal(volume.uri, blocks=2048)
    assert journal.run(1000)
    # Words that would be right for a leg that is out name the right one.
    for wrong in (("replace", 1, second), ("attach", second)):
        _, printed = run_fails(HEMI, "leg", *map(str, wrong), "--control", volume.control)
        check_message(printed, ["hemi leg add"])
    assert journal.run(1000, at={300: lambda: volume.command("leg", "add", second)})
    volume.wait_converged()
    # The status is told from time to time, and a leg may be silent for a moment.
    wait_until("all is well", lambda: volume.status()["health"] == "healthy")
    journal.verify()
    journal.disconnect()
    volume.stop()
    volume.legs.append(second)
    assert_identical(volume.legs, SIZE)
    volume.start()
    journal.verify()


def test_kills_before_and_after_the_leg_is_added_lose_nothing(sandbox: Sandbox) -> None:
    volume, second = one_leg(sandbox)
    volume.start()
    journal = Journal(volume.uri, blocks=2048)
    assert not journal.run(100_000, at={1000: volume.kill})
    # Nothing else is waited for, since no other leg was ever in.
    volume.start()
    wait_until("one leg is known to be alone", lambda: degraded(volume))
    journal.settle()
    volume.command("leg", "add", second)
    assert not journal.run(100_000, at={200: volume.kill})
    volume.legs.append(second)
    volume.start()
    journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_a_configuration_holds_one_leg_and_then_both(sandbox: Sandbox) -> None:
    volume, second = one_leg(sandbox)
    config = sandbox.path("home.toml")
    config.write_text(
        f'control = "{volume.control}"\n'
        f'legs = [{{ path = "{volume.legs[0]}" }}]\n'
        f'exports = [{{ nbd = "unix:{volume.socket}" }}]\n'
    )
    volume.serve_with(config)
    volume.start()
    volume.command("leg", "add", second, "--write-config")
    volume.wait_converged()
    volume.restart()
    assert [leg["state"] for leg in volume.status()["legs"]] == ["healthy", "healthy"]


def test_an_adopted_disk_waits_for_the_other(sandbox: Sandbox) -> None:
    disk = sandbox.file("disk.img", SIZE + 2 * MIB)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-J", "size=4", disk, f"{SIZE // 1024}K")
    before = disk.read_bytes()[:SIZE]
    said = hemi("create", "--adopt", disk, "--leg", "missing", "--name", "home")
    assert f"hemi serve --leg end:{disk}\n" in said and "hemi leg add" in said, said
    assert disk.read_bytes()[:SIZE] == before
    run("e2fsck", "-f", "-n", disk)

    volume = Volume(sandbox, [f"end:{disk}"])
    volume.start()
    wait_until("one leg is known to be alone", lambda: degraded(volume))
    second = sandbox.path("new.img")
    volume.command("leg", "add", second)
    volume.wait_converged()
    volume.stop()
    assert disk.read_bytes()[:SIZE] == before
    offset = data_offset(SIZE)
    assert second.read_bytes()[offset : offset + SIZE] == before


def test_one_leg_of_two_can_be_missing(sandbox: Sandbox) -> None:
    paths = [sandbox.path(f"leg{i}.img") for i in range(2)]
    create = ("create", "--size", SIZE, "--leg", "missing", "--leg")
    hemi_fails(*create, "missing", says=["2 that are missing"])
    hemi_fails(*create, paths[0], "--leg", paths[1], says=["2 other legs", "hemi leg add"])
    hemi_fails("create", "--size", SIZE, "--leg", paths[0], says=["--leg missing"])
    assert not any(path.exists() for path in paths)
    # The one that is there gets slot 0, wherever it is named.
    assert f"leg 0: {paths[0]}" in hemi(*create, paths[0])
