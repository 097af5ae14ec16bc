"""Starts while a leg is absent: served without one that is out, refused without one that is in."""

from __future__ import annotations

from pathlib import Path

import pytest
from hemi_harness import HEMI, Nbdkit, Sandbox, Volume, hemi, wait_until
from hemi_harness.hemi import MIB, assert_identical, check_message, leg_bytes
from hemi_harness.journal import Journal
from hemi_harness.sandbox import run_fails

SIZE = 32 * MIB


def with_a_dead_leg(sandbox: Sandbox) -> tuple[Volume, Journal, Path]:
    """Returns a killed volume with acknowledged writes whose leg 1 is durably out and gone."""
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=("--set", "engine.out_after=10s"))
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    assert journal.run(200)
    volume.inject(1, "--freeze", "1h")
    assert journal.run(200)
    volume.wait_leg_state(1, "out")
    assert journal.run(200)
    # Writes given to the frozen drive may still land on it, so its slot is not free yet.
    new = sandbox.file("early.img", leg_bytes(SIZE))
    _, printed = run_fails(HEMI, "leg", "replace", "1", new, "--control", volume.control)
    check_message(printed, ["still in flight", "hemi leg add"])
    journal.disconnect()
    volume.kill()
    dead = Path(volume.legs[1])
    away = sandbox.path("dead.img")
    dead.rename(away)
    return volume, journal, away


def refused(volume: Volume, *says: str | Path) -> str:
    """Serves, which must end with status 3 and a message that contains all of `says`."""
    process = volume.sandbox.start(*volume.serve_argv(), name="hemi-refused")
    code = process.wait(60)
    assert code == 3, f"exited {code}, expected 3:\n{process.output()}"
    check_message(process.output(), says)
    return process.output()


def test_a_dead_leg_that_is_out_does_not_keep_the_volume_down(sandbox: Sandbox) -> None:
    volume, journal, away = with_a_dead_leg(sandbox)
    dead = Path(volume.legs[1])
    # The configuration still names it, as after a reboot.
    volume.start()
    journal.verify()
    assert journal.run(200)
    legs = {leg["leg"]: leg for leg in volume.status()["legs"]}
    assert legs[1]["state"] in ("out", "gone")
    assert legs[1]["path"] == str(dead), "status still says which disk it was"
    assert "is absent" in volume.process.output()
    # It comes back, is attached, and is drained to.
    away.rename(dead)
    volume.command("leg", "attach", dead)
    volume.wait_converged()
    journal.verify()
    journal.disconnect()
    volume.stop()
    assert_identical(volume.legs, SIZE)


@pytest.mark.long
def test_a_dead_leg_that_is_out_may_be_replaced(sandbox: Sandbox) -> None:
    volume, journal, _ = with_a_dead_leg(sandbox)
    volume.start()
    new = sandbox.file("new.img", leg_bytes(SIZE))
    volume.command("leg", "replace", 1, new)
    volume.wait_converged()
    journal.verify()
    journal.disconnect()
    volume.stop()
    assert_identical([volume.legs[0], new], SIZE)


def test_an_absent_leg_that_is_in_is_named(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    volume.stop()
    absent = Path(volume.legs[1])
    absent.rename(sandbox.path("elsewhere.img"))
    says = (f"leg 1 (last seen as {absent})", "is absent", "hemi promote")
    refused(volume, *says)
    # The other leg alone names it too.
    volume.legs.pop()
    refused(volume, f"leg 1 (last seen as {absent})", "hemi promote")
    assert f"last seen as {absent}" in hemi("inspect", volume.legs[0])


def test_no_leg_at_all_is_no_question_to_decide(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    volume.stop()
    for leg in volume.legs:
        Path(leg).rename(f"{leg}.away")
    # The drives may still appear, so a service manager tries again.
    process = sandbox.start(*volume.serve_argv(), name="hemi-refused")
    assert process.wait(60) == 1
    check_message(process.output(), [f"leg {leg} is absent" for leg in volume.legs])


def test_a_start_waits_for_a_leg_that_is_needed(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    volume.stop()
    late = Path(volume.legs[1])
    late.rename(f"{late}.away")
    volume.options += ["--wait-for-legs", "1h"]
    volume.launch()
    wait_until("hemi waits", lambda: "waiting for absent legs" in volume.process.output())
    Path(f"{late}.away").rename(late)
    volume.wait_serving()
    wait_until("it is healthy", lambda: volume.status()["health"] == "healthy")


def test_an_export_that_does_not_answer_is_absent(sandbox: Sandbox) -> None:
    local = sandbox.file("local.img", leg_bytes(SIZE))
    server = Nbdkit(sandbox, sandbox.file("remote.img", leg_bytes(SIZE)))
    volume = Volume(sandbox, [local, server.uri], options=("--set", "engine.out_after=10s"))
    volume.create(SIZE)
    volume.start()
    volume.stop()
    server.kill()
    refused(volume, f"last seen as {server.uri}", "is absent")
    server.start()
    volume.start()
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    assert journal.run(100)
    server.kill()
    assert journal.run(100)
    volume.wait_leg_state(1, "out")
    journal.disconnect()
    volume.restart()
    journal.verify()


def test_an_overwritten_leg_is_recognised_by_its_path(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    volume.stop()
    with Path(volume.legs[1]).open("r+b") as leg:
        leg.write(bytes(MIB))
    refused(volume, f"{volume.legs[1]}: leg 1 of the volume was here", "overwritten")


@pytest.mark.long
def test_a_drive_that_dies_before_another_is_compared_loses_nothing(sandbox: Sandbox) -> None:
    backing = sandbox.file("remote.img", leg_bytes(SIZE))
    local = sandbox.file("local.img", leg_bytes(SIZE))
    near = Nbdkit(sandbox, backing, delay_ms=2)
    # Regions are compared one after the other.
    options = ("--ledger", "none", "--set", "engine.leg_window=1")
    volume = Volume(sandbox, [local, near.uri], options=options)
    volume.create(SIZE)
    volume.start()
    volume.wait_converged()
    # The last block of the local drive, which is truncated below, stays unchanged.
    journal = Journal(volume.uri, blocks=SIZE // 4096 - 256)
    assert journal.run(400)
    journal.disconnect()
    volume.kill()
    near.kill()
    far = Nbdkit(sandbox, backing, options=("--filter=delay",), extra=("rdelay=200ms",))
    volume.legs[1] = far.uri
    volume.start()
    whole = local.stat().st_size
    with local.open("r+b") as f:
        f.seek(whole - 4096)
        end = f.read()
        f.truncate(whole - 4096)
    assert volume.process.wait(60) == 3
    check_message(volume.process.output(), ["local.img", "is gone", "compared", "hemi promote"])
    far.kill()
    near.start()
    volume.legs[1] = near.uri
    assert "is missing" in refused_without(volume, local)
    with local.open("ab") as f:
        f.write(end)
    volume.start()
    journal.verify()
    volume.wait_converged()
    journal.disconnect()
    volume.stop()


def refused_without(volume: Volume, leg: Path) -> str:
    """Returns the message of a start while a drive is away. It must be refused."""
    away = leg.with_suffix(".away")
    leg.rename(away)
    says = refused(volume)
    away.rename(leg)
    return says
