"""Refuses to write to a target in use, or to one that holds data unless `--wipe` names it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from hemi_lab import tool
from hemi_lab.errors import LabError, RefusedError, ToolError
from hemi_lab.targets.base import Target

_SAMPLES = 64
_SAMPLE_BYTES = 64 << 10
_HEAD_BYTES = 4 << 20

_LEG_MAGIC = b"HEMIVOL\0"
"""The first bytes of a leg (docs/design/disk-format.md)."""


def check(target: Target, wipe: list[str]) -> list[str]:
    """Returns the contents that will be destroyed, and raises if they may not be.

    If a target has several `parts`, each has to be named."""
    if parts := _parts(target):
        return [said for part in parts for said in check(part, wipe)]
    hazards = target.hazards()
    if hazards.in_use:
        raise RefusedError(
            f"{target.path} is in use: {'; '.join(hazards.in_use)}",
            "Unmount it or stop what uses it. --wipe does not help here: whoever uses it "
            "would be harmed.",
        )
    if hazards.holds and not any(
        named == target.text or same(named, target.path) for named in wipe
    ):
        raise RefusedError(
            f"{target.path} is not empty: {'; '.join(hazards.holds)}",
            f"If it may be destroyed, say so: --wipe {target.path}",
        )
    return hazards.holds


def paths(target: Target) -> list[str]:
    """Returns the paths that `--wipe` has to name."""
    return [part.path for part in _parts(target)] or [target.path]


def _parts(target: Target) -> list[Target]:
    return list(getattr(target, "parts", []))


def same(one: str, other: str) -> bool:
    """Returns true if both names mean the same thing, links followed."""
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def content(read: Callable[[int, int], bytes], size: int) -> list[str]:
    """Returns a hazard if any sampled place is not zero.

    The samples are the beginning, the end, and places between, the same each time. A single block
    elsewhere may escape, but no file system does."""
    places = random.Random(size)
    spots = [0] if size else []
    spots += [places.randrange(max(1, size - _SAMPLE_BYTES)) for _ in range(_SAMPLES)]
    spots.append(max(0, size - _SAMPLE_BYTES))
    for number, spot in enumerate(spots):
        offset = spot - spot % 4096
        length = min(_HEAD_BYTES if number == 0 else _SAMPLE_BYTES, size - offset)
        if length > 0 and any(read(offset, length)):
            return [f"data at {offset} bytes"]
    return []


def signatures(path: str) -> list[str]:
    """Returns the file systems, partition tables, RAID and LVM members that blkid finds."""
    try:
        command = [tool.find("blkid", "HEMI_LAB_BLKID", ""), "-p", "-o", "export", path]
        text = tool.run(command).output
    except ToolError:
        # Exit status 2 means that nothing was found. Data without a signature is found by reading.
        return []
    known = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    found = []
    if "PTTYPE" in known:
        found.append(f"a partition table ({known['PTTYPE']})")
    if "TYPE" in known:
        found.append(f"{known['TYPE']} ({known.get('USAGE', 'signature')})")
    return found


def hemi_leg(path: str) -> list[str]:
    """Returns the number and volume of the hemi leg at a path, or nothing if there is none."""
    with Path(path).open("rb") as file:
        if file.read(len(_LEG_MAGIC)) != _LEG_MAGIC:
            return []
    try:
        command = [tool.find("hemi", "HEMI", ""), "inspect", "--json", path]
        superblock = json.loads(tool.run(command).output)["legs"][0]["superblock"]
        return [f"leg {superblock['leg']} of volume {superblock['name']}"]
    except (LabError, ValueError, LookupError, TypeError):
        # hemi is not installed, or the metadata is damaged.
        return ["a leg of a hemi volume"]


def uses_of_device(number: tuple[int, int], system: Path = Path("/sys")) -> list[str]:
    """Returns mounts, swap, holders (RAID, LVM) and loop devices of a device and its partitions."""
    own = system / "dev/block" / f"{number[0]}:{number[1]}"
    parts = [own, *(path.parent for path in own.resolve().glob("*/partition"))]
    found = []
    for part in parts:
        name = part.resolve().name
        try:
            device = (part / "dev").read_text().strip()
        except OSError:
            continue
        found += [f"{name} is mounted on {place}" for place in _mounts(device)]
        holders = part / "holders"
        if holders.is_dir():
            found += [f"{name} is held by {holder.name}" for holder in holders.iterdir()]
        if any(Path(line.split()[0]).name == name for line in _swaps()):
            found.append(f"{name} is used as swap")
        # The kernel does not count these as holders, and O_EXCL succeeds despite them.
        found += [f"{name} is behind the loop device {loop}" for loop in _loops(device, system)]
    return found


def partitions_of(number: tuple[int, int], system: Path = Path("/sys")) -> list[str]:
    """Returns the names of a device's partitions."""
    own = (system / "dev/block" / f"{number[0]}:{number[1]}").resolve()
    return sorted(path.parent.name for path in own.glob("*/partition"))


def _mounts(device: str) -> list[str]:
    """Returns the mount points of a device (`8:1`) in this mount namespace."""
    # One mount point whose name is not UTF-8 must not hide the others.
    lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    return [fields[4] for fields in map(str.split, lines) if fields[2] == device]


def _swaps() -> list[str]:
    """Returns the kernel's lines on swap files and devices, whatever their names."""
    return Path("/proc/swaps").read_text(errors="surrogateescape").splitlines()[1:]


def uses_of_file(path: Path, system: Path = Path("/sys")) -> list[str]:
    """Returns the loop devices, swap and locks on a file.

    The leg of a served volume and the disk of a virtual machine are locked."""
    own = path.stat()
    found = [
        f"it is behind the loop device {loop.parent.parent.name}"
        for loop, behind in _backings(system)
        if os.path.samestat(behind, own)
    ]
    if any(same(_unescaped(line.split()[0]), str(path)) for line in _swaps()):
        found.append("it is used as swap")
    return found + locks_on(own)


def locks_on(own: os.stat_result) -> list[str]:
    """Returns the holder of a lock on a file or a device's node."""
    inode = f"{os.major(own.st_dev):02x}:{os.minor(own.st_dev):02x}:{own.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        # 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF. A waiting lock has an arrow as well.
        fields = line.split()
        if fields[1] in ("FLOCK", "POSIX", "OFDLCK") and fields[5] == inode:
            owner = "" if fields[4] in ("0", "-1") else f" by process {fields[4]}"
            return [f"it is locked{owner}"]
    return []


def _loops(device: str, system: Path) -> list[str]:
    """Returns the loop devices over a block device (`8:1`)."""
    return [
        loop.parent.parent.name
        for loop, behind in _backings(system)
        if stat.S_ISBLK(behind.st_mode)
        and f"{os.major(behind.st_rdev)}:{os.minor(behind.st_rdev)}" == device
    ]


def _backings(system: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yields each loop device's file with the status of its backing file."""
    for backing in sorted(system.glob("block/loop*/loop/backing_file")):
        # Either may be gone by now.
        with contextlib.suppress(OSError):
            yield backing, Path(os.fsdecode(backing.read_bytes().removesuffix(b"\n"))).stat()


def _unescaped(path: str) -> str:
    r"""Returns a path without the escapes of /proc, where a blank is `\040`."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)
