"""Ways to a block device, compared with each other and with md RAID-1, in a user-mode kernel.

The kernel is that of `make user-mode-kernel`. It has one processor and slow system calls, so
compare the rows with each other, not with the other tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hemi_harness import FioResult
from hemi_harness.fio import job_of

from .guest import keys_of, missing, run_in_guest, values_of
from .measure import figures, median, table, thousands
from .settings import Settings

NAME = "devices"
TITLE = "Ways to a block device, in a user-mode kernel"

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
    lacking = missing(NEEDS)
    # nbd-client is a peer that can be left out.
    systems = [key for key, _ in SYSTEMS if key not in lacking]
    if lacking and lacking != ["nbd-client"]:
        data["skipped"] = f"not run: {', '.join(lacking)} missing"
        say(data["skipped"])
        return data
    rounds = min(settings.pairs, 3)
    cases = [case for case, _ in CASES]
    keys = keys_of(rounds, systems, cases)
    say(f"{len(keys)} runs of {seconds} s in the guest")
    run_in_guest(
        settings,
        data,
        memory="2G",
        script="devices_guest.sh",
        variables={
            "brd.rd_size": (VOLUME_MIB + 16) * 1024,
            "brd.rd_nr": 2,
            "SECONDS_RUN": seconds,
            "VOLUME_MIB": VOLUME_MIB,
            "ROUNDS": rounds,
            "SYSTEMS": ",".join(systems),
            "CASES": ",".join(cases),
        },
        keys=keys,
        limit=RUN_SECONDS_LIMIT,
        take=_figures,
        told=lambda key, got: say(f"{key}: {got['iops']:.0f} IOPS"),
    )
    return data


def _figures(key: str, path: Path, directory: Path) -> dict[str, Any]:
    """Returns the figures of a run, with hemi's processor time for a request in µs."""
    ticks = (directory / f"{key}.ticks").read_text()
    job = job_of(path)
    read = FioResult.parse(job, "read")
    result = read if read.operations else FioResult.parse(job, "write")
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
    found = values_of(data, system, case, key)
    return median(found) if found else None
