"""Layouts of files, from captured output of filefrag and from copies made here."""

from __future__ import annotations

from pathlib import Path

import pytest
from hemi_lab.database.extents import (
    Fragment,
    copy_contiguous,
    copy_fragmented,
    layout_of,
    parse_filefrag,
    summed_up,
)
from hemi_lab.database.tools import CommandLog
from hemi_lab.errors import LabError

CAPTURED = Path(__file__).parent / "captured"


def test_pieces_with_gaps() -> None:
    size, fragments = parse_filefrag((CAPTURED / "filefrag_pieces.txt").read_text())
    assert size == 1_000_000
    assert len(fragments) == 16
    assert fragments[0] == Fragment(0, 51_074_560 * 4096, 65536)
    assert fragments[15] == Fragment(240 * 4096, 51_075_040 * 4096, 5 * 4096)
    layout = summed_up(size, fragments)
    assert (layout.fragments, layout.backward_jumps) == (16, 0)
    assert layout.jumped_bytes == 15 * 65536
    assert layout.mean_fragment_bytes == 245 * 4096 // 16


def test_extents_that_touch_are_one_fragment() -> None:
    """Reads written and unwritten parts, which are extents of their own, though contiguous."""
    size, fragments = parse_filefrag((CAPTURED / "filefrag_unwritten.txt").read_text())
    assert size == 1 << 20
    assert fragments == [Fragment(0, 48_636_672 * 4096, 1 << 20)]


def test_jumps_backward_are_counted() -> None:
    layout = summed_up(3, [Fragment(0, 100, 1), Fragment(1, 50, 1), Fragment(2, 60, 1)])
    assert (layout.backward_jumps, layout.jumped_bytes) == (1, 51 + 9)


def test_something_else_is_refused() -> None:
    with pytest.raises(LabError, match="FIBMAP unsupported"):
        parse_filefrag("/mnt/x: FIBMAP unsupported\n")


@pytest.mark.parametrize("size", [1, 65536, 40 * 65536, 40 * 65536 + 12345])
def test_both_copies_hold_the_same_bytes(tmp_path: Path, size: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(i * i % 251 for i in range(size)))
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    copy_contiguous(source, whole)
    try:
        copy_fragmented(source, pieces, 65536)
    except LabError as error:
        if "Operation not supported" in str(error):
            pytest.skip(f"the file system of {tmp_path} cannot do it: {error}")
        raise
    assert whole.read_bytes() == pieces.read_bytes() == source.read_bytes()
    log = CommandLog()
    expected = -(-size // 65536)
    # Cut out of one piece of space, each fragment is at most a piece.
    assert layout_of(log, pieces).fragments >= expected
    assert "filefrag -v" in log.commands[0].line
