"""Differences between legs: found, remembered, shown, and settled by the operator alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hemi_harness import Sandbox, Volume
from hemi_harness.hemi import HEMI, MIB, assert_identical, data_offset
from hemi_harness.sandbox import run_any, wait_until

SIZE = 64 * MIB
AT = 4 * MIB
LENGTH = 16384
RANGE = f"{AT}+{LENGTH}"
GOOD = b"good" * (LENGTH // 4)


def rotten(sandbox: Sandbox, wrong: int, legs: int = 2) -> Volume:
    """Returns a served volume, one leg of which has been changed behind hemi's back."""
    volume = Volume.on_files(sandbox, SIZE, legs=legs, start=False)
    volume.env = dict(os.environ, STATE_DIRECTORY=str(sandbox.path("state")))
    volume.start()
    with volume.client() as client:
        client.write(AT, GOOD)
        client.flush()
    volume.wait_converged()
    volume.stop()
    with Path(volume.legs[wrong]).open("r+b") as file:
        file.seek(data_offset(SIZE) + AT)
        file.write(os.urandom(LENGTH))
    volume.start()
    return volume


def scrub(volume: Volume, *options: str) -> tuple[int, str]:
    code, out, said = run_any(HEMI, "scrub", "--control", volume.control, *options)
    return code, out + said


def different(volume: Volume) -> int:
    return int(volume.status()["scrub"]["different_bytes"])


@pytest.mark.parametrize("wrong", [0, 1])
def test_nobody_but_the_operator_decides(sandbox: Sandbox, wrong: int) -> None:
    volume = rotten(sandbox, wrong)
    code, said = scrub(volume)
    assert code == 1 and "16 KiB differ between legs" in said and "--show" in said
    code, said = scrub(volume, "--repair")
    assert code == 1 and "nobody knows which leg is right" in said
    assert volume.status()["converged"] is False
    assert "healthy" not in volume.shown().splitlines()[0]

    # It is known after a kill and after a stop.
    volume.kill()
    volume.start()
    assert different(volume) == LENGTH
    volume.restart()
    assert different(volume) == LENGTH

    code, said = scrub(volume, "--show")
    assert code == 0 and RANGE in said
    shown = json.loads(scrub(volume, "--show", "--json")[1])["differences"]
    sums = [version["crc32c"] for version in shown[0]["legs"]]
    assert len(shown) == 1 and None not in sums and sums[0] != sums[1]
    assert shown[0]["majority"] == []
    versions = [sandbox.path(f"version{leg}") for leg in range(2)]
    for leg, version in zip(volume.legs, versions, strict=True):
        command = f"{HEMI} inspect --read {RANGE} {leg} >{version}"
        code, _, said = run_any("sh", "-c", command)
        assert code == 0, said
    assert [version.read_bytes() == GOOD for version in versions] == [wrong == 1, wrong == 0]

    code, said = scrub(volume, "--repair", "--from", str(1 - wrong), "--range", RANGE)
    assert code == 0 and f"rewritten from leg {1 - wrong}" in said
    wait_until("it is settled", lambda: different(volume) == 0)
    with volume.client() as client:
        for _ in range(4):
            assert client.read(AT, LENGTH) == GOOD
    assert scrub(volume)[0] == 0
    volume.restart()
    assert different(volume) == 0
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_a_write_settles_a_difference(sandbox: Sandbox) -> None:
    volume = rotten(sandbox, 1)
    scrub(volume)
    assert different(volume) == LENGTH
    with volume.client() as client:
        client.write(AT, b"new!" * 1024)
        client.flush()
    wait_until("a part is settled", lambda: different(volume) == LENGTH - 4096)
    with volume.client() as client:
        client.write(AT, GOOD)
        client.flush()
    wait_until("all of it is", lambda: different(volume) == 0)
    assert "no difference" in scrub(volume, "--show")[1]


def test_of_three_legs_the_majority_is_named(sandbox: Sandbox) -> None:
    volume = rotten(sandbox, 0, legs=3)
    assert scrub(volume)[0] == 1
    assert different(volume) == LENGTH, "it differs in one place, whichever leg is compared"
    shown = json.loads(scrub(volume, "--show", "--json")[1])["differences"]
    assert [range["majority"] for range in shown] == [[1, 2]]
    assert scrub(volume, "--show")[1].count("agrees with most") == 2
    assert scrub(volume, "--repair", "--from", "1")[0] == 0
    wait_until("it is settled", lambda: different(volume) == 0)
    assert scrub(volume)[0] == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--from", "0"), "--repair"),
        (("--repair", "--from", "7"), "slot 7 holds no leg"),
        (("--range", "1T+4096"), "not within the volume"),
        (("--range", "5"), "no range"),
    ],
)
def test_what_makes_no_sense_is_refused(
    sandbox: Sandbox, options: tuple[str, ...], says: str
) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    code, said = scrub(volume, *options)
    assert code in (1, 2) and says in said


def test_many_differences_are_few_lines_in_the_log(sandbox: Sandbox) -> None:
    volume = rotten(sandbox, 1)
    volume.stop()
    with Path(volume.legs[1]).open("r+b") as file:
        for block in range(0, 4096, 2):
            file.seek(data_offset(SIZE) + 8192 * block // 2)
            file.write(b"rot")
    volume.start()
    assert scrub(volume)[0] == 1
    lines = [line for line in volume.process.output().splitlines() if "differs from" in line]
    assert 1 <= len(lines) <= 4, lines
    assert len(volume.process.output().splitlines()) < 60
    assert scrub(volume, "--repair", "--from", "0")[0] == 0
    wait_until("all are settled", lambda: different(volume) == 0)
    rewritten = [line for line in volume.process.output().splitlines() if "was rewritten" in line]
    assert len(rewritten) <= 4, rewritten


def test_metadata_that_a_leg_has_lost_is_found_and_written_again(sandbox: Sandbox) -> None:
    """Something overwrites the metadata of a leg beneath a served volume."""
    volume = Volume.on_files(sandbox, SIZE, options=("--ledger", "none"))
    volume.wait_converged()
    assert scrub(volume)[0] == 0
    with Path(volume.legs[1]).open("r+b") as file:
        file.write(bytes(data_offset(SIZE)))
        file.flush()
        os.fsync(file.fileno())
    code, said = scrub(volume)
    assert code == 1 and "leg 1 has lost its metadata: there is no hemi superblock" in said
    assert "written again" in said and "what wrote to the drive" in said
    events = [json.loads(line) for line in volume.command("events", "--json").splitlines()]
    assert [event["leg"] for event in events if event["kind"] == "metadata"] == [1]
    assert scrub(volume)[0] == 0
    assert all(leg["metadata_lost"] is None for leg in volume.status()["legs"])
    volume.kill()
    volume.start()
    volume.stop()
    assert_identical(volume.legs, SIZE)
