"""Nothing is written to what somebody uses, nor to what holds something unless it is named."""

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
    """What will be destroyed, having been named; raises where it may not be. Of a target made of
    several (`parts`), each has to be named."""
    if parts := _parts(target):
        return [said for part in parts for said in check(part, wipe)]
    hazards = target.hazards()
    if hazards.in_use:
        raise RefusedError(
            f"{target.path} is in use: {'; '.join(hazards.in_use)}",
            "Unmount it or stop what uses it. --wipe does not help here: whoever uses it "
            "would be harmed.",
        )
    if hazards.holds and not any(same(named, target.path) for named in wipe):
        raise RefusedError(
            f"{target.path} is not empty: {'; '.join(hazards.holds)}",
            f"If it may be destroyed, say so: --wipe {target.path}",
        )
    return hazards.holds


def paths(target: Target) -> list[str]:
    """What `--wipe` has to name."""
    return [part.path for part in _parts(target)] or [target.path]


def _parts(target: Target) -> list[Target]:
    return list(getattr(target, "parts", []))


def same(one: str, other: str) -> bool:
    """Whether two names are of one thing, links followed."""
    return one == other or os.path.realpath(one) == os.path.realpath(other)


def content(read: Callable[[int, int], bytes], size: int) -> list[str]:
    """Whether anything but zeros is there: the beginning, the end, and places in between, the
    same each time. A single block elsewhere may escape; file systems do not."""
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
    """File systems, partition tables, RAID and LVM members that blkid finds."""
    try:
        command = [tool.find("blkid", "HEMI_LAB_BLKID", ""), "-p", "-o", "export", path]
        text = tool.run(command).output
    except ToolError:
        # Exit status 2: nothing found. Data without a signature is found by reading.
        return []
    known = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    found = []
    if "PTTYPE" in known:
        found.append(f"a partition table ({known['PTTYPE']})")
    if "TYPE" in known:
        found.append(f"{known['TYPE']} ({known.get('USAGE', 'signature')})")
    return found


def hemi_leg(path: str) -> list[str]:
    """The leg of a hemi volume that is at a path, if one is: its number and its volume."""
    with Path(path).open("rb") as file:
        if file.read(len(_LEG_MAGIC)) != _LEG_MAGIC:
            return []
    try:
        command = [tool.find("hemi", "HEMI", ""), "inspect", "--json", path]
        superblock = json.loads(tool.run(command).output)["legs"][0]["superblock"]
        return [f"leg {superblock['leg']} of volume {superblock['name']}"]
    except (LabError, ValueError, LookupError, TypeError):
        # There is no hemi to ask, or the metadata is damaged.
        return ["a leg of a hemi volume"]


def uses_of_device(number: tuple[int, int], system: Path = Path("/sys")) -> list[str]:
    """Mounts, swap, holders (RAID, LVM) and loop devices of a block device and its partitions."""
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
        swaps = Path("/proc/swaps").read_text().splitlines()[1:]
        if any(Path(line.split()[0]).name == name for line in swaps):
            found.append(f"{name} is used as swap")
        # The kernel does not count these as holders, nor does O_EXCL fail for them.
        found += [f"{name} is behind the loop device {loop}" for loop in _loops(device, system)]
    return found


def partitions_of(number: tuple[int, int], system: Path = Path("/sys")) -> list[str]:
    """Names of a device's partitions."""
    own = (system / "dev/block" / f"{number[0]}:{number[1]}").resolve()
    return sorted(path.parent.name for path in own.glob("*/partition"))


def _mounts(device: str) -> list[str]:
    """Where a device (`8:1`) is mounted, in this mount namespace."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [fields[4] for fields in map(str.split, lines) if fields[2] == device]


def uses_of_file(path: Path, system: Path = Path("/sys")) -> list[str]:
    """Loop devices and swap on a file, and locks: a served volume's leg and a virtual machine's
    disk have one."""
    own = path.stat()
    found = [
        f"it is behind the loop device {loop.parent.parent.name}"
        for loop, behind in _backings(system)
        if os.path.samestat(behind, own)
    ]
    swaps = Path("/proc/swaps").read_text().splitlines()[1:]
    if any(same(_unescaped(line.split()[0]), str(path)) for line in swaps):
        found.append("it is used as swap")
    return found + locks_on(own)


def locks_on(own: os.stat_result) -> list[str]:
    """Who holds a lock on a file or a device's node."""
    inode = f"{os.major(own.st_dev):02x}:{os.minor(own.st_dev):02x}:{own.st_ino}"
    for line in Path("/proc/locks").read_text().splitlines():
        # 1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF; what waits has an arrow more.
        fields = line.split()
        if fields[1] in ("FLOCK", "POSIX", "OFDLCK") and fields[5] == inode:
            owner = "" if fields[4] in ("0", "-1") else f" by process {fields[4]}"
            return [f"it is locked{owner}"]
    return []


def _loops(device: str, system: Path) -> list[str]:
    """Loop devices over a block device (`8:1`)."""
    return [
        loop.parent.parent.name
        for loop, behind in _backings(system)
        if stat.S_ISBLK(behind.st_mode)
        and f"{os.major(behind.st_rdev)}:{os.minor(behind.st_rdev)}" == device
    ]


def _backings(system: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """What is behind each loop device."""
    for backing in sorted(system.glob("block/loop*/loop/backing_file")):
        # Both may be gone by now.
        with contextlib.suppress(OSError):
            yield backing, Path(backing.read_text().removesuffix("\n")).stat()


def _unescaped(path: str) -> str:
    r"""A path as /proc shows it: blanks are `\040`."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), path)
