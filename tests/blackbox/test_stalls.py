"""Single requests of a leg that stall, injected by `hemi inject --stall` and `--experiment`.

The status shows the stalls, and no data is lost. Stalls last until the test ends them."""

from __future__ import annotations

from typing import Any

from hemi_harness import Sandbox, Volume, hemi_fails, wait_until
from hemi_harness.hemi import MIB, assert_identical
from hemi_harness.journal import Journal

SIZE = 32 * MIB
# Keeps a leg that a test stalls in, however slow the machine is.
OPTIONS = ("--set", "engine.clean_after=500ms", "--set", "engine.out_after=1day")


def served(sandbox: Sandbox) -> Volume:
    """Returns a volume of two files into which faults may be injected."""
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=OPTIONS)
    volume.wait_converged()
    return volume


def injected(volume: Volume, leg: int) -> Any:
    """Returns the status of a leg's faults."""
    return volume.status()["legs"][leg]["injected"]


def test_stalled_writes_are_held_until_they_are_let_go(sandbox: Sandbox) -> None:
    volume = served(sandbox)
    assert injected(volume, 1) is None
    volume.inject(1, "--stall", "writes:1,by:1h", "--seed", "7")
    # The answer to the command comes after the status that shows it.
    stalls = injected(volume, 1)["stalls"]
    assert (stalls["seed"], stalls["phase"], stalls["phases"]) == (7, 1, 1)
    assert stalls["phase_left_ns"] is None
    journal = Journal(volume.uri, blocks=1024)
    # The other leg has all data, so nothing waits for writes that stall for an hour.
    assert journal.run(500)
    wait_until("the leg holds writes", lambda: injected(volume, 1)["held"] > 0)
    faults = injected(volume, 1)
    assert faults["stalls"]["writes"]["stalled"] == faults["stalls"]["writes"]["seen"] > 0
    assert faults["stalls"]["reads"]["stalled"] == 0
    assert "injected  leg 1: stalls (phase 1 of 1, seed 7)" in volume.shown()
    assert injected(volume, 0) is None
    journal.verify()
    # Another schedule does not release held requests, but clearing does.
    volume.inject(1, "--stall", "for:1s")
    assert injected(volume, 1)["held"] > 0
    volume.inject(1, "--clear")
    wait_until("they are let go", lambda: injected(volume, 1) is None)
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_an_experiment_goes_through_its_phases(sandbox: Sandbox) -> None:
    volume = served(sandbox)
    # A third of a second for each phase.
    volume.inject(0, "--experiment", "ebs-decreasing", "--time-scale", "0.002")
    assert injected(volume, 0)["stalls"]["phases"] == 5
    journal = Journal(volume.uri, blocks=1024)
    assert journal.run(300)
    wait_until("it is over", lambda: injected(volume, 0)["stalls"]["phase"] is None)
    over = injected(volume, 0)["stalls"]
    assert journal.run(300)
    again = injected(volume, 0)["stalls"]
    assert (again["reads"], again["writes"]) == (over["reads"], over["writes"])
    volume.inject(0, "--clear")
    journal.verify()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_the_share_is_met(sandbox: Sandbox) -> None:
    volume = served(sandbox)
    for leg in (0, 1):
        volume.inject(leg, "--stall", "reads:0.3,by:1us..20us")
    with volume.client() as client:
        for block in range(2000):
            client.read(block * 4096 % SIZE, 4096)

    def seen() -> list[dict[str, int]]:
        return [injected(volume, leg)["stalls"]["reads"] for leg in (0, 1)]

    wait_until("status has all reads", lambda: sum(reads["seen"] for reads in seen()) >= 2000)
    for reads in seen():
        expected = 0.3 * reads["seen"]
        # Seven standard deviations, beyond any chance.
        assert abs(reads["stalled"] - expected) <= 7 * (expected * 0.7) ** 0.5 + 1


def test_what_no_schedule_can_be_is_refused(sandbox: Sandbox) -> None:
    volume = served(sandbox)
    for phases, said in [
        (["writes:1"], "phase 1 has no delay"),
        (["writes:1.5,by:1s"], "a share of 1.5"),
        (["writes:1,by:1s", "for:1s"], "phase 1 has no length"),
        (["writes:1,by:2s..1s"], "upside down"),
    ]:
        options = [option for phase in phases for option in ("--stall", phase)]
        argv = ["inject", "--leg", "1", *options, "--control", str(volume.control)]
        hemi_fails(*argv, says=[said])
    assert injected(volume, 1) is None
