"""Nothing is written to what somebody uses, nor to what holds something unless it is named."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from hemi_lab import tool
from hemi_lab.errors import RefusedError, ToolError
from hemi_lab.targets.base import Target

_SAMPLES = 64
_SAMPLE_BYTES = 64 << 10
_HEAD_BYTES = 4 << 20


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


def uses_of_device(number: tuple[int, int], system: Path = Path("/sys")) -> list[str]:
    """Mounts, swap and holders (RAID, LVM, loop devices) of a block device and its partitions."""
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
    return found


def partitions_of(number: tuple[int, int], system: Path = Path("/sys")) -> list[str]:
    """Names of a device's partitions."""
    own = (system / "dev/block" / f"{number[0]}:{number[1]}").resolve()
    return sorted(path.parent.name for path in own.glob("*/partition"))


def _mounts(device: str) -> list[str]:
    """Where a device (`8:1`) is mounted, in this mount namespace."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [fields[4] for fields in map(str.split, lines) if fields[2] == device]


def loops_on(path: Path, system: Path = Path("/sys")) -> list[str]:
    """Loop devices whose file this is."""
    found = []
    for backing in sorted(system.glob("block/loop*/loop/backing_file")):
        try:
            behind = backing.read_text().strip()
        except OSError:
            continue
        if behind and same(behind, str(path)):
            found.append(f"it is behind the loop device {backing.parent.parent.name}")
    return found
