"""The places of fields in hemi's metadata, and functions that seal blocks and ledgers.

It shares no code with hemi. Every template is checked against it, so that a change of the format is
noticed.
"""

from __future__ import annotations

import struct
from pathlib import Path

BLOCK = 4096
SECTOR = 512
SUPERBLOCKS = (0, 64 << 10)
LOST_LISTS = (128 << 10, 132 << 10)
STAMPS = tuple((192 << 10) + BLOCK * slot for slot in range(16))
REGION = 64 << 10
ENTRIES = 1736
SEQUENCE_END = 1 << 63
NO_ID = bytes(16)

# Places of superblock fields: name, sector, byte in the sector, bytes.
Field = tuple[str, int, int, int]
SUPERBLOCK_FIELDS: list[Field] = [
    ("magic", 0, 0, 8),
    ("volume id", 0, 8, 16),
    ("version", 0, 24, 4),
    ("block bytes", 0, 28, 4),
    ("features", 0, 32, 8),
    ("volume bytes", 0, 40, 8),
    ("region bytes", 0, 48, 8),
    ("data offset", 0, 56, 8),
    ("generation", 0, 64, 16),
    ("join epoch", 0, 80, 8),
    ("created", 0, 88, 8),
    ("leg", 0, 96, 1),
    ("open", 0, 97, 1),
    ("ancestors", 0, 98, 1),
    ("name bytes", 0, 99, 1),
    ("reserved", 0, 100, 4),
    ("name", 0, 104, 64),
    ("opening", 0, 168, 8),
    ("boot id", 0, 176, 16),
    *[
        (f"leg {slot}'s {name}", 1, 24 + 32 * slot + at, width)
        for slot in range(8)
        for name, at, width in (("id", 0, 16), ("epoch", 16, 8), ("state", 24, 1), ("why", 25, 1))
    ],
    *[
        (f"ancestor {16 * sector + i}'s {name}", 3 + sector, 24 + 24 * i + at, width)
        for sector, i in ((0, 0), (0, 1), (0, 15), (1, 0), (3, 15))
        for name, at, width in (("generation", 0, 16), ("sequence", 16, 8))
    ],
    *[
        (f"description {slot}'s {name}", 2 if slot < 4 else 7, 64 + 108 * (slot % 4) + at, width)
        for slot in (0, 1, 2, 7)
        for name, at, width in (("path", 0, 1), ("model", 1, 1), ("serial", 2, 1), ("text", 4, 104))
    ],
]
PAGE_FIELDS: list[Field] = [
    ("number", 0, 0, 4),
    ("generation", 0, 8, 16),
    ("join epoch", 0, 24, 8),
    *[(f"entry {i}", 1 + i // 248, 2 * (i % 248), 2) for i in (0, 1, 2, 5, 15, 31, 32, 247, 1735)],
]
LOST_FIELDS: list[Field] = [
    ("count", 0, 0, 4),
    ("generation", 0, 8, 16),
    ("join epoch", 0, 24, 8),
    *[(f"extent {e}'s start", (e + 2) // 31, 16 * ((e + 2) % 31), 8) for e in (0, 1, 28, 29, 245)],
    *[(f"extent {e}'s end", (e + 2) // 31, 16 * ((e + 2) % 31) + 8, 8) for e in (0, 1, 29, 245)],
]
STAMP_FIELDS: list[Field] = [("writer", 0, 0, 16)]
# Pairs of state and reason that exist.
MEMBERSHIPS = ((0, 0), (1, 0), (1, 0), (2, 1), (2, 2), (2, 3), (2, 4), (2, 5))


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C (Castagnoli) of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def seal(block: bytearray, address: int, volume: bytes) -> None:
    """Gives every sector of a block its correct checksum."""
    seed = struct.pack("<Q", address) + volume
    for at in range(0, BLOCK, SECTOR):
        block[at + 508 : at + 512] = struct.pack("<I", crc32c(seed + block[at : at + 508]))


def sequence_of(block: bytearray) -> int:
    """Returns the sequence in a block's first sector."""
    return int.from_bytes(block[496:504], "little")


def set_sequence(block: bytearray, sequence: int) -> None:
    """Puts a sequence into every sector. The block has to be sealed afterwards."""
    for at in range(0, BLOCK, SECTOR):
        block[at + 496 : at + 504] = struct.pack("<Q", sequence % (1 << 64))


def word_of(region: int, state: int) -> int:
    """Returns the ledger's word of a region for a state of 13 bits."""
    whole = (1 << 64) - 1
    mixed = ((region << 13 | state) + 1) * 0x9E3779B97F4A7C15 & whole
    check = 1 + (((mixed ^ (mixed >> 29)) * 0xBF58476D1CE4E5B9 & whole) >> 32) % ((1 << 19) - 1)
    return state | check << 13


def words_at(ledger: bytes | bytearray) -> int:
    """Returns the offset of a ledger's words."""
    objects = int.from_bytes(ledger[128:132], "little")
    return -(-(4096 + 64 * objects) // 4096) * 4096


def seal_ledger(ledger: bytearray) -> None:
    """Gives a ledger's header its correct checksum."""
    if len(ledger) >= 136:
        ledger[132:136] = struct.pack("<I", crc32c(bytes(ledger[8:48] + ledger[128:132])))


def this_boot() -> bytes:
    """Returns the boot id of this machine."""
    return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", ""))
