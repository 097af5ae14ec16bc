"""Ways to a block device, compared with each other and with md RAID-1, in a user-mode kernel.

The kernel is that of `make kernel-test`. It has one processor and slow system calls, so compare the
rows with each other, not with the other tables.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hemi_harness import HEMI, FioResult, Sandbox
from hemi_harness.fio import job_of
from hemi_harness.user_mode import kernel_arguments

from .guest import result_of
from .measure import figures, median, table, thousands
from .settings import Settings

NAME = "devices"
TITLE = "Ways to a block device, in a user-mode kernel"

KERNEL = Path(__file__).parents[1] / "target/kernel/linux"
SYSTEMS = (
    ("socket", "hemi, NBD socket"),
    ("ublk", "**hemi, ublk**"),
    ("nbd", "**hemi, the kernel's NBD client**"),
    ("nbd-client", "hemi, nbd-client"),
    ("md", "md RAID-1"),
)
CASES = (
    ("read-1", "read, QD1"),
    ("write-1", "write, QD1"),
    ("sync-1", "write and fsync, QD1"),
    ("read-16", "read, QD16"),
    ("write-16", "write, QD16"),
)
VOLUME_MIB = 192
SECONDS_MAX = 8
#: Limit for a guest that hangs.
RUN_SECONDS_LIMIT = 120
NEEDS = ("mdadm", "nbd-client", "busybox", "fio")


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    seconds = min(settings.seconds, SECONDS_MAX)
    data: dict[str, Any] = {"settings": settings.record(), "seconds": seconds, "runs": {}}
    missing = [tool for tool in NEEDS if not shutil.which(tool)]
    if not KERNEL.exists():
        missing.append("the kernel of make kernel-test")
    # nbd-client is a peer that can be left out.
    systems = [key for key, _ in SYSTEMS if key not in missing]
    if missing and missing != ["nbd-client"]:
        data["skipped"] = f"not run: {', '.join(missing)} missing"
        say(data["skipped"])
        return data
    rounds = min(settings.pairs, 3)
    keys = [
        f"{number + 1}.{system}.{case}"
        for number in range(rounds)
        for system in systems
        for case, _ in CASES
    ]
    say(f"{len(keys)} runs of {seconds} s in the guest")
    with Sandbox(settings.directory) as box:
        guest = box.start(
            KERNEL,
            *kernel_arguments("2G"),
            f"brd.rd_size={(VOLUME_MIB + 16) * 1024}",
            "brd.rd_nr=2",
            f"init={Path(__file__).parent / 'devices_guest.sh'}",
            f"OUT={box.dir}",
            f"SECONDS_RUN={seconds}",
            f"VOLUME_MIB={VOLUME_MIB}",
            f"HEMI={HEMI}",
            f"ROUNDS={rounds}",
            f"SYSTEMS={','.join(systems)}",
            f"CASES={','.join(case for case, _ in CASES)}",
            name="linux",
        )
        for key in keys:
            path = result_of(guest, box.dir, key, RUN_SECONDS_LIMIT)
            data["runs"][key] = _figures(path, (box.dir / f"{key}.ticks").read_text())
            say(f"{key}: {data['runs'][key]['iops']:.0f} IOPS")
        guest.wait()
        data["kernel"] = (box.dir / "kernel").read_text().strip()
    return data


def _figures(path: Path, ticks: str) -> dict[str, Any]:
    """Returns the figures of a run, with hemi's processor time for a request in µs."""
    job = job_of(path)
    kind = "read" if job["read"]["total_ios"] else "write"
    result = FioResult.parse(job, kind)
    got = figures(result, None)
    got["cpu_us"] = int(ticks) * 10_000 / max(result.operations, 1)
    return got


def headline(data: dict[str, Any]) -> list[str]:
    """Returns the ways side by side: IOPS of each case, and hemi's own time for a write."""
    lines = [
        "The same volume on two RAM disks by each way to a block device, and md RAID-1 on the same",
        "disks. 4 KiB, random; IOPS, medians of interleaved rounds. User-mode Linux has one",
        "processor and slow system calls: compare the rows with each other only.",
        "",
    ]
    rows = []
    for system, label in SYSTEMS:
        iops = [_median(data, system, case, "iops") for case, _ in CASES]
        if any(figure is None for figure in iops):
            continue
        cpu = _median(data, system, "write-1", "cpu_us") or 0
        rows.append([label, *(thousands(it or 0) for it in iops), f"{cpu:.0f}" if cpu else "-"])
    head = ["", *(label for _, label in CASES), "hemi, µs a write at QD1"]
    return lines + table(head, rows)


def report(data: dict[str, Any]) -> list[str]:
    if "skipped" in data:
        return [f"{data['skipped']}."]
    lines = [
        f"4 KiB, random, {data['seconds']} s a run, medians of interleaved rounds; user-mode Linux",
        f"{data['kernel']}, one processor, RAM disks. fio's libaio on the device, its NBD engine",
        "on the socket. Processor time is hemi's own, not that of the kernel's threads.",
        "",
    ]
    rows = []
    for case, case_label in CASES:
        socket = _median(data, "socket", case, "iops")
        for system, label in SYSTEMS:
            iops = _median(data, system, case, "iops")
            if iops is None or socket is None:
                continue
            cpu = _median(data, system, case, "cpu_us") or 0
            row = [label, case_label, thousands(iops), f"{iops / socket:.2f}"]
            for key in ("p50", "p99", "max"):
                row.append(thousands(_median(data, system, case, key) or 0))
            rows.append([*row, f"{cpu:.0f}" if cpu else "-"])
    head = ["", "case", "IOPS", "÷ socket", "p50 µs", "p99 µs", "longest µs", "hemi, µs a request"]
    return lines + table(head, rows)


def _median(data: dict[str, Any], system: str, case: str, key: str) -> float | None:
    ending = f".{system}.{case}"
    found = [run[key] for name, run in data["runs"].items() if name.endswith(ending)]
    return median(found) if found else None
