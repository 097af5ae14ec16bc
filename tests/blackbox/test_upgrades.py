"""`hemi upgrade`: another program goes on, and clients that never reconnect see only a pause."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import struct
import threading
import time
from pathlib import Path

import nbd
import pytest
from hemi_harness import (
    HEMI,
    Client,
    Fio,
    NbdError,
    Nbdkit,
    Sandbox,
    Volume,
    hemi_fails,
    run,
    tls,
    wait_until,
)
from hemi_harness.hemi import MIB, assert_identical
from hemi_harness.history import History
from hemi_harness.journal import Journal
from hemi_harness.sandbox import PATIENCE, free_port
from hemi_harness.verifying_load import Mix, VerifyingLoad

SIZE = 64 * MIB
# Clients wait less than a second on a machine of their own, but tests share one.
PAUSE_MAX = 5.0
REQUEST, REPLY = 0x25609513, 0x67446698
READ, WRITE, FLUSH = 0, 1, 3


def upgrade(volume: Volume, *options: str | Path) -> float:
    """Upgrades hemi. Returns the seconds that clients waited."""
    before = volume.process.pid
    said = volume.command("upgrade", *options)
    assert "went on for" in said, said
    volume.process.check_running()
    assert volume.process.pid == before
    pause = float(volume.status()["taken_over"]["pause_ns"]) / 1e9
    assert 0 < pause < PAUSE_MAX, said
    return pause


def writes(volume: Volume) -> int:
    """Returns the writes since the serving program began."""
    return int(volume.status()["clients"]["writes"]["total"]["count"])


class Raw:
    """A client that sends given bytes, piece by piece."""

    def __init__(self, volume: Volume, *, go: bool = True, tcp: int | None = None) -> None:
        if tcp is None:
            self.socket = socket.socket(socket.AF_UNIX)
            address: str | tuple[str, int] = str(volume.socket)
        else:
            self.socket = socket.socket(socket.AF_INET)
            address = ("127.0.0.1", tcp)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(address)
        if go:
            assert self.receive(18)[:8] == b"NBDMAGIC"
            self.send(self.hello())
            self.receive(10)

    @staticmethod
    def hello() -> bytes:
        """Returns client flags, and EXPORT_NAME of the default export, answered without zeroes."""
        return struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            assert piece, f"the connection ended {length - len(data)} bytes early"
            data += piece
        return data

    def reply(self, cookie: int) -> None:
        magic, error, got = struct.unpack(">IIQ", self.receive(16))
        assert (magic, error, got) == (REPLY, 0, cookie)

    def replies(self, *cookies: int) -> None:
        """Checks that these requests are answered without data, in any order."""
        got = [struct.unpack(">IIQ", self.receive(16)) for _ in cookies]
        assert sorted(got) == sorted((REPLY, 0, cookie) for cookie in cookies)


def request(kind: int, cookie: int, offset: int = 0, length: int = 0) -> bytes:
    return struct.pack(">IHHQQI", REQUEST, 0, kind, cookie, offset, length)


def pattern(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length)


def test_a_client_sees_a_pause_and_nothing_else(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    context = "base:allocation"
    with volume.client(contexts=[context]) as client, volume.client() as other:
        for turn in range(4):
            data = pattern(turn, 128 << 10)
            client.write(turn * MIB, data)
            upgrade(volume)
            status = volume.status()
            assert status["taken_over"]["upgrades"] == turn + 1
            assert status["taken_over"]["connections"] == 2
            assert status["taken_over"]["cut"] == 0
            # Connections that only checked for a listener were accepted too.
            assert status["clients"]["connections"]["open"] == 2
            assert status["clients"]["connections"]["accepted"] >= 2
            assert other.read(turn * MIB, len(data)) == data
            client.flush()
            assert client.block_status(0, MIB)[context]
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_a_new_file_takes_the_place_of_the_old_one(sandbox: Sandbox) -> None:
    program, new = sandbox.path("hemi"), sandbox.path("hemi.new")
    shutil.copy(HEMI, program)
    volume = Volume.on_files(sandbox, SIZE, start=False)
    volume.prefix = []
    volume.serve_argv = lambda: [program, *Volume.serve_argv(volume)[1:]]  # type: ignore[method-assign]
    volume.start()
    with volume.client() as client:
        client.write(0, b"x" * 4096)
        shutil.copy(HEMI, new)
        new.rename(program)
        link = Path(f"/proc/{volume.process.pid}/exe")
        assert str(link.readlink()).endswith(" (deleted)")
        upgrade(volume)
        assert link.readlink() == program
        # Another program, by name.
        shutil.copy(HEMI, new)
        upgrade(volume, "--binary", new)
        assert link.readlink() == new
        assert client.read(0, 4096) == b"x" * 4096


@pytest.mark.parametrize("transport", ["unix", pytest.param("tcp", marks=pytest.mark.long)])
def test_a_verified_load_goes_on(sandbox: Sandbox, transport: str) -> None:
    port = free_port()
    options = ("--nbd", f"tcp:127.0.0.1:{port}", "--http", "127.0.0.1:0")
    volume = Volume.on_files(sandbox, SIZE, options=options)
    uri = volume.uri if transport == "unix" else f"nbd://127.0.0.1:{port}"
    load = Fio(
        sandbox, uri, rw="randwrite", bsrange="4k-1m", iodepth=16, size=SIZE, loops=1000,
        time_based=1, runtime=25, verify="crc32c", verify_backlog=64, verify_fatal=1,
    )  # fmt: skip
    wait_until(
        "the load has begun", lambda: volume.status()["clients"]["writes"]["total"]["count"] > 50
    )
    for _ in range(8):
        upgrade(volume)
        time.sleep(random.uniform(0, 0.3))
    assert load.process.running
    load.wait()
    volume.stop()
    assert_identical(volume.legs, SIZE)


@pytest.mark.parametrize("seed", range(4))
def test_every_read_is_right_over_upgrades_and_a_kill(sandbox: Sandbox, seed: int) -> None:
    """Sends all kinds of requests over several connections, sometimes with so few buffers that some
    wait."""
    rng = random.Random(seed)
    budget = rng.choice(["16MiB", "256MiB"])
    volume = Volume.on_files(sandbox, SIZE, options=("--buffer-budget", budget))
    load = VerifyingLoad(volume.uri, History(SIZE // 4096, 4096))
    failed: list[BaseException] = []

    def upgrades_and_kill() -> None:
        try:
            for _ in range(6):
                upgrade(volume)
                enough = load.writes + 20

                def goes_on(enough: int = enough) -> bool:
                    return load.writes >= enough

                wait_until("the load goes on", goes_on)
        except BaseException as error:  # raised below, by the main thread
            failed.append(error)
        finally:
            volume.kill()

    load.connect(Mix.drawn(rng, 1024))
    thread = threading.Thread(target=upgrades_and_kill)
    thread.start()
    load.run(Mix.drawn(random.Random(seed), 1024), rng, lambda: volume.process.running)
    thread.join()
    if failed:
        raise failed[0]
    volume.start()
    load.verify()


@pytest.mark.parametrize("copy", ["write", "read"])
def test_a_copy_goes_on(sandbox: Sandbox, copy: str) -> None:
    volume = Volume.on_files(sandbox, 4 * SIZE)
    image, other = sandbox.path("image"), sandbox.path("other")
    image.write_bytes(b"".join(pattern(part, SIZE) for part in range(4)))
    if copy == "read":
        run("nbdcopy", image, volume.uri)
    source, target = (image, volume.uri) if copy == "write" else (volume.uri, other)
    other.touch()
    os.truncate(other, 4 * SIZE)
    copying = sandbox.start("nbdcopy", "--connections=4", "--flush", source, target, name="copy")
    upgrade(volume)
    while copying.running:
        upgrade(volume)
    assert copying.wait() == 0, copying.output()
    if copy == "write":
        run("nbdcopy", volume.uri, other)
    assert other.read_bytes() == image.read_bytes()


def test_qemu_sees_a_pause_and_nothing_else(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    script = sandbox.path("io")
    steps = [f"write -P {turn + 1} {turn}M 1M\nflush\nsleep 300" for turn in range(16)]
    checks = [f"read -P {turn + 1} {turn}M 1M" for turn in range(16)]
    script.write_text("\n".join([*steps, *checks, "quit", ""]))
    qemu = sandbox.start("sh", "-c", f"qemu-io -f raw '{volume.uri}' < {script}", name="qemu-io")
    wait_until("it writes", lambda: writes(volume) > 0)
    upgrades = 0
    while qemu.running:
        upgrade(volume)
        upgrades += 1
    assert upgrades > 1
    said = qemu.output()
    assert qemu.wait() == 0, said
    assert "rror" not in said and "failed" not in said, said


@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.parametrize(
    "cut", [1, 4, 27, 28, 29, 28 + 300_000, 28 + MIB, 28 + MIB + 5, 28 + 3 * MIB - 1]
)
def test_half_a_request_is_finished_afterwards(sandbox: Sandbox, cut: int, transport: str) -> None:
    port = free_port()
    volume = Volume.on_files(sandbox, SIZE, options=("--nbd", f"tcp:127.0.0.1:{port}"))
    raw = Raw(volume, tcp=port if transport == "tcp" else None)
    data = pattern(cut, 3 * MIB)
    whole = request(WRITE, 77, 5 * MIB, len(data)) + data
    raw.send(whole[:cut])
    time.sleep(0.05)
    upgrade(volume)
    # Twice in the middle of one request.
    between = (cut + len(whole)) // 2
    raw.send(whole[cut:between])
    upgrade(volume)
    raw.send(whole[between:])
    raw.reply(77)
    raw.send(request(READ, 78, 5 * MIB, len(data)))
    raw.reply(78)
    assert raw.receive(len(data)) == data


def test_a_client_that_does_not_read_gets_all_its_answers(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    data = pattern(1, 16 * MIB)
    with volume.client() as client:
        for at in range(0, len(data), MIB):
            client.write(at, data[at : at + MIB])
    raw = Raw(volume)
    # More than the sockets' buffers hold, a write in between, and half a header at the end.
    for index in range(16):
        raw.send(request(READ, index, index * MIB, MIB))
    late = request(READ, 99, 0, 512)
    raw.send(request(WRITE, 50, 32 * MIB, 4096) + b"w" * 4096 + late[:10])
    time.sleep(0.3)
    upgrade(volume)
    upgrade(volume)
    raw.send(late[10:])
    seen = set()
    for _ in range(18):
        magic, error, cookie = struct.unpack(">IIQ", raw.receive(16))
        assert (magic, error) == (REPLY, 0)
        if cookie < 16:
            assert raw.receive(MIB) == data[cookie * MIB : (cookie + 1) * MIB]
        if cookie == 99:
            assert raw.receive(512) == data[:512]
        seen.add(cookie)
    assert seen == {*range(16), 50, 99}


@pytest.mark.parametrize("cut", [0, 2, 4, 9, 20])
def test_a_client_in_the_handshake_goes_on(sandbox: Sandbox, cut: int) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    raw = Raw(volume, go=False)
    hello = Raw.hello()
    raw.send(hello[:cut])
    time.sleep(0.05)
    upgrade(volume)
    raw.send(hello[cut:])
    assert raw.receive(18)[:8] == b"NBDMAGIC"
    raw.receive(10)
    raw.send(request(WRITE, 1, 0, 512) + b"h" * 512 + request(FLUSH, 2))
    raw.replies(1, 2)


def test_clients_that_call_meanwhile_are_let_in(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    command = sandbox.start(HEMI, "upgrade", "--control", volume.control, name="upgrade")
    called = 0
    while command.running:
        with volume.client() as client:
            client.write(0, b"c" * 512)
        called += 1
    assert command.wait() == 0, command.output()
    assert called > 0
    volume.process.check_running()


def script(sandbox: Sandbox, text: str) -> Path:
    path = sandbox.path("other-program")
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo 'no such option' >&2; exit 2", "no such option"),
        ("echo hello", "not that of a hemi"),
        ("""echo '{"version":"0.0.1","reads":0}'""", "up to format 0"),
        ("exec sleep 60", "did not answer within 10 s"),
    ],
)
def test_a_program_that_cannot_go_on_is_refused(sandbox: Sandbox, text: str, says: str) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    with volume.client() as client:
        other = script(sandbox, text)
        hemi_fails("upgrade", "--control", volume.control, "--binary", other, says=[says])
        missing = ("--binary", "/no/such/hemi")
        hemi_fails("upgrade", "--control", volume.control, *missing, says=["cannot be run"])
        client.write(0, b"y" * 512)
        assert volume.status()["taken_over"] is None
    assert "at rest" not in volume.process.output(), "clients have not even been paused"


def test_an_invalid_configuration_is_found_before_anything_changes(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, start=False)
    config = sandbox.path("db.toml")
    legs = ", ".join(f'{{ path = "{leg}" }}' for leg in volume.legs)
    good = (
        f'control = "{volume.control}"\nlegs = [{legs}]\n'
        f'exports = [{{ nbd = "unix:{volume.socket}" }}]\n'
    )
    config.write_text(good)
    volume.serve_with(config)
    volume.start()
    with volume.client() as client:
        config.write_text(good + "no_such_key = 1\n")
        hemi_fails("upgrade", "--control", volume.control, says=["no_such_key"])
        client.write(0, b"z" * 512)
        # Other changes hold from then on.
        config.write_text(good + "drain_on_stop = '7s'\n")
        upgrade(volume)
        assert "7s" in volume.curl("/v1/config")[1]
        assert client.read(0, 512) == b"z" * 512


def test_the_program_from_before_goes_on_if_the_new_one_cannot_be_run(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    # It answers, and is gone when it is to be run.
    other = script(sandbox, f'rm -f "$0"; exec {HEMI} "$@"')
    with volume.client() as client:
        client.write(0, b"f" * 512)
        says = ["could not be run", "the program from before goes on"]
        hemi_fails("upgrade", "--control", volume.control, "--binary", other, says=says)
        assert client.read(0, 512) == b"f" * 512
        upgrade(volume)
        assert client.read(0, 512) == b"f" * 512


def test_a_frozen_leg_refuses_an_upgrade(sandbox: Sandbox) -> None:
    options = ("--set", "engine.out_after=1day")
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=options)
    with volume.client() as client:
        client.write(0, b"a" * 4096)
        volume.inject(1, "--freeze", "1h")
        client.write(4096, b"b" * 4096)
        volume.wait_leg_state(1, "frozen")
        says = ["leg 1 does not answer", "hemi leg detach"]
        hemi_fails("upgrade", "--control", volume.control, says=says)
        client.write(8192, b"c" * 4096)
        volume.inject(1, "--clear")
        wait_until("it answers", lambda: volume.leg_state(1) != "frozen")
        upgrade(volume)
        assert client.read(0, 12288) == b"a" * 4096 + b"b" * 4096 + b"c" * 4096
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


@pytest.mark.long
def test_requests_that_are_not_answered_end_an_upgrade(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True)
    with volume.client() as client, volume.client() as other:
        for leg in (0, 1):
            volume.inject(leg, "--freeze", "1h")
        cookie = client.start_write(0, b"d" * 4096)
        wait_until("it is in flight", lambda: volume.status()["clients"]["requests"] > 0)
        refused = hemi_fails("upgrade", "--control", volume.control)
        assert "not answered within" in refused or "does not answer" in refused
        for leg in (0, 1):
            volume.inject(leg, "--clear")
        client.finish(cookie)
        other.write(8192, b"e" * 512)
        assert client.read(0, 4096) == b"d" * 4096
        # The server still listens, and another attempt succeeds.
        with volume.client() as third:
            third.flush()
        wait_until(
            "both answer",
            lambda: {volume.leg_state(0), volume.leg_state(1)} <= {"healthy", "lagging"},
        )
        upgrade(volume)
        assert other.read(8192, 512) == b"e" * 512


def test_an_upgrade_waits_for_a_leg_that_soon_answers(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True)
    with volume.client() as client:
        client.write(0, b"a" * 4096)
        volume.inject(1, "--freeze", "4s")
        client.write(4096, b"b" * 4096)
        volume.wait_leg_state(1, "frozen")
        # Clients do not wait that long.
        assert upgrade(volume) < 4
        assert client.read(0, 8192) == b"a" * 4096 + b"b" * 4096


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2, 0.4, 0.8])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_server_killed_in_an_upgrade_loses_nothing(
    sandbox: Sandbox, number: signal.Signals, delay: float
) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    journal = Journal(volume.uri, blocks=1024)

    def end() -> None:
        sandbox.start(HEMI, "upgrade", "--control", volume.control, name="upgrade")
        time.sleep(delay)
        volume.signal(number)

    journal.run(100_000, at={300: end})
    code = volume.process.wait()
    assert code in (0, -number), volume.process.output()
    volume._killed = True
    volume.start()
    journal.verify()


def test_a_signal_between_two_programs_stops_the_volume(sandbox: Sandbox) -> None:
    """The old program's tasks have ended already, and it has not become the new program yet."""
    volume = Volume.on_files(sandbox, SIZE)
    for after_ms in (0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 6):
        process = volume.process
        sandbox.start(HEMI, "upgrade", "--control", volume.control, name="upgrade")
        while "clients are at rest" not in process.output():
            process.check_running()
        time.sleep(after_ms / 1000)
        volume.signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM), process.output()
        volume._killed = True
        volume.start()


def test_metrics_and_control_stay_where_they_are(sandbox: Sandbox) -> None:
    port = free_port()
    volume = Volume.on_files(sandbox, SIZE, options=("--http", f"127.0.0.1:{port}"))
    identity = volume.control.stat().st_ino, volume.socket.stat().st_ino
    volume.control.chmod(0o660)
    upgrade(volume)
    assert (volume.control.stat().st_ino, volume.socket.stat().st_ino) == identity
    assert volume.control.stat().st_mode & 0o777 == 0o660
    assert "hemi_serving 1" in run("curl", "--silent", f"http://127.0.0.1:{port}/metrics")
    volume.stop()
    assert not volume.control.exists() and not volume.socket.exists()


def test_descriptors_and_memory_do_not_pile_up(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    folder = Path(f"/proc/{volume.process.pid}/fd")
    with volume.client() as client:
        upgrade(volume)
        first = len(list(folder.iterdir()))
        for turn in range(5):
            upgrade(volume)
            client.write(turn * 4096, b"m" * 4096)
        assert len(list(folder.iterdir())) <= first


def test_clients_with_tls_are_cut_off_by_force_only(sandbox: Sandbox) -> None:
    certificates = tls.make(sandbox)
    volume = Volume.on_files(sandbox, SIZE, start=False)
    port = free_port()
    config = sandbox.path("db.toml")
    legs = ", ".join(f'"{leg}"' for leg in volume.legs)
    config.write_text(
        f'legs = [{legs}]\ncontrol = "{volume.control}"\n'
        f'[[exports]]\nnbd = "unix:{volume.socket}"\n'
        f'[[exports]]\nnbd = "tcp:localhost:{port}"\n'
        f'tls = {{ cert = "{certificates.server_certificate}", '
        f'key = "{certificates.server_key}", required = true }}\n'
    )
    volume.serve_with(config)
    volume.start()
    uri = f"nbds://localhost:{port}/?tls-certificates={certificates.anonymous}"
    with volume.client() as plain, Client(uri) as secure:
        secure.write(0, b"s" * 512)
        says = ["clients use TLS (1)", "--force"]
        hemi_fails("upgrade", "--control", volume.control, says=says)
        assert secure.read(0, 512) == b"s" * 512
        upgrade(volume, "--force")
        over = volume.status()["taken_over"]
        assert (over["connections"], over["cut"]) == (1, 1)
        assert plain.read(0, 512) == b"s" * 512
        with pytest.raises((NbdError, nbd.Error)):
            secure.read(0, 512)
    with Client(uri) as again:
        assert again.read(0, 512) == b"s" * 512


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to become another user")
def test_whoever_shares_the_control_socket_may_not_name_a_program(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    sandbox.dir.chmod(0o755)
    volume.control.chmod(0o666)
    ask = (
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "curl", "--silent",
        "--unix-socket", volume.control, "http://hemi/v1/upgrade", "--data",
    )  # fmt: skip
    answer = json.loads(run(*ask, f'{{"binary": "{HEMI}"}}'))
    assert answer["error"] == "forbidden" and "only root" in answer["what"]
    assert json.loads(run(*ask, "{}")) == {"done": True}
    wait_until("the next program serves", lambda: _is_upgraded(volume))


def _is_upgraded(volume: Volume) -> bool:
    try:
        return volume.status()["taken_over"] is not None
    except AssertionError:
        return False


def test_a_remote_leg_needs_no_quarantine(sandbox: Sandbox) -> None:
    leg = Nbdkit(sandbox, size=SIZE + 32 * MIB)
    local = sandbox.file("leg0.img", SIZE + 32 * MIB)
    volume = Volume(sandbox, [local, leg.uri])
    volume.create(SIZE)
    volume.start()
    with volume.client() as client:
        for turn in range(3):
            data = pattern(turn, MIB)
            client.write(turn * MIB, data)
            # The quarantine takes 10 s.
            upgrade(volume)
            assert client.read(turn * MIB, MIB) == data
    volume.wait_converged()


def test_an_upgrade_waits_for_a_volume_that_is_being_opened(sandbox: Sandbox) -> None:
    slow = Nbdkit(
        sandbox, size=SIZE + 32 * MIB, options=("--filter=delay",), extra=("wdelay=400ms",)
    )
    volume = Volume(sandbox, [sandbox.file("leg0.img", SIZE + 32 * MIB), slow.uri])
    volume.create(SIZE)
    volume.start()
    assert "went on for" in volume.command("upgrade")


def test_an_upgrade_does_not_wait_for_a_scrub(sandbox: Sandbox) -> None:
    slow = Nbdkit(
        sandbox, size=SIZE + 32 * MIB, options=("--filter=delay",), extra=("rdelay=100ms",)
    )
    volume = Volume(sandbox, [sandbox.file("leg0.img", SIZE + 32 * MIB), slow.uri])
    volume.create(SIZE)
    volume.start()
    wait_until("it is open", lambda: volume.status()["health"] == "healthy")
    scrub = threading.Thread(target=volume.command, args=("scrub",))
    scrub.start()
    wait_until("it scrubs", lambda: volume.status()["scrub"]["running"])
    hemi_fails("upgrade", "--control", volume.control, says=["busy with other commands"])
    assert volume.status()["scrub"]["running"]
    volume.command("scrub", "--stop")
    scrub.join()


class Systemd:
    """Imitates systemd for a service with a descriptor store.

    It takes descriptors by name, passes them to the next process, and forgets them on request."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.path = sandbox.path("notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.setblocking(False)
        self.kept: dict[str, int] = {}
        self.said: list[str] = []

    def listen(self) -> None:
        """Receives all messages so far."""
        while True:
            try:
                text, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 8)
            except BlockingIOError:
                return
            fields = dict(line.split("=", 1) for line in text.decode().splitlines())
            self.said.append(text.decode())
            if "FDSTORE" in fields:
                (self.kept[fields["FDNAME"]],) = descriptors
            if "FDSTOREREMOVE" in fields:
                os.close(self.kept.pop(fields["FDNAME"]))

    def environment(self, room: int = 100) -> dict[str, str]:
        self.listen()
        return {
            **os.environ,
            "NOTIFY_SOCKET": str(self.path),
            "FDSTORE": str(room),
            "STORED": " ".join(str(descriptor) for descriptor in self.kept.values()),
            "LISTEN_FDNAMES": ":".join(self.kept),
        }

    def pass_on(self, volume: Volume, sandbox: Sandbox) -> None:
        """Passes the kept descriptors to the volume's next process, from 3 on."""
        # The descriptors are this process's. A shell could open the paths behind them, but not
        # sockets, so they are passed over a socket.
        volume.prefix = ["/usr/bin/python3", _starter(sandbox), self.path.with_suffix(".pass")]


def _starter(sandbox: Sandbox) -> Path:
    path = sandbox.path("start.py")
    path.write_text(
        "import os, socket, sys\n"
        "server = socket.socket(socket.AF_UNIX)\n"
        "server.connect(sys.argv[1])\n"
        "text, fds, _, _ = socket.recv_fds(server, 65536, 250)\n"
        # Out of the way first: the numbers may overlap.
        "fds = [os.dup2(fd, 500 + at, False) for at, fd in enumerate(fds)]\n"
        "server.close()\n"
        "for at, fd in enumerate(fds):\n"
        "    os.dup2(fd, 3 + at, True)\n"
        "    os.set_inheritable(fd, False)\n"
        "os.environ['LISTEN_PID'] = str(os.getpid())\n"
        "os.environ['LISTEN_FDS'] = str(len(fds))\n"
        "os.execv(sys.argv[2], sys.argv[2:])\n"
    )
    return path


def restart(volume: Volume, systemd: Systemd, sandbox: Sandbox, room: int = 100) -> None:
    """Stops and starts the volume as a service."""
    assert volume.process.terminate() == 0, volume.process.output()
    start(volume, systemd, sandbox, room)


def start(volume: Volume, systemd: Systemd, sandbox: Sandbox, room: int = 100) -> None:
    systemd.pass_on(volume, sandbox)
    volume.env = systemd.environment(room)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(volume.prefix[2]))
        listener.listen()
        volume.launch()
        listener.settimeout(PATIENCE)
        connection, _ = listener.accept()
        with connection:
            socket.send_fds(connection, [b"x"], list(systemd.kept.values()))
    Path(str(volume.prefix[2])).unlink()
    volume.wait_serving()
    wait_until("it has taken them", lambda: not _still_kept(systemd))


def _still_kept(systemd: Systemd) -> bool:
    systemd.listen()
    return bool(systemd.kept)


def test_a_service_is_restarted_with_its_clients(sandbox: Sandbox) -> None:
    systemd = Systemd(sandbox)
    volume = Volume.on_files(sandbox, SIZE, start=False)
    start(volume, systemd, sandbox)
    raw = Raw(volume)
    data = pattern(9, 2 * MIB)
    whole = request(WRITE, 5, 0, len(data)) + data
    with volume.client() as client:
        for turn in range(3):
            client.write(8 * MIB + turn * 4096, pattern(turn, 4096))
            raw.send(whole[: MIB + 99])
            time.sleep(0.05)
            before = volume.process.pid
            restart(volume, systemd, sandbox)
            assert volume.process.pid != before
            raw.send(whole[MIB + 99 :])
            raw.reply(5)
            for known in range(turn + 1):
                assert client.read(8 * MIB + known * 4096, 4096) == pattern(known, 4096)
            assert volume.status()["taken_over"]["connections"] == 2
        # An upgrade in place works too, after a start that was passed descriptors.
        upgrade(volume)
        assert client.read(0, len(data)) == data
        # A stop leaves nothing: systemd closes the kept descriptors, and clients see the end.
        assert volume.process.terminate() == 0
        systemd.listen()
        assert len(systemd.kept) == 5
        for descriptor in systemd.kept.values():
            os.close(descriptor)
        systemd.kept.clear()
        with pytest.raises((NbdError, nbd.Error)):
            client.read(0, 512)
    start(volume, systemd, sandbox)
    with volume.client() as client:
        assert client.read(0, len(data)) == data


def test_a_service_without_room_in_the_store_stops_as_ever(sandbox: Sandbox) -> None:
    systemd = Systemd(sandbox)
    volume = Volume.on_files(sandbox, SIZE, start=False)
    start(volume, systemd, sandbox, room=0)
    with volume.client() as client:
        client.write(0, b"r" * 512)
        assert volume.process.terminate() == 0
        systemd.listen()
        assert not systemd.kept
    assert not volume.socket.exists()


def test_a_hand_over_that_is_none_is_refused(sandbox: Sandbox) -> None:
    for named in ("junk", "0", "77", "99999999999"):
        volume = Volume.on_files(sandbox, SIZE, start=False)
        volume.env = {**os.environ, "HEMI_HANDOVER_FD": named}
        volume.start()
        with volume.client() as client:
            client.write(0, b"n" * 512)
        assert "cannot be used" in volume.process.output()
        volume.stop()
