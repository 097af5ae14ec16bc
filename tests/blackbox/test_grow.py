"""`hemi grow`: a volume takes up the room that its legs have gained."""

from __future__ import annotations

import os
import random
from pathlib import Path

from hemi_harness import Sandbox, Volume, hemi, hemi_fails
from hemi_harness.hemi import MIB, assert_identical, data_offset

SIZE = 8 * MIB
LARGER = 24 * MIB


def lengthen(volume: Volume, bytes_: int = LARGER, *, zeros: bool = True) -> None:
    """Extends the leg files to fit a volume of this size."""
    for number, leg in enumerate(volume.legs):
        path = Path(leg)
        held = path.stat().st_size
        os.truncate(path, data_offset(bytes_) + bytes_)
        if not zeros:
            # Unwritten parts of disks hold data, and not the same on each.
            with path.open("r+b") as file:
                file.seek(min(held, data_offset(SIZE) + SIZE))
                file.write(random.Random(number).randbytes(bytes_ - SIZE))


def grow(volume: Volume, *options: str) -> str:
    return volume.command("grow", *options)


def scrubbed(volume: Volume) -> None:
    volume.wait_converged()
    assert "alike" in volume.command("scrub")


def on_tight_files(sandbox: Sandbox) -> Volume:
    """Creates a volume that fills its legs."""
    paths: list[str | Path] = [
        sandbox.file(f"leg{number}.img", data_offset(SIZE) + SIZE) for number in range(2)
    ]
    volume = Volume(sandbox, paths)
    volume.create(SIZE)
    return volume


def test_a_served_volume_grows_under_its_clients(sandbox: Sandbox) -> None:
    volume = on_tight_files(sandbox)
    volume.start()
    data = random.Random(1).randbytes(MIB)
    with volume.client() as client:
        client.write(SIZE - MIB, data)
        lengthen(volume)
        assert "has grown from 8MiB to 24MiB" in grow(volume)
        # The client has not noticed, and knows the old size.
        assert client.read(SIZE - MIB, MIB) == data
        client.write(0, data)
    with volume.client() as client:
        assert client.size() == LARGER
        assert client.read(SIZE, LARGER - SIZE) == bytes(LARGER - SIZE)
        client.write(LARGER - MIB, data)
        assert client.read(LARGER - MIB, MIB) == data
    scrubbed(volume)
    volume.stop()
    assert_identical(volume.legs, LARGER)
    # Files that had holes there still have them.
    assert all(Path(leg).stat().st_blocks * 512 < 8 * MIB for leg in volume.legs)


def test_what_the_legs_held_in_the_new_room_becomes_alike(sandbox: Sandbox) -> None:
    volume = on_tight_files(sandbox)
    volume.start()
    lengthen(volume, zeros=False)
    said = grow(volume, "--size", str(20 * MIB + 1))
    assert "to 20MiB (20971521 rounded down to a multiple of 4096 bytes)" in said
    with volume.client() as client:
        first = client.read(SIZE, 12 * MIB)
    scrubbed(volume)
    with volume.client() as client:
        assert client.read(SIZE, 12 * MIB) == first
    volume.stop()
    assert_identical(volume.legs, 20 * MIB)


def test_a_volume_that_is_not_served_grows(sandbox: Sandbox) -> None:
    volume = on_tight_files(sandbox)
    lengthen(volume)
    said = hemi("grow", *volume.leg_options())
    assert "has grown from 8MiB to 24MiB" in said
    volume.start()
    with volume.client() as client:
        assert client.size() == LARGER
    scrubbed(volume)


def test_what_cannot_be_is_refused_and_changes_nothing(sandbox: Sandbox) -> None:
    volume = on_tight_files(sandbox)
    volume.start()

    def refused(*options: str, says: list[str]) -> None:
        named = ("--control", str(volume.control), *options)
        hemi_fails("grow", *named, says=[*says, "served as before"])
        assert volume.status()["size_bytes"] == SIZE

    refused(says=["leg0.img", "has no room for more than the volume's 8388608 bytes"])
    refused("--size", "16MiB", says=["leg0.img", "needs 18874368", "grow the leg's device"])
    lengthen(volume)
    refused("--size", "4MiB", says=["does not shrink"])
    refused("--size", str(SIZE + 1), says=["does not shrink"])
    refused("--size", "1TiB", says=["can grow to"])
    hemi_fails("grow", "--size", "much", says=["much"])
    # Only one of its legs has grown.
    os.truncate(volume.legs[1], data_offset(SIZE) + SIZE)
    refused(says=["leg1.img", "no room"])
    assert volume.status()["taken_over"] is None, "nothing was handed over"
    events = volume.command("events")
    assert "Asked to grow to 4194304 bytes: refused, because" in events, events
    assert "bytes: done" not in events and "allow: done" not in events, events
    hemi_fails("grow", *volume.leg_options(), says=["in use"])
    volume.stop()
    lengthen(volume)
    hemi_fails("grow", "--leg", volume.legs[0], says=["leg 1"])
    volume.start()
    with volume.client() as client:
        client.write(0, b"x" * 4096)
    volume.kill()
    hemi_fails("grow", *volume.leg_options(), says=["was not closed"])
