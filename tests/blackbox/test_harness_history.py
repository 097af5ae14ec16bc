"""Tests of the kill test's checker: it accepts only answers that a correct disk may give."""

from __future__ import annotations

import random
import threading

import pytest
from hemi_harness import Nbdkit, Sandbox
from hemi_harness.history import SECTOR, History, Lost, data
from hemi_harness.sandbox import wait_until
from hemi_harness.verifying_load import Mix, VerifyingLoad


@pytest.fixture
def history() -> History:
    return History(4, 2 * SECTOR)


def content(first_unit: int, units: int, write: int) -> bytes:
    return data(2 * first_unit, 2 * units, write)


def test_an_acknowledged_write_must_stay(history: History) -> None:
    write = history.write(1, 2)
    assert history.payload(write) == content(1, 2, write.number)
    history.acknowledge(write)
    history.check(0, bytes(1024) + content(1, 2, write.number) + bytes(1024))
    with pytest.raises(Lost, match=r"sector 2 \(byte 1024\) reads as zeros.*write 1 \(acknow"):
        history.check(0, bytes(4096))


def test_a_write_in_flight_may_have_happened_in_part(history: History) -> None:
    old = history.write(0, 1)
    history.acknowledge(old)
    new = history.write(0, 1)
    torn = content(0, 1, new.number)[:SECTOR] + content(0, 1, old.number)[SECTOR:]
    for answer in (content(0, 1, old.number), content(0, 1, new.number), torn):
        history.check(0, answer)
    # After a read that follows a kill, the content must stay.
    history.check(0, torn, settle=True)
    history.check(0, torn)
    with pytest.raises(Lost, match="as last read"):
        history.check(0, content(0, 1, new.number))


def test_an_overwritten_value_must_not_come_back(history: History) -> None:
    first = history.write(0, 1)
    history.acknowledge(first)
    second = history.write(0, 1)
    history.acknowledge(second)
    with pytest.raises(Lost, match="reads as write 1"):
        history.check(0, content(0, 1, first.number))


def test_concurrent_writes_may_end_in_either_order_but_in_one(history: History) -> None:
    a, b = history.write(0, 1), history.write(0, 1)
    history.acknowledge(a)
    history.acknowledge(b)
    history.check(0, content(0, 1, a.number))
    history.answer(history.read(0, 1), content(0, 1, b.number))
    with pytest.raises(Lost):
        history.check(0, content(0, 1, a.number))


def test_a_read_may_see_what_is_sent_while_it_runs(history: History) -> None:
    read = history.read(0, 1)
    write = history.write(0, 1)
    history.answer(read, bytes(1024))
    # The write was in flight, so that read decided nothing.
    history.acknowledge(write)
    read = history.read(0, 1)
    with pytest.raises(Lost):
        history.answer(read, bytes(1024))


def test_zeroes_count_as_a_write_and_a_discard_may_do_nothing(history: History) -> None:
    write = history.write(0, 2)
    history.acknowledge(write)
    history.acknowledge(history.write(0, 1, zeros=True))
    with pytest.raises(Lost, match="zeros of write-zeroes"):
        history.check(0, content(0, 1, write.number))
    history.acknowledge(history.write(1, 1, discard=True))
    history.check(1, content(1, 1, write.number))
    history.check(1, bytes(1024))


def test_what_nobody_wrote_is_found(history: History) -> None:
    for answer in (b"\xff" * 1024, content(1, 1, 1)):
        with pytest.raises(Lost):
            history.check(0, answer)


def test_the_load_finds_a_server_that_forgets(sandbox: Sandbox) -> None:
    """Uses a drive whose last second is undone while its server is down."""
    size = 1 << 20
    image = sandbox.file("drive.img", size)
    server = Nbdkit(sandbox, image)
    history = History(size // 4096, 4096)
    load = VerifyingLoad(server.uri, history)
    # Without reads beside the writes, since a page cache may answer with half of a sector's write.
    mix = Mix(connections=2, units_max=4, reads=0)

    def until_killed() -> None:
        """Kills the server after some writes instead of some time, since a busy machine may be
        slow."""
        load.connect(mix)
        enough = load.writes + 100

        def kill() -> None:
            wait_until("100 writes are answered", lambda: load.writes >= enough)
            server.process.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        load.run(mix, random.Random(1), lambda: server.process.running)
        killer.join()

    until_killed()
    server.start()
    load.verify()
    before = image.read_bytes()
    until_killed()
    image.write_bytes(before)
    server.start()
    with pytest.raises(Lost):
        load.verify()
