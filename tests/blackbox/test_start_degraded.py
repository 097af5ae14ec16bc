"""`start_degraded`: a start gives up legs that are missing, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hemi_harness import Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB, assert_identical, check_message
from hemi_harness.journal import Journal

SIZE = 32 * MIB


def refused(volume: Volume, *says: str | Path) -> str:
    process = volume.sandbox.start(*volume.serve_argv(), name="hemi-refused")
    ended = process.wait(60)
    assert ended == 3, f"exited {ended}, expected 3:\n{process.output()}"
    check_message(process.output(), says)
    return process.output()


def take_away(leg: str | Path) -> Path:
    away = Path(f"{leg}.away")
    Path(leg).rename(away)
    return away


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xFF]))


def test_nothing_is_given_up_without_a_wait(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, start=False, options=("--start-degraded",))
    volume.start_fails("start_degraded", "how long to wait", "--wait-for-legs")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_missing_leg_is_given_up_if_the_operator_says_so(sandbox: Sandbox, end: str) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    assert journal.run(200)
    volume.wait_converged()
    journal.disconnect()
    if end == "stop":
        volume.stop()
    else:
        volume.kill()
    away = take_away(volume.legs[1])
    refused(volume, "leg 1", "is missing", "hemi promote")
    volume.options += ["--start-degraded", "--wait-for-legs", "1s"]
    volume.start()
    output = volume.process.output()
    check_message(output, ["waiting for absent legs", "start_degraded: missing legs are given up"])
    status = volume.status()
    assert status["given_up"] == {"legs": [1], "lacks_bytes": 0, "uncertain_bytes": 0} or (
        end == "kill" and status["given_up"]["legs"] == [1]
    )

    def is_told() -> bool:
        risks = [risk["text"] for risk in volume.status()["risks"] if risk["promise"] == "P1"]
        return any("This start gave up" in text and "(leg 1)" in text for text in risks)

    wait_until("the loss is told as a risk", is_told)

    def is_warned() -> bool:
        events = [json.loads(line) for line in volume.command("events", "--json").splitlines()]
        return any(
            event["kind"] == "started"
            and event["severity"] == "warning"
            and "on 1 of 2 legs" in event["text"]
            and "This start gave up" in event["text"]
            for event in events
        )

    wait_until("an event warns of it", is_warned)
    journal.verify()
    assert journal.run(200)
    journal.disconnect()
    # It comes back as a leg that is out. The next start drains to it, and gives up nothing.
    away.rename(volume.legs[1])
    volume.restart()
    assert volume.status()["given_up"] is None
    volume.wait_converged()
    journal.verify()
    journal.disconnect()
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_a_leg_that_comes_in_time_is_not_given_up(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    volume.stop()
    away = take_away(volume.legs[1])
    volume.options += ["--start-degraded", "--wait-for-legs", "1h"]
    volume.launch()
    wait_until("hemi waits", lambda: "waiting for absent legs" in volume.process.output())
    away.rename(volume.legs[1])
    volume.wait_serving()
    assert volume.status()["given_up"] is None
    volume.wait_converged()


def test_damage_is_not_started_over(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    assert journal.run(50)
    journal.disconnect()
    volume.stop()
    take_away(volume.legs[1])
    # The first page of the region table follows the superblocks and the lists.
    leg = Path(volume.legs[0])
    before = leg.read_bytes()
    flip(leg, MIB + 100)
    volume.options += ["--start-degraded", "--wait-for-legs", "1s"]
    refused(volume, "leg 1", "is missing", "start_degraded gives up nothing here", "damaged")
    assert leg.read_bytes()[:MIB] == before[:MIB], "nothing was written"
    flip(leg, MIB + 100)
    volume.start()


def test_without_its_ledger_nothing_is_given_up(sandbox: Sandbox) -> None:
    directory = sandbox.directory_in(Path("/dev/shm"))
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=("--ledger", directory))
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    # Leg 1 takes over, and only the ledger has the places.
    events = {300: lambda: volume.inject(0, "--freeze", "1h"), 700: volume.kill}
    assert not journal.run(1_000_000, at=events)
    journal.disconnect()
    (ledger,) = directory.iterdir()
    content = ledger.read_bytes()
    ledger.unlink()
    take_away(volume.legs[1])
    volume.options += ["--start-degraded", "--wait-for-legs", "1s"]
    refused(volume, "is missing", "gives up nothing here", "the ledger that the volume was served")
    ledger.write_bytes(content)
    ledger.chmod(0o600)
    volume.start()
    given_up = volume.status()["given_up"]
    # Leg 0 was frozen, and the ledger has the places where it may be behind.
    assert given_up["legs"] == [1] and given_up["uncertain_bytes"] > 0, given_up
    text = " ".join(risk["text"] for risk in volume.status()["risks"])
    assert "gave up" in text and "perhaps some in" in text
    volume.stop()


def test_of_several_legs_that_are_there_one_has_to_be_named(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, legs=3)
    volume.stop()
    take_away(volume.legs[2])
    volume.options += ["--start-degraded", "--wait-for-legs", "1s"]
    refused(volume, "leg 2", "is missing", "gives up nothing here", "several legs are there")


def test_each_leg_started_without_the_other_makes_two_histories(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    volume.stop()
    volume.options += ["--start-degraded", "--wait-for-legs", "1s"]
    for missing in (1, 0):
        away = take_away(volume.legs[missing])
        volume.start()
        with volume.client() as client:
            client.write(0, bytes([missing]) * 4096)
        volume.stop()
        away.rename(volume.legs[missing])
    refused(volume, "each was used without the other")
