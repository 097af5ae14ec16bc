"""The power-cut test's reader of logs and model of drives.

The test itself runs in short for `make test-long`, if the user-mode kernel is there."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest
from hemi_harness import Sandbox
from hemi_harness.history import Lost, data
from hemi_harness.user_mode import KERNEL, MISSING
from power_cut import BLOCK, CASES, Case, check_blocks, replay, tell_flushes_apart
from write_log import DISCARD, FLUSH, MARK, Drive, Entry, read_log

SECTOR = 512


def header(sector: int, sectors: int, flags: int, length: int) -> bytes:
    return struct.pack("<QQQQ", sector, sectors, flags, length).ljust(SECTOR, b"\0")


def test_a_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    mark = (struct.pack("<QQQQ", 0, 0, MARK, 2) + b"m7").ljust(SECTOR, b"\0")
    log.write_bytes(
        struct.pack("<QQQI", 0x6A736677736872, 1, 4, SECTOR).ljust(SECTOR, b"\0")
        + header(8, 2, 0, 0)
        + b"x" * 1024
        + header(16, 8, DISCARD, 0)
        + mark
        + header(0, 0, FLUSH, 0)
        # Left over from an earlier use of the device.
        + b"\xff" * SECTOR
    )
    entries = list(read_log(log))
    assert entries == [
        Entry(8, 2, 0, b"x" * 1024),
        Entry(16, 8, DISCARD, b""),
        Entry(0, 0, MARK, b"m7"),
        Entry(0, 0, FLUSH, b""),
    ]
    assert [entry.mark for entry in entries] == [None, None, "m7", None]


def test_a_cache_is_lost_until_it_is_flushed() -> None:
    drive = Drive(first=8, sectors=4, cached=True)
    first, second = Entry(8, 1, 0, b"a" * SECTOR), Entry(9, 2, 0, b"b" * 1024)
    assert drive.holds(second)
    assert not drive.holds(Entry(12, 1, 0, b""))
    drive.write(first)
    drive.flush()
    drive.write(second)
    assert drive.after_cut(None) == b"a" * SECTOR + b"b" * 1024 + bytes(SECTOR)
    kept = {drive.after_cut(random.Random(seed))[SECTOR : 3 * SECTOR] for seed in range(100)}
    old, new = bytes(SECTOR), b"b" * SECTOR
    assert kept == {old + old, new + old, old + new, new + new}
    assert all(drive.after_cut(random.Random(s))[:SECTOR] == b"a" * SECTOR for s in range(9))


def test_a_drive_without_a_cache_keeps_everything() -> None:
    drive = Drive(first=0, sectors=2, cached=False)
    drive.write(Entry(1, 1, 0, b"c" * SECTOR))
    assert drive.after_cut(random.Random(1)) == bytes(SECTOR) + b"c" * SECTOR


def test_the_tests_own_flushes_are_told_apart() -> None:
    flush = Entry(0, 0, FLUSH, b"")

    def mark(name: bytes) -> Entry:
        return Entry(0, 0, MARK, name)

    entries = [flush, mark(b"b0"), flush, mark(b"m0"), mark(b"b1"), flush, flush, mark(b"m1")]
    assert tell_flushes_apart(entries) == {2}


def test_what_was_flushed_must_be_there() -> None:
    content = data(0, 8, 5) + data(8, 8, 7)
    check_blocks(0, content, {0: 5, 1: 6}, last=7)
    with pytest.raises(Lost, match="write 8 was covered"):
        check_blocks(0, content, {0: 5, 1: 8}, last=8)
    with pytest.raises(Lost, match="6 was the last one sent"):
        check_blocks(0, content, {0: 5}, last=6)
    assert len(content) == 2 * BLOCK


@pytest.mark.long
@pytest.mark.skipif(not KERNEL.exists(), reason=f"not built: {MISSING}")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_power_cuts_lose_nothing_flushed(sandbox: Sandbox, case: Case) -> None:
    assert replay(sandbox, case, seed=1, flushes=10, cuts=10, say=print) > 10
