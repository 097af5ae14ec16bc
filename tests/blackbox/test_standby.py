"""A standby takes the place of a leg that is out, and the leg that returns becomes the standby."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hemi_harness import HEMI, Nbdkit, Sandbox, Volume, hemi, hemi_fails, run, wait_until
from hemi_harness.hemi import MIB, assert_identical, leg_bytes
from hemi_harness.journal import Journal
from hemi_harness.sandbox import run_fails

SIZE = 64 * MIB
# Legs are marked out, and standbys take their places, within this time.
NIGHT = 60.0


class Night:
    """A volume on a file and a drive that can die, with a standby."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.backing = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
        self.drive = Nbdkit(sandbox, self.backing[1])
        legs: list[str | Path] = [self.backing[0], self.drive.uri]
        self.volume = Volume(sandbox, legs, options=("--set", "engine.out_after=10s"))
        self.volume.create(SIZE)
        self.volume.start()
        self.standby = sandbox.file("standby.img", leg_bytes(SIZE))
        self.volume.command("standby", "add", self.standby)

    def ready(self) -> list[str]:
        return [one["path"] for one in self.volume.status()["standbys"] if one["ready"]]

    def events(self) -> list[dict[str, Any]]:
        lines = self.volume.command("events", "--json").splitlines()
        return [json.loads(line) for line in lines]

    def wait_event(self, kind: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            return next((event for event in self.events() if event["kind"] == kind), None)

        wait_until(f"there is an event {kind}", lambda: found() is not None, NIGHT)
        event = found()
        assert event is not None
        return event

    def wait_taken(self) -> None:
        def is_taken() -> bool:
            legs = self.volume.status()["legs"]
            return any(leg["leg"] == 1 and leg["path"] == str(self.standby) for leg in legs)

        wait_until("the standby has the slot", is_taken, NIGHT)
        self.volume.wait_converged()


def test_a_standby_takes_the_place_of_a_dead_drive_and_the_drive_becomes_the_standby(
    sandbox: Sandbox,
) -> None:
    night = Night(sandbox)
    volume = night.volume
    assert night.ready() == [str(night.standby)]
    assert "ready to take the place of a leg" in volume.command("status")
    journal = Journal(volume.uri, blocks=1024)
    assert journal.run(300)
    night.drive.kill()
    assert journal.run(300)
    night.wait_taken()
    took = night.wait_event("standby-took")
    assert took["severity"] == "warning"
    assert f"The standby {night.standby} takes the place of" in took["text"]
    assert (took["leg"], took["values"]["out"]) == (1, 1)
    assert volume.status()["health"] == "healthy"
    assert volume.status()["standbys"] == []
    assert journal.run(300)
    # The dead drive is repaired: it has the old superblock, and becomes the standby.
    night.drive.start()
    returned = night.wait_event("standby-returned")
    assert returned["values"] == {"standby": night.drive.uri, "was": 1}
    wait_until("it is a standby", lambda: night.ready() == [night.drive.uri], NIGHT)
    assert len(volume.status()["legs"]) == 2
    journal.verify()
    journal.disconnect()
    # The configuration still lists what it listed, in any order: superblocks tell what is what.
    volume.legs.append(night.standby)
    volume.restart()
    wait_until("it is a standby again", lambda: night.ready() == [night.drive.uri], NIGHT)
    legs = {leg["path"] for leg in volume.status()["legs"]}
    assert legs == {str(night.backing[0]), str(night.standby)}
    volume.wait_converged()
    volume.stop()
    assert_identical([night.backing[0], night.standby], SIZE)


def test_a_drive_that_returns_while_nobody_serves_becomes_the_standby(sandbox: Sandbox) -> None:
    night = Night(sandbox)
    volume = night.volume
    volume.legs.append(night.standby)
    night.drive.kill()
    journal = Journal(volume.uri, blocks=256)
    assert journal.run(100)
    night.wait_taken()
    journal.disconnect()
    volume.kill()
    night.drive.start()
    volume.start()
    wait_until("it is a standby", lambda: night.ready() == [night.drive.uri], NIGHT)
    journal.verify()


def test_a_start_after_a_kill_during_the_fill_goes_on_with_it(sandbox: Sandbox) -> None:
    night = Night(sandbox)
    volume = night.volume
    volume.legs.append(night.standby)
    with volume.client() as client:
        client.write(0, b"x" * MIB)
        client.flush()
    night.drive.kill()
    night.wait_event("standby-took")
    volume.kill()
    volume.start()
    night.wait_taken()
    assert {leg["leg"] for leg in volume.status()["legs"]} == {0, 1}


def test_a_standby_is_what_it_is_to_every_command(sandbox: Sandbox) -> None:
    night = Night(sandbox)
    standby = night.standby
    says = ("in use",)
    hemi_fails("create", "--size", "16M", "--leg", standby, "--leg", "x.img", says=says)
    night.volume.stop()
    hemi_fails(
        "create",
        *("--size", "16M", "--leg", standby, "--leg", sandbox.path("x.img")),
        says=("standby of the hemi volume",),
    )
    _, printed = run_fails(HEMI, "serve", "--leg", standby)
    assert "it is a standby of a volume, and no leg of it" in printed, printed
    assert "standby      of volume" in hemi("inspect", standby)
    found = hemi("inspect", "--scan", "--scan-in", standby.parent)
    assert f"standby  {standby}, of volume" in found, found


def test_a_standby_is_removed_and_the_drive_is_free(sandbox: Sandbox) -> None:
    night = Night(sandbox)
    volume = night.volume
    _, printed = run_fails(HEMI, "standby", "add", night.standby, "--control", volume.control)
    assert "is a standby of this volume already" in printed
    _, printed = run_fails(HEMI, "standby", "remove", "nosuch", "--control", volume.control)
    assert 'no standby that is ready is called "nosuch"' in printed
    assert "standby removed" in volume.command("standby", "remove", night.standby)
    assert volume.status()["standbys"] == []
    run("flock", "--nonblock", night.standby, "true")
    assert night.standby.read_bytes()[:4096] == bytes(4096)


def test_a_drive_that_answers_and_fails_its_writes_leaves_its_slot_to_nobody(
    sandbox: Sandbox,
) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=("--set", "engine.out_after=10s"))
    standby = sandbox.file("standby.img", leg_bytes(SIZE))
    volume.command("standby", "add", standby)
    volume.inject(1, "--error", "write")
    journal = Journal(volume.uri, blocks=256)
    assert journal.run(100)
    volume.wait_leg_state(2, "healthy", timeout=2 * NIGHT)
    volume.wait_leg_state(1, "out")
    events = [json.loads(line) for line in volume.command("events", "--json").splitlines()]
    took = next(event for event in events if event["kind"] == "standby-took")
    assert "which is out and cannot be let go, as leg 2" in took["text"]
    journal.verify()
    # A drive that recovers is a leg again, and nothing is lost.
    volume.inject(1, "--clear")
    volume.wait_converged()
    assert {leg["leg"] for leg in volume.status()["legs"]} == {0, 1, 2}
    journal.verify()


def test_a_drive_that_cannot_be_a_standby_is_refused(sandbox: Sandbox) -> None:
    night = Night(sandbox)
    volume = night.volume
    small = sandbox.file("small.img", 8 * MIB)
    _, printed = run_fails(HEMI, "standby", "add", small, "--control", volume.control)
    assert "small.img" in printed and "needs" in printed, printed
    # It was foreign content, which stays as it is.
    full = sandbox.path("full.img")
    full.write_bytes(b"data" * (leg_bytes(SIZE) // 4))
    _, printed = run_fails(HEMI, "standby", "add", full, "--control", volume.control)
    assert "not empty" in printed, printed
    assert full.read_bytes()[:4] == b"data"
