"""The settings of a benchmark run, and its machine."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hemi_harness import HEMI, run

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """Lengths, repeats and sizes."""

    directory: Path
    seconds: int = 30
    pairs: int = 5
    slow_seconds: int = 60
    freeze_seconds: int = 20
    freeze_rounds: int = 3
    volume_mib: int = 1024
    # Rows of the freeze tables to measure. If empty, all.
    kinds: tuple[str, ...] = ()

    @property
    def volume_bytes(self) -> int:
        return self.volume_mib * MIB

    def quick(self) -> Settings:
        return Settings(
            self.directory,
            seconds=5,
            pairs=2,
            slow_seconds=20,
            freeze_seconds=8,
            freeze_rounds=1,
            volume_mib=min(self.volume_mib, 512),
        )

    def record(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LENGTHS}


# Settings on which the figures of a run depend.
LENGTHS = tuple(
    field.name for field in fields(Settings) if field.name not in ("directory", "kinds")
)


def version(*argv: str, pattern: str = r"\d+\.\d+[\w.\-]*") -> str:
    """Returns the version a tool prints, or a text that it is missing."""
    try:
        found = re.search(pattern, run(*argv))
    except AssertionError:
        return "not installed"
    return found.group(0) if found else "unknown"


def machine(directory: Path) -> dict[str, str]:
    """Returns the facts of the machine on which figures depend."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])  # type: ignore[index]
    filesystem = run("findmnt", "-no", "FSTYPE", "--target", directory).strip()
    return {
        "processor": f"{model}, {os.cpu_count()} logical",
        "memory": f"{memory / (1 << 20):.0f} GiB",
        "kernel": platform.release().split("-")[0],
        "file system of the legs": filesystem,
        "hemi": version(str(HEMI), "--version"),
        "fio": version("fio", "--version"),
        "qemu": version("qemu-nbd", "--version"),
        "nbdkit": version("nbdkit", "--version"),
        "libnbd": version("nbdinfo", "--version"),
    }
