"""Facts about this machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from hemi_lab.results.model import Host


def host() -> Host:
    """Returns kernel, processor, cores and memory."""
    return Host(
        kernel=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def stolen() -> tuple[float, float]:
    """Returns the ticks stolen by other machines and all ticks, since this one started."""
    try:
        ticks = [
            float(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:]
        ]
    except (OSError, ValueError):
        return 0.0, 0.0
    return (ticks[7] if len(ticks) > 7 else 0.0), sum(ticks[:8])
