"""Changing the legs of a served volume, legs of all kinds, and scrub."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hemi_harness import HEMI, Nbdkit, Sandbox, Volume, run
from hemi_harness.hemi import MIB, assert_identical, check_message, data_offset, leg_bytes
from hemi_harness.journal import Journal
from hemi_harness.sandbox import run_fails

SIZE = 64 * MIB


def fails(volume: Volume, *argv: object, says: tuple[str, ...] = ()) -> str:
    _, printed = run_fails(HEMI, *map(str, argv), "--control", volume.control)
    check_message(printed, says)
    return printed


def test_a_third_leg_is_added_under_load_and_one_removed(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    journal = Journal(volume.uri, blocks=2048)
    new = sandbox.file("new.img", leg_bytes(SIZE))
    assert journal.run(2000, at={500: lambda: volume.command("leg", "add", new)})
    volume.wait_converged()
    assert journal.run(200)
    volume.command("leg", "detach", 0)
    assert journal.run(500)
    volume.command("leg", "remove", 0)
    assert volume.leg_state(0) == "absent"
    journal.verify()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    volume.legs = [volume.legs[1], new]
    assert_identical(volume.legs, SIZE)
    volume.start()
    journal.verify()


def test_a_dead_leg_is_replaced(sandbox: Sandbox) -> None:
    backing = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
    servers = [Nbdkit(sandbox, path) for path in backing]
    volume = Volume(sandbox, [s.uri for s in servers], options=("--set", "engine.out_after=10s"))
    volume.create(SIZE)
    volume.start()
    journal = Journal(volume.uri, blocks=1024)
    assert journal.run(500)
    servers[1].kill()
    assert journal.run(500)
    volume.wait_leg_state(1, "out")
    new = sandbox.file("new.img", leg_bytes(SIZE))
    volume.command("leg", "replace", 1, new)
    assert journal.run(500)
    volume.wait_converged()
    journal.verify()
    journal.disconnect()
    volume.stop()
    assert_identical([backing[0], new], SIZE)
    # The old leg's data is stale.
    servers[1].start()
    stale = Volume(sandbox, volume.legs)
    stale.start_fails("leg")
    volume.legs = [servers[0].uri, new]
    volume.start()
    journal.verify()


def test_what_would_lose_data_is_refused(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True)
    volume.inject(1, "--freeze", "1h")
    journal = Journal(volume.uri, blocks=256)
    assert journal.run(200)
    fails(volume, "leg", "detach", 0, says=("leg",))
    fails(volume, "leg", "remove", 0, says=("leg",))
    fails(volume, "leg", "detach", 5, says=("5",))
    used = sandbox.file("used.img", leg_bytes(SIZE))
    run("mkfs.ext4", "-q", "-F", used)
    fails(volume, "leg", "add", used, says=("used.img", "--wipe"))
    small = sandbox.loop(sandbox.file("small.img", 16 * MIB))
    fails(volume, "leg", "add", small, says=(str(small),))
    journal.verify()


def test_a_crash_while_a_new_leg_is_filled(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True)
    journal = Journal(volume.uri, blocks=2048)
    assert journal.run(1000)
    new = sandbox.file("new.img", leg_bytes(SIZE))
    volume.command("leg", "add", new)
    journal.run(100_000, at={50: volume.kill})
    volume.legs.append(new)
    volume.start()
    journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_a_stripe_is_a_leg(sandbox: Sandbox) -> None:
    members = [sandbox.file(f"member{i}.img", leg_bytes(SIZE)) for i in range(3)]
    stripe = "stripe:" + ",".join(map(str, members)) + ",chunk=64K"
    single = sandbox.file("single.img", leg_bytes(SIZE))
    volume = Volume(sandbox, [stripe, single])
    volume.create(SIZE)
    volume.start()
    journal = Journal(volume.uri, blocks=2048)
    assert not journal.run(100_000, at={1000: volume.kill})
    volume.start()
    journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    # The stripe's content, read without hemi, equals the single leg's.
    offset, chunk = data_offset(SIZE), 64 << 10
    swapped = "stripe:" + ",".join(str(members[i]) for i in (1, 0, 2)) + ",chunk=64K"
    Volume(sandbox, [swapped, single]).start_fails("member")
    assert offset % chunk == 0
    # The stripe alone serves everything.
    volume.start()
    volume.command("leg", "detach", 1)
    journal.verify()


@pytest.mark.parametrize("kind", ["file", "loop", "loop-4k", "nbd"])
def test_a_leg_of_each_kind(sandbox: Sandbox, kind: str) -> None:
    path = sandbox.file("kind.img", leg_bytes(SIZE))
    leg: str | Path = path
    if kind == "loop":
        leg = sandbox.loop(path)
    elif kind == "loop-4k":
        leg = sandbox.loop(path, "--sector-size", 4096)
    elif kind == "nbd":
        leg = Nbdkit(sandbox, path).uri
    volume = Volume(sandbox, [leg, sandbox.file("plain.img", leg_bytes(SIZE))])
    volume.create(SIZE)
    volume.start()
    with volume.client() as client:
        minimum = client.handle.get_block_size(0)
        assert minimum <= 4096
        client.write(0, b"k" * 4096)
        client.zero(MIB, MIB)
        client.trim(2 * MIB, MIB)
        client.flush()
    journal = Journal(volume.uri, blocks=2048, block_bytes=4096)
    assert not journal.run(100_000, at={800: volume.kill})
    volume.start()
    journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical([path, volume.legs[1]], SIZE)


class TestScrub:
    def test_legs_that_are_alike(self, sandbox: Sandbox) -> None:
        volume = Volume.on_files(sandbox, SIZE)
        journal = Journal(volume.uri, blocks=1024)
        assert journal.run(500)
        assert "alike" in volume.command("scrub")

    def test_a_difference_is_found_and_repaired(self, sandbox: Sandbox) -> None:
        volume = Volume.on_files(sandbox, SIZE)
        journal = Journal(volume.uri, blocks=1024)
        assert journal.run(1500)
        journal.disconnect()
        volume.wait_converged()
        volume.stop()
        with Path(volume.legs[1]).open("r+b") as f:
            f.seek(data_offset(SIZE) + 40 * MIB)
            f.write(b"rot" * 1000)
        volume.start()
        fails(volume, "scrub", says=("differ",))
        assert volume.status()["scrub"]["mismatched_bytes"] > 0
        volume.command("scrub", "--repair", "--from", "0")
        volume.wait_converged()
        volume.command("scrub")
        journal.verify()
        journal.disconnect()
        volume.stop()
        assert_identical(volume.legs, SIZE)

    def test_scrub_under_load_finds_no_difference(self, sandbox: Sandbox) -> None:
        volume = Volume.on_files(sandbox, SIZE)
        journal = Journal(volume.uri, blocks=4096)
        assert journal.run(500)
        scrub = sandbox.start(HEMI, "scrub", "--control", volume.control, name="scrub")
        while scrub.running:
            assert journal.run(200)
        assert scrub.returncode == 0, scrub.output()
        journal.verify()


def test_a_leg_that_comes_back_keeps_its_name(sandbox: Sandbox) -> None:
    files = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
    # As in a shell: from a directory, by names relative to it.
    relative = [os.path.relpath(path) for path in files]
    volume = Volume(sandbox, relative)
    volume.create(SIZE)
    volume.start()
    names = [leg["name"] for leg in volume.status()["legs"]]
    assert names == relative
    volume.wait_converged()
    volume.command("leg", "detach", 1)
    shown = run(HEMI, "inspect", files[1])
    assert f"mount -o ro,loop,offset={data_offset(SIZE)} {files[1]} DIRECTORY" in shown
    assert "they are detached" in shown
    volume.command("leg", "attach", files[1], "--wipe")
    volume.wait_converged()
    assert [leg["name"] for leg in volume.status()["legs"]] == names
    # A name of its own stays wherever the leg is. A path it has left does not.
    moved = sandbox.path("moved.img")
    volume.command("leg", "detach", 1)
    files[1].rename(moved)
    volume.command("leg", "attach", moved, "--wipe", "--name", "slow")
    volume.wait_converged()
    assert volume.status()["legs"][1]["name"] == "slow"
    volume.command("leg", "detach", 1)
    volume.command("leg", "attach", moved, "--wipe")
    assert volume.status()["legs"][1]["name"] == "slow"


def test_a_file_that_its_file_system_cannot_hold_is_refused_with_its_size(sandbox: Sandbox) -> None:
    probe = sandbox.file("probe", 0)
    try:
        os.truncate(probe, 15 << 50)
    except OSError as error:
        assert error.errno == errno.EFBIG
    else:
        pytest.skip("this file system has files of any size")
    legs = [sandbox.path(f"leg{i}.img") for i in range(2)]
    named = [part for leg in legs for part in ("--leg", str(leg))]
    _, printed = run_fails(HEMI, "create", "--size", str(15 << 50), *named)
    check_message(printed, ("leg0.img", "cannot have", "make the volume smaller"))
    assert not any(leg.exists() for leg in legs)
