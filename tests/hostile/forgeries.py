"""Forges the metadata of a volume by a seed: wrong contents under valid checksums."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hemi_harness.hemi import MIB
from metadata_format import (
    BLOCK,
    ENTRIES,
    LOST_FIELDS,
    LOST_LISTS,
    MEMBERSHIPS,
    NO_ID,
    PAGE_FIELDS,
    REGION,
    SECTOR,
    SEQUENCE_END,
    STAMP_FIELDS,
    STAMPS,
    SUPERBLOCK_FIELDS,
    SUPERBLOCKS,
    seal,
    seal_ledger,
    sequence_of,
    set_sequence,
    this_boot,
    word_of,
    words_at,
)
from metadata_templates import Template


@dataclass
class Image:
    """A copy of a template that is being forged."""

    template: Template
    legs: list[dict[int, bytearray]]
    sizes: list[int]
    volume: bytes
    ledger: bytearray | None
    notes: list[str] = field(default_factory=list)

    @staticmethod
    def of(template: Template) -> Image:
        return Image(
            template,
            [{at: bytearray(block) for at, block in leg.items()} for leg in template.legs],
            [template.leg_bytes] * len(template.legs),
            template.volume_id,
            bytearray(template.ledger) if template.ledger else None,
        )

    def block(self, leg: int, address: int) -> bytearray:
        return self.legs[leg].setdefault(address, bytearray(BLOCK))

    def seal(self, leg: int, address: int) -> None:
        volume = NO_ID if address in SUPERBLOCKS else self.volume
        seal(self.block(leg, address), address, volume)

    def metadata(self, leg: int) -> list[int]:
        """Returns the addresses of a leg's metadata blocks that are not blank."""
        table = MIB + 2 * BLOCK * self.template.pages
        return [at for at, block in self.legs[leg].items() if at < table and any(block)]

    def write_leg(self, leg: int, path: Path) -> None:
        """Writes a leg to a sparse file."""
        size = self.sizes[leg]
        with path.open("wb") as file:
            file.truncate(size)
            for at, block in self.legs[leg].items():
                if at < size:
                    os.pwrite(file.fileno(), block[: size - at], at)

    def write(self, directory: Path) -> tuple[list[Path], Path]:
        """Writes all legs and the ledger. Returns the paths and the ledger's directory."""
        directory.mkdir()
        paths = [directory / f"leg{leg}.img" for leg in range(len(self.legs))]
        for leg, path in enumerate(paths):
            self.write_leg(leg, path)
        return paths, self.write_ledger(directory)

    def write_ledger(self, directory: Path) -> Path:
        place = directory / "ledger"
        place.mkdir()
        if self.ledger is not None:
            # hemi looks for it under the volume's id.
            volume = self.volume.hex()
            parts = [volume[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
            path = place / f"{'-'.join(parts)}.ledger"
            path.write_bytes(self.ledger)
            path.chmod(0o600)
        return place


class Forger:
    """Forges an image by a seed."""

    def __init__(self, rng: random.Random, image: Image) -> None:
        self.rng = rng
        self.image = image

    def forge(self) -> None:
        """Applies some forgeries."""
        names = list(FORGERIES)
        weights = [weight for weight, _ in FORGERIES.values()]
        for name in self.rng.choices(names, weights, k=self.rng.choice((1, 1, 1, 2, 2, 3, 5))):
            told = FORGERIES[name][1](self)
            self.image.notes.append(f"{name}: {told}")

    # Choices of targets.

    def leg(self) -> int:
        return self.rng.randrange(len(self.image.legs))

    def legs(self) -> list[int]:
        """Returns one leg, or all."""
        return [self.leg()] if self.rng.random() < 0.5 else list(range(len(self.image.legs)))

    def slots(self) -> tuple[str, tuple[int, ...]]:
        """Returns the kind and both addresses of something that is kept twice."""
        kind = self.rng.choices(("superblock", "lost list", "page", "stamp"), (5, 2, 3, 1))[0]
        if kind == "stamp" and not self.image.template.remote:
            kind = "page"
        page = self.rng.randrange(self.image.template.pages)
        pair = 2 * self.rng.randrange(8)
        return kind, {
            "superblock": SUPERBLOCKS,
            "lost list": LOST_LISTS,
            "page": (MIB + 2 * BLOCK * page, MIB + 2 * BLOCK * page + BLOCK),
            "stamp": STAMPS[pair : pair + 2],
        }[kind]

    def some(self, slots: tuple[int, ...]) -> list[tuple[int, int]]:
        """Returns legs and addresses to forge: one, both slots of a leg, or all."""
        scope = self.rng.random()
        one = (self.leg(), self.rng.choice(slots))
        if scope < 0.4:
            return [one]
        legs = [one[0]] if scope < 0.6 else range(len(self.image.legs))
        return [(leg, at) for leg in legs for at in slots]

    def finish(self, places: list[tuple[int, int]], slots: tuple[int, ...]) -> None:
        """Seals forged blocks. Makes them the newest, or damages them, in some cases."""
        newer = self.rng.random() < 0.5
        damaged = self.rng.random() < 0.08
        for leg, address in places:
            block = self.image.block(leg, address)
            if newer:
                newest = max(sequence_of(self.image.block(leg, at)) for at in slots)
                set_sequence(block, min(newest + 1, SEQUENCE_END - 1))
            self.image.seal(leg, address)
        if damaged:
            leg, address = self.rng.choice(places)
            self.image.block(leg, address)[self.rng.randrange(BLOCK)] ^= 1 << self.rng.randrange(8)

    def number(self, now: int, bits: int) -> int:
        """Returns an integer near an edge, near the present one, or anywhere."""
        edge = self.rng.choice((8, 16, 32, 63, 64, bits, bits, bits - 1))
        around = [0, 0, 1, 2, 3, 7, 8, 9, 64, 65, 512, 4096, 1 << edge, (1 << edge) - 1, -2]
        near = [now + 1, now - 1, now ^ 1 << self.rng.randrange(bits), now * 2, now // 2, -now]
        anywhere = self.rng.getrandbits(bits)
        value = self.rng.choice((self.rng.choice(around), self.rng.choice(near), anywhere))
        return value % (1 << bits)

    def bytes(self, now: bytes) -> bytes:
        """Returns other bytes: ids of this image, an edge, noise, or the present ones with a
        flip."""
        flipped = bytearray(now)
        flipped[self.rng.randrange(len(now))] ^= 1 << self.rng.randrange(8)
        noise = self.rng.randbytes(len(now))
        block = self.image.block(self.leg(), SUPERBLOCKS[self.rng.randrange(2)])
        at = self.rng.choice((8, 64, 176, 512 + 24, 512 + 56, 512 + 88, 1536 + 24))
        known = bytes(block[at : at + len(now)])
        ends = bytes(len(now)), b"\xff" * len(now)
        return self.rng.choice((bytes(flipped), noise, known, known, *ends))

    # Forgeries. Each returns a short description.

    def field(self) -> str:
        """Gives a field another value."""
        kind, slots = self.slots()
        fields = {
            "superblock": SUPERBLOCK_FIELDS,
            "page": PAGE_FIELDS,
            "lost list": LOST_FIELDS,
            "stamp": STAMP_FIELDS,
        }[kind]
        name, sector, offset, width = self.rng.choice(fields)
        places = self.some(slots)
        at = sector * SECTOR + offset
        now = bytes(self.image.block(*places[0])[at : at + width])
        if width <= 8:
            value = self.number(int.from_bytes(now, "little"), 8 * width).to_bytes(width, "little")
        else:
            value = self.bytes(now)
        for place in places:
            self.image.block(*place)[at : at + width] = value
            if name == "volume id":
                for other in (1, 3, 4, 5, 6):
                    at_other = other * SECTOR + 8
                    self.image.block(*place)[at_other : at_other + 16] = value
        self.finish(places, slots)
        return f"{kind}, {name} = {value.hex()}, at {places}"

    def sequences(self) -> str:
        kind, slots = self.slots()
        places = self.some(slots)
        now = sequence_of(self.image.block(*places[0]))
        end = SEQUENCE_END
        choices = (0, 1, now + 1, now - 1, end, end - 1, end - 1, end - 2, end - 3, (1 << 64) - 1)
        value = self.rng.choice(choices)
        for place in places:
            set_sequence(self.image.block(*place), value)
            self.image.seal(*place)
        return f"{kind}, sequence {value}, at {places}"

    def epochs(self) -> str:
        value = self.rng.choice((0, 1, 2, SEQUENCE_END - 1, SEQUENCE_END - 2, SEQUENCE_END))
        member = self.rng.randrange(8)
        places = self.some(SUPERBLOCKS)
        both = self.rng.random() < 0.5
        for place in places:
            block = self.image.block(*place)
            block[80:88] = struct.pack("<Q", value)
            if both:
                at = SECTOR + 24 + 32 * member + 16
                block[at : at + 8] = struct.pack("<Q", value)
        self.finish(places, SUPERBLOCKS)
        return f"epoch {value}, {f'of leg {member} too, ' if both else ''}at {places}"

    def members(self) -> str:
        places = self.some(SUPERBLOCKS)
        states = [self.rng.choice(MEMBERSHIPS) for _ in range(8)]
        ids = [self.rng.randbytes(16) for _ in range(8)]
        count = self.rng.choice((1, 2, 3, 8))
        for place in places:
            block = self.image.block(*place)
            for member in range(count):
                at = SECTOR + 24 + 32 * member
                if states[member][0] == 0:
                    block[at : at + 32] = bytes(32)
                    continue
                if not any(block[at : at + 16]):
                    block[at : at + 16] = ids[member]
                    block[at + 16 : at + 24] = struct.pack("<Q", 1)
                block[at + 24 : at + 26] = bytes(states[member])
        self.finish(places, SUPERBLOCKS)
        return f"{states[:count]}, at {places}"

    def ancestry(self) -> str:
        places = self.some(SUPERBLOCKS)
        generations = [self.rng.randbytes(16) for _ in range(64)]
        count = self.rng.choice((0, 1, 2, 63, 64))
        style = self.rng.choice(("random", "all alike", "its own", "another leg's"))
        for leg, address in places:
            block = self.image.block(leg, address)
            other = self.image.block((leg + 1) % len(self.image.legs), 0)
            known = {"its own": block[64:80], "another leg's": other[64:80]}.get(style)
            block[98] = count
            for i in range(count):
                generation = generations[0] if style == "all alike" else generations[i]
                if known and i in (0, count - 1):
                    generation = bytes(known)
                sequence = self.rng.choice((0, 1, 64 - i, SEQUENCE_END - 1, (1 << 64) - 1))
                at = (3 + i // 16) * SECTOR + 24 + 24 * (i % 16)
                block[at : at + 24] = generation + struct.pack("<Q", sequence)
        self.finish(places, SUPERBLOCKS)
        return f"{count} generations, {style}, at {places}"

    def generations(self) -> str:
        """Gives each leg, or one, a generation of its own, with or without the old one behind."""
        legs = self.legs()
        follows = self.rng.random() < 0.5
        places = [(leg, at) for leg in legs for at in SUPERBLOCKS]
        for leg in legs:
            generation = self.rng.randbytes(16)
            for address in SUPERBLOCKS:
                block = self.image.block(leg, address)
                if follows:
                    at = 3 * SECTOR + 24
                    block[at : at + 24] = block[64:80] + struct.pack("<Q", sequence_of(block))
                    block[98] = max(block[98], 1)
                block[64:80] = generation
        self.finish(places, SUPERBLOCKS)
        return f"of legs {legs}, {'with' if follows else 'without'} the past one"

    def entries(self) -> str:
        template = self.image.template
        page = self.rng.randrange(template.pages)
        slots = (MIB + 2 * BLOCK * page, MIB + 2 * BLOCK * page + BLOCK)
        places = self.some(slots)
        regions = min(ENTRIES, template.volume_bytes // REGION - page * ENTRIES)
        mask = self.rng.choice((0xFFF, 0xFFF, 0x1FF, 0xFF, 0x100, 0xE00, 0xFFFF))
        one = self.rng.getrandbits(16) & mask
        same = self.rng.random() < 0.5
        last = self.rng.choice((1, regions, regions, ENTRIES))
        for place in places:
            block = self.image.block(*place)
            for i in range(last):
                at = (1 + i // 248) * SECTOR + 2 * (i % 248)
                value = one if same else self.rng.getrandbits(16) & mask
                block[at : at + 2] = struct.pack("<H", value)
        self.finish(places, slots)
        return f"{last} of page {page}, mask {mask:#x}, {f'{one:#x}' if same else 'any'}, {places}"

    def lost(self) -> str:
        """Makes a lost list, most often a valid one."""
        sectors = self.image.template.volume_bytes // SECTOR
        count = self.rng.choice((1, 2, 5, 30, 246, 246, 247, 1 << 31))
        written = min(count, 246)
        edges = sorted(self.rng.sample(range(sectors + 1), 2 * written))
        style = self.rng.choice(("sorted", "sorted", "adjacent", "whole", "beyond", "overlapping"))
        if style == "adjacent":
            edges = [i // 2 + i % 2 for i in range(2 * written)]
        elif style == "whole":
            count, edges = 1, [0, sectors]
        elif style == "beyond":
            edges[-1] = self.rng.choice((sectors + 1, (1 << 64) - 1, 1 << 63))
        elif style == "overlapping":
            edges[0], edges[-1] = edges[-1], edges[0]
        places = self.some(LOST_LISTS)
        for place in places:
            block = self.image.block(*place)
            block[0:4] = struct.pack("<I", count)
            for e in range(len(edges) // 2):
                at = (e + 2) // 31 * SECTOR + 16 * ((e + 2) % 31)
                block[at : at + 16] = struct.pack("<QQ", edges[2 * e], edges[2 * e + 1])
        self.finish(places, LOST_LISTS)
        return f"{count} extents, {style}, at {places}"

    def geometry(self) -> str:
        """Gives legs another size and regions, with the data offset that follows."""
        region = 1 << self.rng.choice((16, 16, 17, 20, 24, 30, 15, 31))
        count = self.rng.choice((1, 2, 31, 33, 1735, 1736, 1737, 5000))
        if self.rng.random() < 0.03:
            count = self.rng.choice((1 << 24, (1 << 24) + 1, 1 << 20))
        volume = count * region - self.rng.choice((0, 0, 4096, 512))
        pages = -(-count // ENTRIES)
        data = -(-(MIB + 8192 * pages) // MIB) * MIB
        legs = self.legs()
        places = [(leg, at) for leg in legs for at in SUPERBLOCKS]
        fits = self.rng.random() < 0.8
        for leg, address in places:
            self.image.block(leg, address)[40:64] = struct.pack("<QQQ", volume, region, data)
            if fits:
                self.image.sizes[leg] = data + volume
        for leg in legs if count <= 5000 else ():
            for page in range(pages):
                for address in (MIB + 8192 * page, MIB + 8192 * page + BLOCK):
                    # A copy of the first page with its own number.
                    block = bytearray(self.image.block(leg, MIB))
                    block[0:4] = struct.pack("<I", page)
                    self.image.legs[leg][address] = block
                    self.image.seal(leg, address)
        self.finish(places, SUPERBLOCKS)
        return f"{count} regions of {region}, volume {volume}, {'fits, ' if fits else ''}{legs}"

    def mark(self) -> str:
        """Lets superblocks rely on a ledger, or on none."""
        places = self.some(SUPERBLOCKS)
        relies = self.rng.random() < 0.7
        known = bytes(self.image.ledger[32:48]) if self.image.ledger else this_boot()
        boot = self.rng.choice((known, known, NO_ID, self.rng.randbytes(16)))
        opening = self.rng.choice((0, 1, 2, 3, (1 << 64) - 1, SEQUENCE_END))
        opened = self.rng.randrange(2)
        for place in places:
            block = self.image.block(*place)
            block[32:40] = struct.pack("<Q", int(relies))
            block[97] = opened
            if relies:
                block[168:192] = struct.pack("<Q", opening) + boot
        self.finish(places, SUPERBLOCKS)
        return f"{'relies' if relies else 'does not rely'}, opening {opening}, open {opened}"

    def ledger_field(self) -> str:
        ledger = self.need_ledger()
        fields = [
            *[(name, at, 4) for name, at in (("version", 8), ("regions", 12), ("objects", 128))],
            *[(name, at, 8) for name, at in (("magic", 0), ("opening", 48), ("next", 56))],
            *[(f"epoch {slot}", 64 + 8 * slot, 8) for slot in range(8)],
            *[("volume", 16, 16), ("boot", 32, 16)],
            *[(f"stamp of {slot}", 256 + 48 * slot, 8) for slot in range(4)],
            *[(f"writer of {slot}", 264 + 48 * slot, 16) for slot in range(4)],
            *[
                (f"object {i // 4} on {i % 4}", 4096 + 64 * (i // 4) + 8 * (i % 4), 8)
                for i in range(12)
            ],
        ]
        name, at, width = self.rng.choice(fields)
        now = bytes(ledger[at : at + width])
        if width <= 8:
            value = self.number(int.from_bytes(now, "little"), 8 * width).to_bytes(width, "little")
        else:
            value = self.bytes(now)
        ledger[at : at + width] = value
        seal_ledger(ledger)
        return f"{name} = {value.hex()}"

    def ledger_words(self) -> str:
        """Puts valid words of other states into a ledger, or words that are not valid."""
        ledger = self.need_ledger()
        start = words_at(ledger)
        regions = min(int.from_bytes(ledger[12:16], "little"), (len(ledger) - start) // 4)
        mask = self.rng.choice((0x1FFF, 0xFFF, 0x1EFF, 0x100, 0xFF))
        one = self.rng.getrandbits(13) & mask
        same = self.rng.random() < 0.4
        count = self.rng.choice((1, 3, 32, 32))
        for region in range(min(count, regions)):
            state = one if same else self.rng.getrandbits(13) & mask
            if not state & 0x100 and self.rng.random() < 0.9:
                # Only a dirty region can be touched.
                state &= 0xFFF
            at = start + 4 * region
            ledger[at : at + 4] = struct.pack("<I", word_of(region, state))
        if self.rng.random() < 0.05:
            ledger[start : start + 4] = self.rng.randbytes(4)
        return f"{count} words, mask {mask:#x}, {f'{one:#x}' if same else 'any'}"

    def ledger_file(self) -> str:
        ledger = self.need_ledger()
        length = self.rng.choice((0, 1, 8, 47, 131, 4095, 4096, 8192, 8195, len(ledger) - 1))
        if self.rng.random() < 0.3:
            ledger += bytes(self.rng.choice((1, 4096, 1 << 20)))
        elif self.rng.random() < 0.3:
            ledger[:] = self.rng.randbytes(len(ledger))
        else:
            del ledger[length:]
        return f"{len(ledger)} bytes"

    def need_ledger(self) -> bytearray:
        """Returns the ledger. Creates one if there is none."""
        image = self.image
        if image.ledger is None:
            regions, objects = image.template.volume_bytes // REGION, image.template.pages + 2
            ledger = bytearray(4096 + 4096 + -(-4 * regions // 4096) * 4096)
            ledger[0:16] = b"HEMILGR\0" + struct.pack("<II", 1, regions)
            ledger[16:48] = image.volume + this_boot()
            ledger[48:64] = struct.pack("<QQ", 1, 1)
            ledger[64:128] = struct.pack("<8Q", *[1] * 8)
            ledger[128:132] = struct.pack("<I", objects)
            seal_ledger(ledger)
            for region in range(regions):
                at = 8192 + 4 * region
                ledger[at : at + 4] = struct.pack("<I", word_of(region, 0x3))
            image.ledger = ledger
        if len(image.ledger) < 4096:
            image.ledger += bytes(8192 - len(image.ledger))
        return image.ledger

    def swapped(self) -> str:
        """Exchanges two blocks of a kind, or copies one over the other, sealed for their places."""
        kind, slots = self.slots()
        places = [(leg, at) for leg in range(len(self.image.legs)) for at in slots]
        first, second = self.rng.sample(places, 2)
        copied = self.rng.random() < 0.5
        one, two = bytes(self.image.block(*first)), bytes(self.image.block(*second))
        self.image.block(*second)[:] = one
        if not copied:
            self.image.block(*first)[:] = two
        sealed = self.rng.random() < 0.8
        for place in (first, second) if sealed else ():
            self.image.seal(*place)
        return f"{kind}, {'copied' if copied else 'swapped'}, {first} and {second}"

    def other_kind(self) -> str:
        """Puts a block of one kind in the place of another."""
        _, slots = self.slots()
        _, others = self.slots()
        leg = self.leg()
        place, source = (leg, self.rng.choice(slots)), (self.leg(), self.rng.choice(others))
        self.image.block(*place)[:] = bytes(self.image.block(*source))
        self.image.seal(*place)
        return f"{source} at {place}"

    def same_leg(self) -> str:
        """Copies all of a leg over another, perhaps with the other's name."""
        image = self.image
        first, second = self.rng.sample(range(len(image.legs)), 2)
        renamed = self.rng.random() < 0.6
        names = [image.block(second, at)[96] for at in SUPERBLOCKS]
        image.legs[second] = {at: bytearray(block) for at, block in image.legs[first].items()}
        for address, name in zip(SUPERBLOCKS, names, strict=True):
            if renamed:
                image.block(second, address)[96] = name
                image.seal(second, address)
        return f"{first} over {second}, {'renamed' if renamed else 'as it is'}"

    def stale(self) -> str:
        """Puts a leg, or some of its blocks, back to an earlier state."""
        image = self.image
        leg = self.leg()
        older = self.rng.choice(image.template.older)[leg]
        whole = self.rng.random() < 0.4
        if whole:
            image.legs[leg] = {at: bytearray(block) for at, block in older.items()}
            told = "all"
        else:
            told, slots = self.slots()
            for address in slots if self.rng.random() < 0.5 else slots[:1]:
                image.legs[leg][address] = bytearray(older.get(address, bytes(BLOCK)))
        return f"{told} of leg {leg}"

    def cut(self) -> str:
        leg = self.leg()
        size = self.image.sizes[leg]
        places = (0, 1, 511, 512, 4095, 4096, 65536, 131072, MIB, MIB + 4096, 2 * MIB, size - 1)
        value = self.rng.choice((*places, size - 512, size - 4096, size + 1, size + 512, 2 * size))
        self.image.sizes[leg] = max(value, 0)
        return f"leg {leg} has {value} bytes"

    def noise(self) -> str:
        """Fills payloads with random bytes, under valid trailers."""
        kind, slots = self.slots()
        places = self.some(slots)
        sectors = self.rng.sample(range(8), self.rng.choice((1, 1, 2, 8)))
        first = self.rng.choice((0, 24, 24, 104))
        for place in places:
            block = self.image.block(*place)
            for sector in sectors:
                at = sector * SECTOR
                block[at + first : at + 496] = self.rng.randbytes(496 - first)
        self.finish(places, slots)
        return f"{kind}, sectors {sectors} from {first}, at {places}"

    def flips(self) -> str:
        """Flips bits, also of the trailers, under valid checksums in most cases."""
        kind, slots = self.slots()
        places = self.some(slots)
        bits = [self.rng.randrange(8 * BLOCK) for _ in range(self.rng.choice((1, 2, 8)))]
        sealed = self.rng.random() < 0.8
        for place in places:
            for bit in bits:
                self.image.block(*place)[bit // 8] ^= 1 << bit % 8
            if sealed:
                self.image.seal(*place)
        return f"{kind}, bits {bits}, {'sealed' if sealed else 'damaged'}, at {places}"

    def torn(self) -> str:
        """Gives some sectors of blocks another sequence."""
        kind, slots = self.slots()
        places = self.some(slots)
        count = self.rng.randrange(1, 8)
        for place in places:
            block = self.image.block(*place)
            value = self.rng.choice((0, sequence_of(block) + 1, SEQUENCE_END - 1))
            for sector in range(count):
                at = sector * SECTOR + 496
                block[at : at + 8] = struct.pack("<Q", min(value, SEQUENCE_END - 1))
            self.image.seal(*place)
        return f"{kind}, {count} sectors, at {places}"

    def blank(self) -> str:
        kind, slots = self.slots()
        places = self.some(slots)
        for place in places:
            self.image.block(*place)[:] = bytes(BLOCK)
        return f"{kind}, at {places}"

    def renamed(self) -> str:
        """Gives the volume another id, on all legs and in the ledger."""
        image = self.image
        image.volume = self.rng.choice((NO_ID, b"\xff" * 16, self.rng.randbytes(16)))
        for leg in range(len(image.legs)):
            for address in image.metadata(leg):
                if address in SUPERBLOCKS:
                    for sector in (0, 1, 3, 4, 5, 6):
                        at = sector * SECTOR + 8
                        image.block(leg, address)[at : at + 16] = image.volume
                image.seal(leg, address)
        if image.ledger is not None and len(image.ledger) >= 136:
            image.ledger[16:32] = image.volume
            seal_ledger(image.ledger)
        return image.volume.hex()


FORGERIES: dict[str, tuple[int, Callable[[Forger], str]]] = {
    "field": (24, Forger.field),
    "sequences": (6, Forger.sequences),
    "epochs": (4, Forger.epochs),
    "members": (5, Forger.members),
    "ancestry": (4, Forger.ancestry),
    "generations": (4, Forger.generations),
    "entries": (8, Forger.entries),
    "lost list": (6, Forger.lost),
    "geometry": (4, Forger.geometry),
    "mark": (4, Forger.mark),
    "ledger's field": (6, Forger.ledger_field),
    "ledger's words": (6, Forger.ledger_words),
    "ledger's file": (1, Forger.ledger_file),
    "blocks swapped": (4, Forger.swapped),
    "block of another kind": (1, Forger.other_kind),
    "one leg twice": (2, Forger.same_leg),
    "stale": (5, Forger.stale),
    "cut": (2, Forger.cut),
    "noise": (5, Forger.noise),
    "flips": (5, Forger.flips),
    "torn": (4, Forger.torn),
    "blank": (3, Forger.blank),
    "volume renamed": (1, Forger.renamed),
}
