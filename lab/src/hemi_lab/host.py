"""Facts about this machine."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from hemi_lab.results.model import Host

_READING = 0.02
"""Longest time in seconds that reading two clocks in turn may take."""


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


class Watch:
    """Watches, from when it is made, what disturbs a run on this machine."""

    def __init__(self) -> None:
        self._clocks = time.time(), time.monotonic()
        self._ticks = _stolen()

    def drift(self) -> float:
        """Returns by how much the wall clock ran ahead, as a share of the time since."""
        wall, monotonic = time.time() - self._clocks[0], time.monotonic() - self._clocks[1]
        # Two clocks are not read at the same moment. A machine that stalls between them is no
        # drift.
        apart = wall - monotonic if abs(wall - monotonic) > _READING else 0.0
        return apart / max(monotonic, 1e-9)

    def stolen(self) -> float:
        """Returns the share of processor time since that other machines took."""
        stolen, all_ticks = _stolen()
        return (stolen - self._ticks[0]) / max(all_ticks - self._ticks[1], 1.0)


def _stolen() -> tuple[float, float]:
    """Returns the ticks stolen by other machines and all ticks, since this one started."""
    try:
        ticks = [
            float(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:]
        ]
    except (OSError, ValueError):
        return 0.0, 0.0
    return (ticks[7] if len(ticks) > 7 else 0.0), sum(ticks[:8])
