"""A virtual machine's disk (vhost-user-blk), with the tests' own front end."""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hemi_harness import Arg, NbdError, Sandbox, Volume, hemi_fails, wait_until
from hemi_harness.hemi import MIB, assert_identical, data_area
from hemi_harness.vhost import (
    AVAILABLE,
    DISCARD,
    EVENT_INDEX,
    FAILED,
    FLUSH,
    GUEST,
    HEADERS,
    IDENTIFY,
    INDIRECT,
    INDIRECT_TABLE,
    MEMORY,
    NEXT,
    OK,
    PAYLOAD,
    READ,
    SET_MEM_TABLE,
    SET_VRING_KICK,
    SIZE,
    TABLES,
    UNSUPPORTED,
    WRITABLE,
    WRITE,
    WRITE_ZEROES,
    HungUp,
    Machine,
)

VOLUME = 32 * MIB
BLOCK = 4096
ROUNDS = 12 if os.environ.get("HEMI_TEST_ROUNDS") == "long" else 4


@pytest.fixture
def volume(sandbox: Sandbox) -> Volume:
    options: list[Arg] = ["--vhost", sandbox.path("vol.vhost")]
    return Volume.on_files(sandbox, VOLUME, inject=True, options=options, create=["--name", "disk"])


def socket_of(volume: Volume) -> Path:
    return Path(str(volume.options[volume.options.index("--vhost") + 1]))


@pytest.fixture
def machine(volume: Volume) -> Iterator[Machine]:
    machine = Machine(socket_of(volume))
    yield machine
    machine.close()


def test_requests(volume: Volume, machine: Machine) -> None:
    machine.connect()
    configuration = machine.configuration()
    assert struct.unpack_from("<Q", configuration)[0] == VOLUME // 512
    assert struct.unpack_from("<I", configuration, 20)[0] == 512
    data = random.Random(1).randbytes(100_352)
    assert machine.do(WRITE, 8, data) == (OK, b"")
    assert machine.do(READ, 8, length=len(data)) == (OK, data)
    assert machine.do(READ, 9, length=512) == (OK, data[512:1024])
    assert machine.do(FLUSH, 0)[0] == OK
    assert machine.do(IDENTIFY, 0, length=20) == (OK, b"disk".ljust(20, b"\0"))
    assert machine.do(WRITE_ZEROES, 0, struct.pack("<QII", 16, 8, 1))[0] == OK
    assert machine.do(DISCARD, 0, struct.pack("<QII", 32, 8, 0))[0] == OK
    data = data[: 8 * 512] + bytes(8 * 512) + data[16 * 512 :]
    assert machine.do(READ, 8, length=8192)[1] == data[:8192]
    # hemi reports requests it cannot do, and goes on.
    end = VOLUME // 512
    for kind, sector, payload, length, status in [
        (READ, end, b"", 512, FAILED),
        (READ, end - 1, b"", 1024, FAILED),
        (WRITE, 2**63, b"x" * 512, 0, FAILED),
        (WRITE, 0, b"x" * 100, 0, FAILED),
        (READ, 0, b"", 0, FAILED),
        (DISCARD, 0, struct.pack("<QII", 16, 8, 1), 0, UNSUPPORTED),
        (DISCARD, 0, struct.pack("<QII", end, 8, 0), 0, FAILED),
        (WRITE_ZEROES, 0, b"short", 0, FAILED),
        (IDENTIFY, 0, b"", 19, FAILED),
        (99, 0, b"", 0, UNSUPPORTED),
    ]:
        assert machine.do(kind, sector, payload, length)[0] == status, (kind, sector)
    # The same bytes through NBD.
    with volume.client() as client:
        assert client.read(8192, 8192) == data[4096:12288]
    assert machine.stop_queue() == machine.available
    machine.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, VOLUME)


@pytest.mark.parametrize("features", [0, EVENT_INDEX, INDIRECT])
def test_a_guest_with_few_features(volume: Volume, features: int) -> None:
    machine = Machine(socket_of(volume), features=features)
    machine.connect(inflight=False)
    for round_ in range(200):
        data = random.Random(round_).randbytes(BLOCK)
        assert machine.do(WRITE, 8 * round_, data)[0] == OK
        assert machine.do(READ, 8 * round_, length=BLOCK) == (OK, data)
    machine.close()


def test_a_disk_that_is_read_only(sandbox: Sandbox) -> None:
    options: list[Arg] = ["--vhost", sandbox.path("vol.vhost"), "--read-only"]
    machine = Machine(socket_of(Volume.on_files(sandbox, VOLUME, options=options)))
    machine.connect()
    assert machine.do(WRITE, 0, bytes(512))[0] == FAILED
    assert machine.do(READ, 0, length=512)[0] == OK
    machine.close()


def test_one_machine_at_a_time(volume: Volume, machine: Machine) -> None:
    machine.connect()
    second = Machine(machine.path)
    with pytest.raises(HungUp):
        second.negotiate()
    assert machine.do(FLUSH, 0)[0] == OK
    wait_until("the log says so", lambda: "another virtual machine has the disk" in said(volume))
    machine.disconnect()
    second.reconnect()
    assert second.do(FLUSH, 0)[0] == OK
    second.close()


class Load:
    """Blocks with versions: answered writes must be found, other blocks are old or new."""

    def __init__(self, machine: Machine, seed: int = 0) -> None:
        self.machine = machine
        self.random = random.Random(seed)
        self.blocks = [0] * 512
        self.asked: dict[int, int] = {}
        self.version = 0

    def block(self, number: int, version: int) -> bytes:
        return struct.pack("<QQ", number, version) * (BLOCK // 16) if version else bytes(BLOCK)

    def go_on(self, seconds: float, least: int) -> None:
        """Keeps the queue full for `seconds` and at least `least` requests. Fails at the first
        error."""
        until, last = time.monotonic() + seconds, self.version + least
        limit = until + 60
        while time.monotonic() < until or self.version < last:
            assert time.monotonic() < limit, f"{len(self.machine.requests)} requests have no answer"
            while len(self.machine.requests) < 12 and self.machine.free:
                number = self.random.randrange(512)
                if number in self.asked:
                    continue
                self.version += 1
                self.asked[number] = self.version
                kind, data = WRITE, self.block(number, self.version)
                if self.random.random() < 0.3:
                    kind, data = READ, b""
                    self.asked[number] = self.blocks[number]
                length = 0 if data else BLOCK
                self.machine.submit(kind, 8 * number, data, length)
            self.take_in()
            time.sleep(0.0002)

    def take_in(self) -> None:
        for request, status, payload in self.machine.answers():
            number = request.sector // 8
            version = self.asked.pop(number)
            assert status == OK
            if request.kind == READ:
                assert payload == self.block(number, self.blocks[number])
            self.blocks[number] = version

    def settle(self) -> None:
        """Waits for all answers."""
        until = time.monotonic() + 60
        while self.machine.requests:
            self.take_in()
            time.sleep(0.0002)
            assert time.monotonic() < until, f"{len(self.machine.requests)} requests have no answer"

    def check(self, image: bytes) -> None:
        for number, version in enumerate(self.blocks):
            at = number * BLOCK
            assert image[at : at + BLOCK] == self.block(number, version), f"block {number}"


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_guest_goes_on_over_restarts(volume: Volume, machine: Machine, end: str) -> None:
    """Checks that no request fails, no answer is lost or repeated, and every write is there."""
    machine.connect()
    load = Load(machine)
    for round_ in range(ROUNDS):
        volume.inject(1, "--delay", "3ms")
        load.go_on(0.7, least=100)
        if end == "kill":
            # In the middle: with a slow leg, some requests are in flight.
            volume.kill()
        else:
            volume.process.terminate()
        load.take_in()
        left = len(machine.requests)
        volume.start()
        machine.reconnect()
        load.settle()
        print(f"round {round_}: {left} requests were in flight")
    load.settle()
    assert machine.stop_queue() == machine.available
    volume.wait_converged()
    machine.disconnect()
    volume.stop()
    assert_identical(volume.legs, VOLUME)
    load.check(data_area(Path(volume.legs[0]), VOLUME))


def test_requests_in_flight_are_done_again(volume: Volume, machine: Machine) -> None:
    """Checks that writes in flight at the kill end after it, in the order of their arrival."""
    machine.connect()
    for leg in (0, 1):
        volume.inject(leg, "--freeze", "1h")
    # Two of them to the same place.
    data = [bytes([number]) * BLOCK for number in range(1, 9)]
    requests = [machine.submit(WRITE, 8 * min(n, 6), d) for n, d in enumerate(data)]
    time.sleep(0.3)
    assert not list(machine.answers())
    inflight = machine.inflight
    assert inflight
    region = os.pread(inflight[0], 4096, 0)
    marked = [n for n in range(SIZE) if region[16 + 16 * n]]
    assert sorted(r.head for r in requests) == marked
    volume.kill()
    volume.start()
    machine.reconnect()
    done: list[int] = []
    while machine.requests:
        machine.wait()
        done += [status for _, status, _ in machine.answers()]
    assert done == [OK] * 8
    region = os.pread(inflight[0], 4096, 0)
    wait_until("no mark is left", lambda: not any(os.pread(inflight[0], 4096, 0)[16::16]))
    for number in range(6):
        assert machine.do(READ, 8 * number, length=BLOCK) == (OK, data[number])
    assert machine.do(READ, 48, length=BLOCK) == (
        OK,
        data[7],
    ), "the later of two writes is the last"


def test_a_loss_before_an_upgrade_is_told_after_it(sandbox: Sandbox) -> None:
    """Checks that the engine reports a loss once to each client, also over upgrades."""
    # Too little memory for private copies of leg 1's debt.
    options: list[Arg] = ["--vhost", sandbox.path("vol.vhost"), "--set", "buffer_budget=16MiB"]
    volume = Volume.on_files(sandbox, VOLUME, inject=True, options=options)
    machine = Machine(socket_of(volume))
    machine.connect()
    volume.inject(1, "--freeze", "1h")
    with volume.client() as client:
        for number in range(24):
            client.write(number * MIB, bytes([number + 1]) * MIB)
        assert machine.do(WRITE, 8, b"g" * BLOCK)[0] == OK
        volume.inject(0, "--error", "flush")
        with pytest.raises(NbdError):
            client.flush()
    volume.inject(0, "--clear")
    volume.inject(1, "--clear")
    volume.wait_converged()
    for _ in range(2):
        # The machine is disconnected during an upgrade.
        assert "went on for" in volume.command("upgrade")
    machine.reconnect()
    assert machine.do(WRITE, 16, b"w" * BLOCK)[0] == OK
    assert machine.do(FLUSH, 0)[0] == FAILED
    assert machine.do(FLUSH, 0)[0] == OK
    # The loss was reported, and is not reported again.
    assert "went on for" in volume.command("upgrade")
    machine.reconnect()
    assert machine.do(FLUSH, 0)[0] == OK
    assert machine.do(READ, 8, length=BLOCK) == (OK, b"g" * BLOCK)
    machine.close()


def test_a_machine_that_comes_and_goes(volume: Volume, machine: Machine) -> None:
    for round_ in range(20):
        machine.reconnect()
        assert machine.do(WRITE, 8 * round_, bytes([round_]) * 512)[0] == OK
        if round_ % 2:
            assert machine.stop_queue() == machine.available
    machine.reconnect()
    volume.inject(0, "--freeze", "1s")
    volume.inject(1, "--freeze", "1s")
    machine.submit(WRITE, 0, b"x" * 512)
    time.sleep(0.1)
    # While its request is in flight.
    machine.reconnect()
    while machine.requests:
        machine.wait()
        assert [status for _, status, _ in machine.answers()] in ([], [OK])
    assert machine.do(READ, 0, length=512) == (OK, b"x" * 512)


def said(volume: Volume) -> str:
    return volume.process.output()


def chain(machine: Machine, *descriptors: tuple[int, int, int, int]) -> None:
    """Offers a chain of these descriptors, from 0 on."""
    for index, (address, length, flags, following) in enumerate(descriptors):
        machine.descriptor(index, address, length, flags, following)
    machine.offer(0)


def header(machine: Machine, kind: int = READ, sector: int = 0) -> int:
    machine.put(HEADERS, "IIQ", kind, 0, sector)
    return GUEST + HEADERS


END = GUEST + MEMORY


def far_ahead(machine: Machine) -> None:
    machine.put(AVAILABLE + 2, "H", 4000)
    os.eventfd_write(machine.kick, 1)


def table_in_table(machine: Machine) -> None:
    machine.put(TABLES, "QIHH", GUEST + TABLES, 16, INDIRECT_TABLE, 0)
    chain(machine, (GUEST + TABLES, 16, INDIRECT_TABLE, 0))


def cut_short(machine: Machine) -> None:
    os.ftruncate(machine.file, PAYLOAD)
    chain(machine, (header(machine), 16, NEXT, 1), (GUEST + PAYLOAD, 513, WRITABLE, 0))


HOSTILE: dict[str, tuple[Callable[[Machine], None], str]] = {
    "an address without memory": (
        lambda m: chain(
            m, (header(m), 16, NEXT, 1), (END, 512, NEXT | WRITABLE, 2), (GUEST, 1, WRITABLE, 0)
        ),
        "leaves guest memory",
    ),
    "the end of memory": (
        lambda m: chain(
            m, (header(m), 16, NEXT, 1), (END - 511, 512, NEXT | WRITABLE, 2), (GUEST, 1, 2, 0)
        ),
        "leaves guest memory",
    ),
    "an address that wraps": (
        lambda m: chain(m, (header(m), 16, NEXT, 1), (2**64 - 1, 2**32 - 1, WRITABLE, 0)),
        "leaves guest memory",
    ),
    "an address of the monitor's": (
        lambda m: chain(m, (0x7F00_0000_0000, 16, 0, 0)),
        "leaves guest",
    ),
    "a loop": (lambda m: chain(m, (header(m), 16, NEXT, 0)), "more than 128 descriptors"),
    "a next outside of the table": (
        lambda m: chain(m, (header(m), 16, NEXT, SIZE)),
        f"leads to descriptor {SIZE} of {SIZE}",
    ),
    "a head outside of the table": (lambda m: m.offer(SIZE), f"begins at descriptor {SIZE}"),
    "an index far ahead": (far_ahead, "entries are offered"),
    "no header": (lambda m: chain(m, (GUEST, 512, WRITABLE, 0)), "header has 0 bytes"),
    "no status": (lambda m: chain(m, (header(m), 16, 0, 0)), "no room for its status"),
    "a chain of nothing": (lambda m: chain(m, (GUEST, 0, 0, 0)), "header has 0 bytes"),
    "to read behind to write": (
        lambda m: chain(m, (GUEST, 16, WRITABLE | NEXT, 1), (header(m), 16, 0, 0)),
        "to read after one to write",
    ),
    "a table in a table": (table_in_table, "indirect"),
    "a table of a part": (lambda m: chain(m, (GUEST + TABLES, 24, INDIRECT_TABLE, 0)), "indirect"),
    "a table of nothing": (lambda m: chain(m, (GUEST + TABLES, 0, INDIRECT_TABLE, 0)), "indirect"),
    "memory that is cut short": (cut_short, "cut short"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_guest_loses_its_connection_only(volume: Volume, name: str) -> None:
    act, words = HOSTILE[name]
    machine = Machine(socket_of(volume))
    machine.connect()
    assert machine.do(WRITE, 0, b"y" * 512)[0] == OK
    act(machine)
    machine.hangs_up()
    wait_until("the log says why", lambda: words in said(volume))
    volume.process.check_running()
    other = Machine(machine.path)
    other.reconnect()
    assert other.do(READ, 0, length=512) == (OK, b"y" * 512)
    other.close()


def test_rubbish_in_every_part_of_a_queue(volume: Volume) -> None:
    """Offers hundreds of random tables. hemi answers or hangs up, and serves the next machine."""
    rng = random.Random(5)
    for _ in range(60 * ROUNDS):
        machine = Machine(socket_of(volume))
        machine.reconnect()
        for index in range(SIZE):
            address = rng.choice(
                [GUEST, GUEST + HEADERS, GUEST + TABLES, END - 8, rng.getrandbits(64)]
            )
            length = rng.choice([0, 1, 16, 32, 512, 513, 70_000, 2**32 - 1])
            flags = rng.choice(
                [0, NEXT, WRITABLE, NEXT | WRITABLE, INDIRECT_TABLE, rng.getrandbits(16)]
            )
            machine.descriptor(index, address, length, flags, rng.randrange(SIZE + 2))
            machine.put(HEADERS + 16 * index, "IIQ", rng.choice([0, 1, 4, 8, 11, 13]), 0, index)
            machine.put(TABLES + 16 * index, "QIHH", address, length, flags, rng.randrange(9))
        for _ in range(rng.randrange(1, 5)):
            machine.offer(rng.randrange(SIZE))
        with_time = time.monotonic() + 0.02
        while time.monotonic() < with_time:
            machine.put(TABLES, "QIHH", *(rng.getrandbits(b) for b in (64, 32, 16, 16)))
        machine.close()
        volume.process.check_running()
    assert volume.status()["phase"] == "serving"


def test_a_front_end_that_breaks_the_protocol(volume: Volume, machine: Machine) -> None:
    file = os.open("/dev/null", os.O_RDWR)

    def refused(words: str, act: Callable[[], object]) -> None:
        # The log takes only a few lines a second about misbehaving clients.
        time.sleep(0.3)
        machine.negotiate()
        try:
            act()
            machine.hangs_up()
        except HungUp:
            pass
        except AssertionError as error:
            assert "was refused" in str(error)
        wait_until(f"the log says {words}", lambda: words in said(volume))

    table = struct.pack("<IIQQQQ", 1, 0, GUEST, MEMORY + 1, 0, 0)
    refused("ends at byte", lambda: machine.say(SET_MEM_TABLE, table, machine.file))
    refused("is not in memory", lambda: machine.say(SET_MEM_TABLE, table, file))
    refused("before its addresses", lambda: machine.say(SET_VRING_KICK, bytes(8), machine.kick))
    refused("no event counter", lambda: machine.say(SET_VRING_KICK, bytes(8), file))

    def outside() -> None:
        machine.share_memory()
        machine.start_queue(descriptors=MEMORY)

    refused("is not in guest memory", outside)
    refused("power of two", lambda: machine.start_queue(size=63))
    refused("an invalid message", lambda: machine.send(b"\xff" * 12, b""))
    # A header that never ends.
    machine.dial()
    machine.send(b"\1\0\0", b"")
    machine.hangs_up()
    os.close(file)
    machine.reconnect()
    assert machine.do(FLUSH, 0)[0] == OK


def test_a_queue_that_stops_waits_for_its_requests(volume: Volume, machine: Machine) -> None:
    machine.connect()
    for leg in (0, 1):
        volume.inject(leg, "--freeze", "700ms")
    for number in range(4):
        machine.submit(WRITE, 8 * number, b"z" * BLOCK)
    assert machine.stop_queue() == machine.available == 4
    assert [status for _, status, _ in machine.answers()] == [OK] * 4
    # The queue goes on where it was.
    machine.start_queue()
    assert machine.do(READ, 8, length=BLOCK) == (OK, b"z" * BLOCK)


def test_sockets_that_cannot_be(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, VOLUME, start=False)
    path = sandbox.path("a.vhost")
    volume.options = ["--vhost", path, "--vhost", path]
    hemi_fails(*volume.serve_argv()[1:], says=["vhost[1].socket", "named twice"])
    path.write_text("precious")
    volume.options = ["--vhost", path]
    hemi_fails(*volume.serve_argv()[1:], says=["exists and is not a socket", "--vhost"])
    assert path.read_text() == "precious"
