"""A promotion meets no late write of the hemi that was killed before it (P2)."""

from __future__ import annotations

import threading

import pytest
from hemi_harness import Nbdkit, Sandbox, Volume
from hemi_harness.hemi import HEMI, MIB, leg_bytes
from hemi_harness.sandbox import run_any, wait_until

SIZE = 32 * MIB
BLOCK = 4096
QUARANTINE = "4s"
LATE = 1.0
WAITS = "waiting until the last writes to its remote legs have landed"


@pytest.mark.parametrize("by", ["promote", "start-degraded"])
def test_a_late_write_lands_before_the_promoted_leg_is_used(sandbox: Sandbox, by: str) -> None:
    """Kills hemi while a frozen server holds a write, and goes on with that leg alone.

    The leg is reached through another server over the same file: one that answers at once."""
    backing = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
    frozen, other = (Nbdkit(sandbox, backing[1], filters=False) for _ in range(2))
    volume = Volume(sandbox, [backing[0], frozen.uri], options=("--ledger", "none"))
    volume.create(SIZE)
    volume.start()
    client = volume.client()
    # Makes the region dirty: the next write there needs no page, and is first in the queue.
    client.write(0, b"a" * BLOCK)
    client.flush()
    volume.wait_converged()
    frozen.stop()
    client.start_write(0, b"b" * BLOCK)

    def is_sent() -> bool:
        legs = volume.status()["legs"]
        return bool(legs[1]["in_flight"])

    wait_until("the write is on its way to the frozen server", is_sent)
    volume.kill()
    thaw = threading.Timer(LATE, frozen.cont)
    thaw.start()
    volume.legs = [other.uri]
    if by == "promote":
        argv = ("promote", other.uri, "--accept-loss", "--quarantine", QUARANTINE)
        code, _, said = run_any(HEMI, *argv, "--ledger", "none")
        assert code == 0, said
    else:
        options = ("--ledger", "none", "--start-degraded", "--wait-for-legs", "100ms")
        volume = Volume(sandbox, [other.uri], options=options, quarantine=QUARANTINE)
    volume.start()
    if by == "start-degraded":
        said = volume.process.output()
    with volume.client() as client:
        client.write(0, b"c" * BLOCK)
        client.flush()
        thaw.join()
        frozen.forget_client()
        assert client.read(0, BLOCK) == b"c" * BLOCK, "an older write landed over a newer one"
    assert said.count(WAITS) == 1, said
    volume.stop()
