"""Orderly ends while legs cannot be reached: what only the ledger knows is kept, and told."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from hemi_harness import Nbdkit, Sandbox, Volume, hemi
from hemi_harness.hemi import HEMI, MIB, check_message, leg_bytes
from hemi_harness.journal import Journal
from hemi_harness.sandbox import run_fails

SIZE = 32 * MIB


def test_a_stop_without_legs_keeps_the_ledger_and_says_so(sandbox: Sandbox) -> None:
    """Stops hemi after its legs' servers, as a shutdown does at which the network goes first."""
    backing = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
    servers = [Nbdkit(sandbox, path) for path in backing]
    directory = sandbox.directory_in(Path("/dev/shm"))
    options = ("--ledger", directory, "--drain-on-stop", "1s")
    legs = [server.uri for server in servers]
    volume = Volume(sandbox, legs, options=options, quarantine="1s")
    volume.create(SIZE)
    volume.start()
    volume.wait_converged()
    journal = Journal(volume.uri, blocks=512)

    def end() -> None:
        for server in servers:
            server.kill()
        volume.signal(signal.SIGTERM)

    # By then leg 1 has taken over in regions of leg 0, which only the ledger knows.
    events: dict[int, Callable[[], object]] = {300: servers[0].stop, 700: end}
    assert not journal.run(1_000_000, at=events)
    code = volume.process.wait()
    assert code == 3, f"hemi serve exited {code}:\n{volume.process.output()}"
    (ledger,) = directory.iterdir()
    says = ("only the ledger", ledger, "restarts", "its legs present", "hemi settle")
    check_message(volume.process.output(), says)

    # Without the legs it cannot be settled, and stays.
    settle = ("settle", *volume.leg_options(), "--ledger", directory)
    run_fails(HEMI, *settle)
    assert ledger.exists()

    for server in servers:
        server.start()
    volume.start()
    journal.settle()
    journal.disconnect()
    volume.stop()
    assert not ledger.exists(), "a volume that was closed relies on no ledger"
    assert "rely on no ledger" in hemi(*settle)
