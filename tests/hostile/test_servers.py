"""A remote leg's server misbehaves: no wrong data is ever read, clients go on, and the leg is whole
again once the server is honest."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import nbd
import pytest
from hemi_harness import Sandbox, Volume, wait_until
from hemi_harness.client import Client
from hemi_harness.hemi import HEMI, MIB, assert_identical, check_message, data_area, leg_bytes
from hemi_harness.sandbox import answers, run_any
from servers import BEHAVIOURS, STRUCTURED, HostileServer

SIZE = 32 * MIB
# Written part of the volume.
USED = 8 * MIB
SLOT = 16 << 10
# Longest time of a client's request, in seconds.
LIMIT = 15.0
# Shortest time of misbehaviour under load, in seconds.
EVIL = 1.0
# Most memory that hemi may ever use, whatever a server sends.
MEMORY = 384 * MIB

SILENT = [name for name, behaviour in BEHAVIOURS.items() if behaviour.silent]
# A leg that is late with a single request but answers others may count as healthy.
SWALLOWED = [name for name in SILENT if not BEHAVIOURS[name].handshake]
HANDSHAKES = [
    name
    for name, behaviour in BEHAVIOURS.items()
    if behaviour.handshake and not behaviour.silent and not behaviour.allowed
]
QUICK = [name for name, behaviour in BEHAVIOURS.items() if not behaviour.silent]
# One of this many behaviours is tried with each change. All take minutes.
SAMPLED = 16


def sampled(names: list[str], first: int = 0) -> list[object]:
    """Returns all names as parameters, most of them of long tests."""
    return [
        name if index % SAMPLED == first else pytest.param(name, marks=pytest.mark.long)
        for index, name in enumerate(names)
    ]


class Load:
    """Writes and reads at random, and knows the written data."""

    def __init__(self, client: Client, seed: str) -> None:
        self._client = client
        self._random = random.Random(seed)
        self.model = bytearray(SIZE)

    def resume(self, client: Client) -> None:
        """Continues on another connection."""
        self._client = client

    def round(self) -> None:
        """Sends requests for separate places, all at once, then perhaps a flush."""
        rng, handle = self._random, self._client.handle
        slots = rng.sample(range(USED // SLOT), 16)
        reads, cookies = [], []
        for index, slot in enumerate(slots):
            first = rng.randrange(SLOT // 512)
            length = rng.randint(1, SLOT // 512 - first) * 512
            offset = slot * SLOT + first * 512
            flags = nbd.CMD_FLAG_FUA if rng.random() < 0.2 else 0
            if index % 2:
                buffer = nbd.Buffer(length)
                reads.append((offset, length, buffer))
                cookies.append(handle.aio_pread(buffer, offset))
            elif index == 0:
                self.model[offset : offset + length] = bytes(length)
                cookies.append(handle.aio_zero(length, offset, flags=flags))
            else:
                data = rng.randbytes(length)
                self.model[offset : offset + length] = data
                cookies.append(self._client.start_write(offset, data, flags=flags))
        for cookie in cookies:
            self._client.finish(cookie)
        for offset, length, buffer in reads:
            self._check(offset, length, bytes(buffer.to_bytearray()))
        if rng.random() < 0.3:
            self._client.flush()

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    def check(self) -> None:
        """Reads all written data."""
        for offset in range(0, USED, 256 << 10):
            self._check(offset, 256 << 10, self._client.read(offset, 256 << 10))

    def _check(self, offset: int, length: int, got: bytes) -> None:
        wanted = self.model[offset : offset + length]
        if got != wanted:
            at = next(i for i in range(length) if got[i] != wanted[i])
            raise AssertionError(f"a wrong read: byte {offset + at}, in {length} at {offset}")


def mirrored(sandbox: Sandbox, style: str, settings: str = "") -> tuple[Volume, HostileServer]:
    """Returns a volume on a file and a server, which serves the reads."""
    local = sandbox.file("local.img", leg_bytes(SIZE))
    server = HostileServer(sandbox, leg_bytes(SIZE), style)
    volume = Volume(sandbox, [local, server.uri], options=["--allow-inject"])
    volume.create(SIZE)
    config = sandbox.path("hemi.toml")
    # A JSON string is a TOML string.
    config.write_text(
        f'engine.clean_after = "500ms"\n{settings}'
        f"control = {json.dumps(str(volume.control))}\n"
        f"legs = [{json.dumps(str(local))},"
        # The server fences an old session when a new one begins.
        f' {{ path = {json.dumps(server.uri)}, quarantine = "200ms" }}]\n'
        f"exports = [{{ nbd = {json.dumps(f'unix:{volume.socket}')} }}]\n"
    )
    volume.serve_with(config)
    volume.start()
    # Reads go to the faster leg.
    volume.inject(0, "--delay", "10ms")
    return volume, server


def suffer(sandbox: Sandbox, name: str, *, waits: bool = False) -> None:
    """Loads a volume before, during and after a server's misbehaviour.

    With `waits` hemi itself has to find out that a silent server will not answer."""
    behaviour = BEHAVIOURS[name]
    volume, server = mirrored(sandbox, behaviour.style)
    with volume.client(timeout=LIMIT) as client:
        load = Load(client, name)
        load.rounds(10)
        client.flush()
        volume.wait_converged(60)
        before = len(volume.process.output())
        server.misbehave(name)
        wanted = behaviour.says if waits or not behaviour.silent else ""
        until = time.monotonic() + EVIL
        latest = until + 90

        def told() -> bool:
            return server.hits() > 0 and wanted in volume.process.output()[before:]

        while time.monotonic() < until or not told():
            load.round()
            volume.process.check_running()
            assert time.monotonic() < latest, f"hits: {server.hits()}, not in the log: {wanted}"
        if behaviour.allowed:
            since = volume.process.output()[before:]
            lost = since.count("the session is lost")
            assert lost == (1 if behaviour.handshake else 0), since
        elif not behaviour.fails and not waits and name not in SWALLOWED:
            state = f"leg 1 is not healthy: {volume.status()['legs'][1]}"
            wait_until(state, lambda: volume.leg_state(1) != "healthy", 10)
        load.check()
        server.behave(drops=behaviour.silent and not waits)
        load.rounds(10)
        client.flush()
        volume.wait_converged(30)
        load.check()
        assert volume.status()["health"] == "healthy"
        assert volume.status()["lost_bytes"] == 0
    end(volume, server)
    assert data_area(Path(volume.legs[0]), SIZE) == load.model


def end(volume: Volume, server: HostileServer) -> None:
    """Stops a converged volume. hemi and its legs must be unharmed."""
    server.process.check_running()
    assert volume.process.peak_memory() < MEMORY
    volume.stop()
    log = volume.process.output()
    check_message(log, [])
    assert "\x1b[2J" not in log, "a server's control characters in the log"
    assert_identical([volume.legs[0], server.image], SIZE)


@pytest.mark.parametrize("name", sampled(QUICK + SILENT))
def test_a_misbehaving_server_harms_nobody(sandbox: Sandbox, name: str) -> None:
    suffer(sandbox, name)


@pytest.mark.long
@pytest.mark.parametrize("name", SILENT)
def test_a_silent_server_is_given_up(sandbox: Sandbox, name: str) -> None:
    suffer(sandbox, name, waits=True)


def test_a_server_that_fails_writes_for_long_is_marked_out(sandbox: Sandbox) -> None:
    volume, server = mirrored(sandbox, STRUCTURED)
    with volume.client(timeout=LIMIT) as client:
        load = Load(client, "out")
        load.rounds(10)
        volume.wait_converged(60)
        server.misbehave("eio-on-each-write")

        def is_out() -> bool:
            load.round()
            return volume.leg_state(1) == "out"

        wait_until("the leg is out", is_out, 30)
        leg = volume.status()["legs"][1]
        assert leg["out_reason"] == "write-errors", leg
        assert leg["owed_bytes"] > 0, leg
        load.check()
        server.behave()
        load.rounds(10)
        volume.wait_converged(60)
        load.check()
        assert volume.status()["health"] == "healthy"
    end(volume, server)
    assert data_area(Path(volume.legs[0]), SIZE) == load.model


# Sessions that begin well, and are lost at the first writes, over and over.
FLAPPING = ["close-after-each-third-request", "data-for-a-write"]


@pytest.mark.long
@pytest.mark.parametrize("name", FLAPPING)
def test_a_start_ends_though_a_session_comes_and_goes(sandbox: Sandbox, name: str) -> None:
    settings = 'engine.out_after = "8s"\nengine.wait.ceiling = "2s"\n'
    volume, server = mirrored(sandbox, BEHAVIOURS[name].style, settings)
    volume.stop()
    server.misbehave(name)
    volume.start()
    # A dead leg is out after eight seconds, one that fails writes after five.
    wait_until("the volume opens", lambda: volume.status()["phase"] == "serving", 25)


@pytest.mark.parametrize("name", sampled([name for name in QUICK if name not in FLAPPING], 2))
def test_a_start_with_a_misbehaving_server_is_refused_or_serves(
    sandbox: Sandbox, name: str
) -> None:
    volume, server = mirrored(sandbox, BEHAVIOURS[name].style)
    with volume.client(timeout=LIMIT) as client:
        load = Load(client, name)
        load.rounds(5)
    volume.wait_converged(60)
    volume.stop()
    server.misbehave(name)
    volume.launch()
    process = volume.process
    wait_until("hemi serves or gives up", lambda: not process.running or serves(volume), 20)
    if process.running:
        with volume.client(timeout=LIMIT) as client:
            load.resume(client)
            load.rounds(5)
            load.check()
        server.behave()
    else:
        assert (process.returncode or 0) > 0, process.output()
        check_message(process.output(), [])
        server.behave()
        volume.start()
    with volume.client(timeout=LIMIT) as client:
        load.resume(client)
        load.rounds(5)
        load.check()
    volume.wait_converged(60)
    end(volume, server)
    assert data_area(Path(volume.legs[0]), SIZE) == load.model


def serves(volume: Volume) -> bool:
    return answers(volume.socket) and answers(volume.control)


@pytest.mark.parametrize("name", [name for name in HANDSHAKES if name != "smaller-export"])
def test_nothing_is_created_on_a_misbehaving_server(sandbox: Sandbox, name: str) -> None:
    server = HostileServer(sandbox, leg_bytes(SIZE), STRUCTURED)
    server.misbehave(name)
    local = sandbox.path("local.img")
    argv = ("create", "--size", SIZE, "--leg", local, "--leg", server.uri)
    code, out, err = run_any(HEMI, *argv, timeout=20)
    assert code > 0, out
    check_message(out + err, [])
    assert "\x1b[2J" not in out + err
    assert not local.exists(), "a refusal leaves nothing behind"


@pytest.mark.parametrize("name", sampled(QUICK, 4))
def test_a_misbehaving_server_is_inspected(sandbox: Sandbox, name: str) -> None:
    server = HostileServer(sandbox, leg_bytes(SIZE), BEHAVIOURS[name].style)
    server.misbehave(name)
    code, out, err = run_any(HEMI, "inspect", "--ledger", "none", server.uri, timeout=20)
    # There is no leg on it in any case.
    assert code > 0, out
    check_message(out + err, [])
    assert "\x1b[2J" not in out + err
