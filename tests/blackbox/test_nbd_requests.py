"""NBD requests that no well-behaved client sends, and clients that die or dawdle."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import nbd
import pytest
from hemi_harness import Client, NbdError, Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB
from hemi_harness.sandbox import PATIENCE

SIZE = 32 * MIB
OUT_OF_RANGE = (errno.EINVAL, errno.ENOSPC)


@pytest.fixture(scope="module")
def served() -> Iterator[Volume]:
    """Returns one volume for all tests here. None of their requests may harm the next."""
    with Sandbox() as box:
        volume = Volume.on_files(box, SIZE)
        yield volume
        volume.process.check_running()
        volume.stop()


@pytest.fixture
def volume(served: Volume) -> Iterator[Volume]:
    yield served
    with served.client() as client:
        client.write(0, b"alive" + bytes(507))
        assert client.read(0, 512)[:5] == b"alive"
    assert "panicked" not in served.process.output()


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (SIZE, 512),
        (SIZE - 512, 1024),
        (SIZE + MIB, 4096),
        ((1 << 63) - 512, 512),
        (1 << 63, 512),
        ((1 << 64) - 512, 512),
        ((1 << 64) - 512, 1024),
    ],
)
@pytest.mark.parametrize("request_kind", ["read", "write", "trim", "zero", "cache"])
def test_out_of_range_is_refused(
    volume: Volume, request_kind: str, offset: int, length: int
) -> None:
    if offset >= 1 << 63:
        _raw_out_of_range(volume, request_kind, offset, length)
        return
    with volume.client() as client:
        with pytest.raises(NbdError) as error:
            if request_kind == "write":
                client.write(offset, b"x" * length)
            else:
                getattr(client, request_kind)(offset, length)
        assert error.value.errno in OUT_OF_RANGE
        # The connection goes on.
        assert len(client.read(SIZE - 512, 512)) == 512


COMMANDS = {"read": 0, "write": 1, "trim": 4, "zero": 6, "cache": 5}


def _raw_out_of_range(volume: Volume, kind: str, offset: int, length: int) -> None:
    with Raw(volume) as raw:
        payload = b"x" * length if kind == "write" else b""
        raw.request(COMMANDS[kind], offset, length, payload)
        assert raw.error() in OUT_OF_RANGE
        raw.request(3, 0, 0)
        assert raw.error() == 0


class Raw:
    """A raw connection with simple replies."""

    def __init__(self, volume: Volume, *, go: bool = True) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(volume.socket))
        assert self.read(8) == b"NBDMAGIC"
        assert self.read(8) == b"IHAVEOPT"
        flags = struct.unpack(">H", self.read(2))[0]
        assert flags & 1, "fixed newstyle"
        self.socket.sendall(struct.pack(">I", 3))
        if go:
            self.option(7, struct.pack(">IH", 0, 0))
            while True:
                kind, _ = self.option_reply()
                if kind == 1:
                    break
                assert kind == 3, f"reply to GO of type {kind:#x}"

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def read(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            if not piece:
                raise ConnectionError("the server hung up")
            data += piece
        return data

    def option(self, number: int, data: bytes, *, length: int | None = None) -> None:
        size = len(data) if length is None else length
        self.socket.sendall(b"IHAVEOPT" + struct.pack(">II", number, size) + data)

    def option_reply(self) -> tuple[int, bytes]:
        magic, _, kind, length = struct.unpack(">QIII", self.read(20))
        assert magic == 0x3E889045565A9
        return kind, self.read(length)

    def request(
        self, command: int, offset: int, length: int, payload: bytes = b"", flags: int = 0
    ) -> None:
        header = struct.pack(">IHHQQI", 0x25609513, flags, command, 42, offset, length)
        self.socket.sendall(header + payload)

    def error(self) -> int:
        magic, error, cookie = struct.unpack(">IIQ", self.read(16))
        assert magic == 0x67446698
        assert cookie == 42
        return int(error)

    def hung_up(self) -> bool:
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            return False
        return True


@pytest.mark.parametrize("bit", [1 << 5, 1 << 8, 1 << 15])
def test_unknown_flags_are_refused(volume: Volume, bit: int) -> None:
    with Raw(volume) as raw:
        raw.request(0, 0, 512, flags=bit)
        assert raw.error() == errno.EINVAL
        raw.request(1, 0, 512, b"y" * 512, flags=bit)
        assert raw.error() == errno.EINVAL
        raw.request(3, 0, 0)
        assert raw.error() == 0


def test_an_unknown_command_is_refused(volume: Volume) -> None:
    with Raw(volume) as raw:
        raw.request(99, 0, 0)
        assert raw.error() == errno.EINVAL
        raw.request(3, 0, 0)
        assert raw.error() == 0


def test_a_request_below_the_minimum_block_is_refused_or_served(volume: Volume) -> None:
    with volume.client() as client:
        minimum = client.handle.get_block_size(nbd.SIZE_MINIMUM)
        if minimum <= 1:
            client.write(3, b"odd")
            assert client.read(2, 5)[1:4] == b"odd"
            return
        for call in (
            lambda: client.read(1, minimum),
            lambda: client.write(0, b"x" * (minimum + 1)),
            lambda: client.zero(minimum // 2, minimum),
            lambda: client.trim(minimum // 2, minimum),
        ):
            with pytest.raises(NbdError) as error:
                call()
            assert error.value.errno == errno.EINVAL
        client.read(0, minimum)


def test_a_request_above_the_maximum_is_refused(volume: Volume) -> None:
    with volume.client() as client:
        most = client.handle.get_block_size(nbd.SIZE_MAXIMUM)
        largest = min(most, SIZE)
        assert len(client.read(0, largest)) == largest
    with Raw(volume) as raw:
        raw.request(0, 0, 0xFFFF_FE00)
        assert raw.error() in (errno.EINVAL, errno.EOVERFLOW, errno.ENOMEM)
        raw.request(3, 0, 0)
        assert raw.error() == 0
    with Raw(volume) as raw:
        # The payload is not sent. The server may answer or hang up, but not wait for memory.
        raw.request(1, 0, 0xFFFF_FE00)
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.hung_up()


def test_an_empty_request_harms_nobody(volume: Volume) -> None:
    for command in (0, 1, 4, 6):
        with Raw(volume) as raw:
            raw.request(command, 0, 0)
            assert raw.error() in (0, errno.EINVAL)


def test_a_bad_magic_ends_the_connection(volume: Volume) -> None:
    with Raw(volume) as raw:
        raw.socket.sendall(b"\xff" * 28)
        assert raw.hung_up()
    with Raw(volume, go=False) as raw:
        raw.socket.sendall(b"NONSENSE" + struct.pack(">II", 7, 0))
        assert raw.hung_up()


def test_bad_options_get_an_error_reply(volume: Volume) -> None:
    error_bit = 1 << 31
    with Raw(volume, go=False) as raw:
        raw.option(0x7777, b"what is this")
        kind, _ = raw.option_reply()
        assert kind == error_bit | 1, "NBD_REP_ERR_UNSUP"
        # GO whose inner length disagrees with the outer.
        raw.option(7, struct.pack(">I", 4000) + b"short")
        assert raw.option_reply()[0] & error_bit
        raw.option(7, struct.pack(">I", 9) + b"elsewhere" + struct.pack(">H", 0))
        assert raw.option_reply()[0] == error_bit | 6, "NBD_REP_ERR_UNKNOWN"
        # STRUCTURED_REPLY takes no data.
        raw.option(8, b"data")
        assert raw.option_reply()[0] & error_bit
        # After all that, the handshake still works.
        raw.option(7, struct.pack(">IH", 0, 0))
        while True:
            kind, _ = raw.option_reply()
            if kind == 1:
                break
        raw.request(3, 0, 0)
        assert raw.error() == 0


def test_a_huge_option_is_not_waited_for(volume: Volume) -> None:
    with Raw(volume, go=False) as raw:
        raw.option(7, b"", length=0xFFFF_FFFF)
        with contextlib.suppress(OSError):
            raw.socket.sendall(b"x" * 4096)
            raw.socket.shutdown(socket.SHUT_WR)
        assert raw.hung_up()


def test_block_status_only_where_it_was_negotiated(volume: Volume) -> None:
    with Raw(volume) as raw:
        raw.request(7, 0, MIB)
        assert raw.error() == errno.EINVAL


def test_block_status(volume: Volume) -> None:
    with volume.client(contexts=["base:allocation", "hemi:copies"]) as client:
        assert client.handle.get_structured_replies_negotiated()
        client.write(0, b"z" * MIB)
        client.zero(MIB, MIB)
        answer = client.block_status(0, SIZE)
        assert set(answer) == {"base:allocation", "hemi:copies"}
        # The first MiB holds data: neither a hole nor zeros.
        assert answer["base:allocation"][0][1] == 0
        one = client.block_status(0, SIZE, flags=nbd.CMD_FLAG_REQ_ONE)
        assert all(len(extents) == 1 for extents in one.values())
        assert all(extents[0][0] <= SIZE for extents in one.values())
        with pytest.raises(NbdError):
            client.block_status(SIZE, 512)
        with pytest.raises(NbdError):
            client.block_status(SIZE - 512, 1024)


def test_structured_and_simple_replies(volume: Volume) -> None:
    with volume.client() as client:
        client.write(4096, bytes(range(256)) * 16)
    with volume.client() as client:
        assert client.handle.get_structured_replies_negotiated()
        assert client.read(4096, 4096, flags=nbd.CMD_FLAG_DF) == bytes(range(256)) * 16

    def simple(handle: Any) -> None:
        handle.set_request_structured_replies(False)

    with volume.client(setup=simple) as client:
        assert not client.handle.get_structured_replies_negotiated()
        assert client.read(4096, 4096) == bytes(range(256)) * 16


def test_fast_zero_is_fast_or_refused(volume: Volume) -> None:
    with volume.client() as client:
        client.write(8 * MIB, b"q" * MIB)
        try:
            client.zero(8 * MIB, MIB, flags=nbd.CMD_FLAG_FAST_ZERO)
            expected = bytes(MIB)
        except NbdError as error:
            assert error.errno == errno.EOPNOTSUPP
            expected = b"q" * MIB
        assert client.read(8 * MIB, MIB) == expected
        client.zero(8 * MIB, MIB, flags=nbd.CMD_FLAG_NO_HOLE)
        assert client.read(8 * MIB, MIB) == bytes(MIB)


def test_connections_see_each_others_writes(volume: Volume) -> None:
    with volume.client() as one, volume.client() as two:
        assert one.handle.can_multi_conn()
        for i in range(200):
            data = bytes([i]) * 4096
            (one if i % 2 else two).write(4096 * 10, data)
            assert (two if i % 2 else one).read(4096 * 10, 4096) == data
        two.flush()


def test_a_client_that_dies_in_a_write_harms_nobody(volume: Volume) -> None:
    def ended() -> int:
        connections = volume.status()["clients"]["connections"]
        return int(connections["accepted"] - connections["open"])

    before = ended()
    with volume.client() as other:
        other.write(MIB, b"before" + bytes(4090))
        cuts = (0, 1, 511, 512, 2048, 4095)
        for cut in cuts:
            with Raw(volume) as raw:
                raw.request(1, MIB, 4096, b"Z" * cut)
        with Raw(volume) as raw:
            raw.socket.sendall(struct.pack(">I", 0x25609513))
        wait_until("hemi has seen all of them go", lambda: ended() > before + len(cuts))
        assert other.read(MIB, 4096) == b"before" + bytes(4090)


def test_a_client_that_dawdles_harms_nobody(volume: Volume) -> None:
    with Raw(volume) as writer, Raw(volume) as reader, volume.client() as other:
        # One sends half a write and stops, one requests much and never reads it.
        writer.request(1, 2 * MIB, 8 * MIB, b"W" * 4 * MIB)
        reader.socket.settimeout(1)
        with contextlib.suppress(TimeoutError):
            # Until the server reads no more of it.
            for _ in range(1000):
                reader.request(0, 0, 8 * MIB)
        for i in range(100):
            other.write(4096 * i, bytes([i]) * 4096)
            assert other.read(4096 * i, 4096) == bytes([i]) * 4096


def test_a_client_may_go_without_goodbye_or_with_one(volume: Volume) -> None:
    with volume.client() as client:
        client.write(0, b"x" * 512)
        client.disconnect()
    client = volume.client()
    for i in range(32):
        client.start_write(i * 4096, b"y" * 4096)
    client.close()


def test_many_connections_come_and_go(volume: Volume) -> None:
    for _ in range(20):
        clients = [volume.client() for _ in range(8)]
        for i, client in enumerate(clients):
            client.start_write(i * 4096, b"n" * 4096)
        for client in clients:
            client.close()


def test_a_sent_flush_covers_what_was_acknowledged(volume: Volume) -> None:
    with volume.client() as client:
        for i in range(64):
            client.write(i * 4096, b"f" * 4096, fua=i % 3 == 0)
        client.flush()
        client.zero(0, 65536, flags=nbd.CMD_FLAG_FUA)
        client.trim(65536, 65536, flags=nbd.CMD_FLAG_FUA)
        assert client.read(0, 65536) == bytes(65536)


def test_read_only_and_limits(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, start=False)
    config = sandbox.path("config.toml")
    legs = ", ".join(f'"{leg}"' for leg in volume.legs)
    read_only = sandbox.path("ro.sock")
    config.write_text(
        f'legs = [{legs}]\ncontrol = "{volume.control}"\n'
        f'[[exports]]\nnbd = "unix:{volume.socket}"\nlimits = {{ connections_max = 2 }}\n'
        f'[[exports]]\nnbd = "unix:{read_only}"\nread_only = true\n'
    )
    volume.serve_with(config)
    volume.start()
    with Client(f"nbd+unix:///?socket={read_only}") as client:
        assert client.handle.is_read_only()
        client.read(0, 512)
        refused: tuple[Callable[[], None], ...] = (
            lambda: client.write(0, b"x" * 512),
            lambda: client.zero(0, 512),
            lambda: client.trim(0, 512),
        )
        for call in refused:
            with pytest.raises(NbdError) as error:
                call()
            assert error.value.errno in (errno.EPERM, errno.EROFS)
    with volume.client() as one, volume.client() as two:
        with pytest.raises(NbdError), volume.client() as three:
            three.read(0, 512)
        one.write(0, b"x" * 512)
        two.read(0, 512)
