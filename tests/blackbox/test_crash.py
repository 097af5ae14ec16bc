"""kill -9 under verified load, with either leg lagging, frozen or gone (P1, P2)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hemi_harness import CommandFailed, Nbdkit, Sandbox, Volume
from hemi_harness.hemi import MIB, assert_identical, data_area, leg_bytes
from hemi_harness.journal import Journal

SIZE = 64 * MIB
BLOCKS = 2048
# Legs are known to be identical when all regions are clean, which is soon after the last write.
QUICK = ("--set", "engine.clean_after=500ms")
# Rounds of load, kill, restart and verification; `make test-long` runs more.
ROUNDS = 12 if os.environ.get("HEMI_TEST_ROUNDS") == "long" else 3


def check_both_legs(volume: Volume, journal: Journal) -> None:
    """Checks that each leg alone holds everything after convergence and a clean stop."""
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)
    for leg in volume.legs:
        journal.check_image(data_area(Path(leg), SIZE))


FAULTS: dict[str, Callable[[Volume, int], None]] = {
    "none": lambda volume, leg: None,
    "slow": lambda volume, leg: volume.inject(leg, "--delay", "20ms"),
    "frozen": lambda volume, leg: volume.inject(leg, "--freeze", "1h"),
    "write-errors": lambda volume, leg: volume.inject(leg, "--error", "write:0.2"),
}


@pytest.mark.parametrize("leg", [0, 1])
@pytest.mark.parametrize("fault", list(FAULTS))
def test_kill_under_load(sandbox: Sandbox, fault: str, leg: int) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=QUICK)
    journal = Journal(volume.uri, blocks=BLOCKS, seed=leg)
    for number in range(ROUNDS):
        events = {
            100: lambda: FAULTS[fault](volume, leg),
            700 + 131 * number: volume.kill,
        }
        assert not journal.run(1_000_000, at=events)
        volume.start()
        journal.settle()
    check_both_legs(volume, journal)


def test_kill_while_legs_take_turns_to_freeze(sandbox: Sandbox) -> None:
    """Kills hemi when the authority has moved, once and back."""
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=QUICK)
    journal = Journal(volume.uri, blocks=256)
    for number in range(ROUNDS):
        first = number % 2

        def turn(thawed: int, frozen: int) -> None:
            volume.inject(thawed, "--clear")
            volume.inject(frozen, "--freeze", "1h")

        events: dict[int, Callable[[], object]] = {
            200: partial(turn, 1 - first, first),
            600: partial(turn, first, 1 - first),
            1000: partial(turn, 1 - first, first),
            1400: volume.kill,
        }
        assert not journal.run(1_000_000, at=events)
        volume.start()
        journal.settle()
    check_both_legs(volume, journal)


def test_kill_while_recovering(sandbox: Sandbox) -> None:
    """Kills hemi several times in short succession, so that recovery is interrupted and
    restarts."""
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=QUICK)
    journal = Journal(volume.uri, blocks=BLOCKS)
    for number in range(ROUNDS):
        journal.run(
            1_000_000,
            at={50: lambda: volume.inject(1, "--freeze", "1h"), 800: volume.kill},
        )
        for _ in range(3):
            volume.start()
            volume.kill()
        volume.start()
        journal.settle()
        journal.run(1_000_000, at={10 + number: volume.kill})
        volume.start()
        journal.settle()
    check_both_legs(volume, journal)


LISTENS = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
if os.fork():
    os._exit(0)
os.close(1)
sys.stdin.read()
"""


def test_a_socket_that_a_dead_process_has_left_open_is_taken_over(sandbox: Sandbox) -> None:
    """Imitates the socket of a killed hemi, which the kernel keeps until its last I/O has ended."""
    volume = Volume.on_files(sandbox, SIZE)
    volume.stop()
    # The child keeps its parent's listening socket open.
    listener = subprocess.Popen(
        [sys.executable, "-c", LISTENS, volume.socket],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert listener.stdout and not listener.stdout.read()
    listener.wait()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(volume.socket))
    volume.start()
    volume.stop()
    assert listener.stdin
    listener.stdin.close()


def test_kill_with_three_legs_and_several_connections(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, legs=3, inject=True, options=QUICK)
    journal = Journal(volume.uri, blocks=BLOCKS, connections=4, depth=32)
    for number in range(ROUNDS):
        leg = number % 3
        events: dict[int, Callable[[], object]] = {
            100: partial(volume.inject, leg, "--freeze", "1h"),
            300: partial(volume.inject, (leg + 1) % 3, "--delay", "10ms"),
            900: volume.kill,
        }
        assert not journal.run(1_000_000, at=events)
        volume.start()
        journal.settle()
    check_both_legs(volume, journal)


@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("how", ["pause", "stop"])
def test_kill_with_a_remote_leg_frozen_from_outside(
    sandbox: Sandbox, how: str, frozen: int
) -> None:
    """Kills hemi while a frozen server still holds its requests.

    They land late, when the next hemi starts, and must not overwrite anything newer."""
    backing = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
    servers = [Nbdkit(sandbox, path) for path in backing]
    # A thawing server carries out the requests it has received.
    volume = Volume(sandbox, [server.uri for server in servers], options=QUICK, quarantine="2s")
    volume.create(SIZE)
    volume.start()
    volume.wait_converged()
    journal = Journal(volume.uri, blocks=512)
    server = servers[frozen]
    freeze, thaw = {
        "pause": (server.pause, server.resume),
        "stop": (server.stop, server.cont),
    }[how]
    for number in range(ROUNDS):
        assert not journal.run(1_000_000, at={200: freeze, 800: volume.kill})
        if number % 2 == 0:
            # The next hemi meets the late writes.
            servers[1 - frozen].forget_client()
            volume.launch()
            thaw()
            serve_beside_dying_servers(volume, servers)
        else:
            # They have landed before it starts.
            thaw()
            for each in servers:
                each.forget_client()
            volume.start()
        journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(list(backing), SIZE)
    for path in backing:
        journal.check_image(data_area(path, SIZE))


def serve_beside_dying_servers(volume: Volume, servers: list[Nbdkit]) -> None:
    """Waits until a volume serves whose legs' servers may die while hemi opens them.

    A server may die of its previous client. That refuses the start, rightly, and requires
    another."""
    try:
        volume.wait_serving()
    except CommandFailed:
        for server in servers:
            server.forget_client()
        # If it was not the server's death, the reason is still there and fails the test.
        volume.start()


@pytest.mark.parametrize("dead", [0, 1])
def test_a_leg_and_hemi_die_together(sandbox: Sandbox, dead: int) -> None:
    """Starts hemi when the leg's server is gone.

    Either the other leg tells everything, or the volume asks for a decision. It never serves old
    data."""
    backing = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
    servers = [Nbdkit(sandbox, path) for path in backing]
    volume = Volume(sandbox, [server.uri for server in servers], options=QUICK, quarantine="2s")
    volume.create(SIZE)
    volume.start()
    volume.wait_converged()
    journal = Journal(volume.uri, blocks=512)
    assert not journal.run(1_000_000, at={300: servers[dead].kill, 900: volume.kill})
    servers[1 - dead].forget_client()
    volume.start_fails(servers[dead].socket)
    servers[dead].start()
    volume.start()
    journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(list(backing), SIZE)
