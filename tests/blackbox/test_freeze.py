"""A leg that stops answering: clients go on (P4), exposure stays bounded (P5), legs converge
afterwards (P6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hemi_harness import NbdError, Nbdkit, Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB, assert_identical, leg_bytes
from hemi_harness.journal import Journal

SIZE = 64 * MIB
# Legs are known to be identical when all regions are clean, which is soon after the last write.
QUICK = ("--set", "engine.clean_after=500ms")
# Keeps a leg that a test freezes in, however slow the machine is.
STAYS_IN = ("--set", "engine.out_after=1day")
# Marks a dead leg out, but none that other processes merely keep from running.
GIVEN_UP = ("--set", "engine.out_after=10s")


class Legs:
    """A volume on two NBD legs, each a file behind nbdkit."""

    def __init__(self, sandbox: Sandbox, *options: str) -> None:
        self.backing = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
        self.servers = [Nbdkit(sandbox, path) for path in self.backing]
        # Thawed servers carry out at once the requests they have received.
        self.volume = Volume(
            sandbox,
            [s.uri for s in self.servers],
            options=(*QUICK, *(options or STAYS_IN)),
            quarantine="2s",
        )
        self.volume.create(SIZE)
        self.volume.start()
        # A new volume on exports not known to be zero fills its second leg first. Until then only
        # the first leg can acknowledge.
        self.volume.wait_converged()
        self.journal = Journal(self.volume.uri, blocks=1024)

    def converge(self) -> None:
        """Waits for the drain and checks that both legs hold everything."""
        self.journal.verify()
        self.journal.disconnect()
        self.volume.wait_converged()
        status = self.volume.status()
        assert status["exposure"]["bytes"] == 0
        assert all(leg["owed_bytes"] == 0 for leg in status["legs"])
        self.volume.stop()
        assert_identical(list(self.backing), SIZE)


@pytest.mark.parametrize("leg", [0, 1])
@pytest.mark.parametrize("how", ["pause", "stop"])
def test_clients_go_on_while_a_leg_does_not_answer(sandbox: Sandbox, how: str, leg: int) -> None:
    legs = Legs(sandbox)
    server = legs.servers[leg]
    freeze, thaw = {
        "pause": (server.pause, server.resume),
        "stop": (server.stop, server.cont),
    }[how]
    assert legs.journal.run(500)
    freeze()
    # The leg stays frozen until all of these are acknowledged. If any of them had to wait for it,
    # none would return.
    assert legs.journal.run(1000)
    legs.journal.verify()
    legs.volume.wait_leg_state(leg, "frozen")
    # The status can be from the moment of the freeze, before there was any debt.
    wait_until("the leg owes", lambda: legs.volume.status()["legs"][leg]["owed_bytes"] > 0)
    status = legs.volume.status()
    state = status["legs"][leg]
    assert state["freezes"] >= 1
    assert status["exposure"]["bytes"] > 0
    assert any(risk["promise"] in ("P1", "P5") for risk in status["risks"]), status["risks"]
    thaw()
    legs.volume.wait_leg_state(leg, "healthy", "lagging")
    legs.converge()


def test_a_plain_mirror_waits(sandbox: Sandbox) -> None:
    """Shows that the test above tells policy `all` from hemi."""
    legs = Legs(sandbox, *STAYS_IN, "--policy", "all")
    assert legs.journal.run(200)
    legs.servers[1].pause()
    with pytest.raises(AssertionError, match="answers a request"):
        legs.journal.run(100, stall_limit=3)
    legs.servers[1].resume()
    legs.journal.disconnect()
    legs.journal.settle()
    legs.converge()


def test_legs_freeze_in_turn(sandbox: Sandbox) -> None:
    """Freezes the legs in turn after each drain, so that authority moves there and back."""
    legs = Legs(sandbox)
    for number in range(4):
        server = legs.servers[number % 2]
        server.pause()
        assert legs.journal.run(400)
        server.resume()
        legs.volume.wait_leg_state(number % 2, "healthy", "lagging")
        assert legs.journal.run(100)
        legs.volume.wait_converged()
    legs.converge()


def test_both_legs_freeze_and_nothing_is_acknowledged_falsely(sandbox: Sandbox) -> None:
    legs = Legs(sandbox)
    assert legs.journal.run(300)
    for server in legs.servers:
        server.pause()
    with pytest.raises(AssertionError, match="answers a request"):
        legs.journal.run(10_000, stall_limit=3)
    for server in legs.servers:
        server.resume()
    legs.journal.disconnect()
    legs.journal.settle()
    assert legs.journal.run(300)
    legs.converge()


def test_flushes_go_on_while_a_leg_is_frozen(sandbox: Sandbox) -> None:
    legs = Legs(sandbox)
    for leg in (0, 1):
        legs.servers[leg].pause()
        with legs.volume.client() as client:
            for i in range(50):
                client.write(i * 4096, b"f" * 4096, fua=i % 5 == 0)
                client.flush()
        legs.servers[leg].resume()
        legs.volume.wait_converged()
    legs.converge()


def test_flush_copies_all_waits_for_every_leg(sandbox: Sandbox) -> None:
    legs = Legs(sandbox, *STAYS_IN, "--set", "engine.flush_copies=all")
    with legs.volume.client() as client:
        client.write(0, b"f" * 4096)
        client.flush()
        legs.servers[1].pause()
        client.write(4096, b"f" * 4096)
        client.timeout = 3
        with pytest.raises(TimeoutError):
            client.flush()
    legs.servers[1].resume()
    legs.converge()


@pytest.mark.parametrize("leg", [0, 1])
def test_a_leg_that_dies_and_returns(sandbox: Sandbox, leg: int) -> None:
    legs = Legs(sandbox)
    assert legs.journal.run(300)
    legs.servers[leg].kill()
    assert legs.journal.run(500)
    legs.volume.wait_leg_state(leg, "gone", "out")
    legs.servers[leg].start()
    legs.volume.wait_leg_state(leg, "healthy", "lagging")
    assert legs.journal.run(300)
    legs.converge()


@pytest.mark.parametrize("leg", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_leg_dead_for_long_is_durably_out(sandbox: Sandbox, leg: int) -> None:
    legs = Legs(sandbox, *GIVEN_UP)
    assert legs.journal.run(300)
    legs.servers[leg].pause()
    assert legs.journal.run(300)
    legs.volume.wait_leg_state(leg, "out")
    status = legs.volume.status()
    assert status["degraded"] is True
    assert status["health"] == "degraded"
    assert status["legs"][leg]["out_reason"] == "unresponsive"
    assert legs.journal.run(300)
    # Out durably: without the leg the volume opens again and does not ask.
    legs.volume.kill()
    legs.journal.disconnect()
    legs.servers[leg].resume()
    legs.servers[leg].kill()
    legs.servers[1 - leg].forget_client()
    both = list(legs.volume.legs)
    legs.volume.legs = [both[1 - leg]]
    legs.volume.start()
    legs.journal.settle()
    assert legs.journal.run(200)
    legs.journal.disconnect()
    legs.volume.stop()
    # With it again, it is drained to.
    legs.servers[leg].start()
    legs.volume.legs = both
    legs.volume.start()
    legs.converge()


@pytest.mark.parametrize("leg", [0, 1])
def test_media_errors_are_answered_from_the_other_leg(sandbox: Sandbox, leg: int) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=QUICK)
    journal = Journal(volume.uri, blocks=1024, reads=0.6)
    assert journal.run(500)
    volume.inject(leg, "--error", "read")
    assert journal.run(500)
    journal.verify()
    volume.inject(leg, "--clear")
    journal.verify()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_errors_on_both_legs_reach_the_client_and_pass(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True)
    with volume.client() as client:
        client.write(0, b"old" + bytes(4093))
        for leg in (0, 1):
            volume.inject(leg, "--error", "read")
        with pytest.raises(NbdError):
            client.read(0, 4096)
        for leg in (0, 1):
            volume.inject(leg, "--clear")
        assert client.read(0, 4096) == b"old" + bytes(4093)


@pytest.mark.parametrize("leg", [0, 1])
def test_write_errors_take_a_leg_out_and_clients_go_on(sandbox: Sandbox, leg: int) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=QUICK)
    journal = Journal(volume.uri, blocks=1024)
    assert journal.run(300)
    volume.inject(leg, "--error", "write")
    assert journal.run(500)
    volume.wait_leg_state(leg, "out", "gone", "lagging")
    assert volume.status()["legs"][leg]["errors"] > 0
    journal.verify()
    volume.kill()
    journal.disconnect()
    volume.start()
    journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


class TestExposure:
    BOUND = 4 * MIB

    def watched(
        self, volume: Volume, journal: Journal, operations: int, every: int = 50
    ) -> list[dict[str, float]]:
        """Runs a load and samples the exposure meanwhile."""
        samples: list[dict[str, float]] = []

        def sample() -> None:
            samples.append(volume.status()["exposure"])

        at: dict[int, Callable[[], object]] = {n: sample for n in range(0, operations, every)}
        assert journal.run(operations, at=at)
        return samples

    def test_throttle_keeps_the_bound(self, sandbox: Sandbox) -> None:
        volume = Volume.on_files(
            sandbox,
            SIZE,
            inject=True,
            options=(*QUICK, *STAYS_IN, "--set", f"engine.exposure.bytes={self.BOUND}"),
        )
        journal = Journal(volume.uri, blocks=SIZE // 65536, block_bytes=65536, depth=16)
        # The leg drains nothing until 48 writes are acknowledged: 3 MiB, or slightly less if they
        # overlap. Then it is slow, and clients wait for it at the bound.
        volume.inject(1, "--freeze", "1h")
        assert journal.run(48)
        volume.inject(1, "--clear")
        volume.inject(1, "--delay", "300ms")
        samples = self.watched(volume, journal, 1000)
        assert max(s["bytes"] for s in samples) <= self.BOUND
        final = volume.status()["exposure"]
        assert final["peak_bytes"] <= self.BOUND
        assert final["peak_bytes"] > self.BOUND // 2, "the bound was never felt"
        assert final["bound_bytes"] == self.BOUND
        journal.verify()
        journal.disconnect()
        volume.inject(1, "--clear")
        volume.wait_converged()
        assert volume.status()["exposure"]["bytes"] == 0

    def test_fall_behind_goes_on_and_says_so(self, sandbox: Sandbox) -> None:
        volume = Volume.on_files(
            sandbox,
            SIZE,
            inject=True,
            options=(
                *QUICK,
                *STAYS_IN,
                *("--set", f"engine.exposure.bytes={self.BOUND}"),
                *("--set", "engine.exposure.mode=fall-behind"),
                *("--buffer-budget", "16MiB"),
            ),
        )
        volume.inject(1, "--freeze", "1h")
        journal = Journal(volume.uri, blocks=SIZE // 65536, block_bytes=65536, depth=16)
        assert journal.run(900)
        wait_until(
            "the exposure passes the bound",
            lambda: volume.status()["exposure"]["bytes"] > self.BOUND,
        )
        status = volume.status()
        assert any(risk["promise"] == "P5" for risk in status["risks"]), status["risks"]
        assert status["buffers"]["used_bytes"] <= status["buffers"]["budget_bytes"]
        journal.verify()
        journal.disconnect()
        volume.inject(1, "--clear")
        volume.wait_converged()
        volume.stop()
        assert_identical(volume.legs, SIZE)

    def test_a_frozen_leg_stops_writers_at_the_bound_until_it_is_out(
        self, sandbox: Sandbox
    ) -> None:
        volume = Volume.on_files(
            sandbox,
            SIZE,
            inject=True,
            options=(*GIVEN_UP, "--set", f"engine.exposure.bytes={self.BOUND}"),
        )
        volume.inject(0, "--freeze", "1h")
        journal = Journal(volume.uri, blocks=SIZE // 65536, block_bytes=65536, depth=16)
        assert journal.run(900), "the volume must go on degraded"
        assert volume.status()["exposure"]["peak_bytes"] <= self.BOUND
        volume.wait_leg_state(0, "out")
        journal.verify()


def test_status_says_what_it_shows(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=STAYS_IN)

    def calm() -> bool:
        # On a busy machine a leg may be shown as late for a moment.
        shown = volume.shown().lower()
        return shown.count("healthy") >= 2 and "frozen" not in shown

    wait_until("both legs are shown as healthy", calm)
    volume.inject(1, "--freeze", "1h")
    journal = Journal(volume.uri, blocks=256)
    assert journal.run(300)
    journal.disconnect()
    volume.wait_leg_state(1, "frozen")
    frozen = volume.shown()
    for word in ("frozen", "owes", "exposure"):
        assert word in frozen.lower(), frozen
    volume.inject(1, "--clear")
    wait_until("healthy again", lambda: "frozen" not in volume.shown())


def test_a_leg_that_freezes_while_it_is_rebuilt_does_not_take_all_buffers(
    sandbox: Sandbox,
) -> None:
    size = 512 * MIB
    backing = [sandbox.file(f"leg{i}.img", leg_bytes(size)) for i in range(2)]
    # At 10 MiB/s the second leg is frozen long before it is full, however late that happens.
    rate = sandbox.path("rate")
    rate.write_text("80M")
    limit = ("--filter=rate",), ("rate=80M", f"rate-file={rate}")
    servers = [
        Nbdkit(sandbox, backing[0]),
        Nbdkit(sandbox, backing[1], options=limit[0], extra=limit[1]),
    ]
    # The smallest budget: fewer bytes than a leg may have in flight.
    options = (*QUICK, "--buffer-budget", 16 * MIB)
    volume = Volume(sandbox, [s.uri for s in servers], options=options, quarantine="2s")
    volume.create(size)
    volume.start()
    with volume.client() as client:
        # A new volume on exports not known to be zero fills its second leg.
        wait_until("it drains", lambda: volume.status()["legs"][1]["drained_bytes"] > 0)
        servers[1].pause()
        volume.wait_leg_state(1, "frozen", "out")
        assert volume.status()["legs"][1]["owed_region_bytes"] > 0, "it was filled before"
        # It stays frozen until all of these are answered.
        for i in range(64):
            data = bytes([i + 1]) * MIB
            client.write(i * MIB, data)
            assert client.read(i * MIB, MIB) == data
        client.flush()
        rate.write_text("0")
        servers[1].resume()
    volume.wait_converged()
    volume.stop()
    assert_identical(backing, size)
