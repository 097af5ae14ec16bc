"""MariaDB under sysbench on hemi's block devices and on md RAID-1, in a user-mode kernel.

The kernel is that of `make kernel-test`. It has one processor and slow system calls, so compare the
rows with each other, not with the other tables.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hemi_harness import HEMI, Sandbox
from hemi_harness.user_mode import kernel_arguments
from hemi_lab.database.sysbench import parse

from .devices import KERNEL
from .guest import result_of
from .measure import median, table
from .settings import Settings

NAME = "database"
TITLE = "A database on the device, in a user-mode kernel"

SYSTEMS = (
    ("ublk", "**hemi, ublk**"),
    ("nbd", "**hemi, the kernel's NBD client**"),
    ("md", "md RAID-1"),
)
CASES = (
    ("none", "no freeze"),
    ("0", "leg 0 frozen 2 s"),
    ("1", "leg 1 frozen 2 s"),
)
VOLUME_MIB = 320
SECONDS_MAX = 12
#: Limit for a guest that hangs. The first run of a system includes making the database.
RUN_SECONDS_LIMIT = 240
NEEDS = ("mdadm", "dmsetup", "busybox", "sysbench", "mariadbd")


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    seconds = min(settings.freeze_seconds, SECONDS_MAX)
    data: dict[str, Any] = {"settings": settings.record(), "seconds": seconds, "runs": {}}
    missing = [tool for tool in NEEDS if not shutil.which(tool)]
    if not KERNEL.exists():
        missing.append("the kernel of make kernel-test")
    if missing:
        data["skipped"] = f"not run: {', '.join(missing)} missing"
        say(data["skipped"])
        return data
    rounds = min(settings.freeze_rounds, 3)
    keys = [
        f"{number + 1}.{system}.{case}"
        for number in range(rounds)
        for system, _ in SYSTEMS
        for case, _ in CASES
    ]
    say(f"{len(keys)} runs of {seconds} s in the guest")
    with Sandbox(settings.directory) as box:
        guest = box.start(
            KERNEL,
            *kernel_arguments("3G"),
            f"brd.rd_size={(VOLUME_MIB + 16) * 1024}",
            "brd.rd_nr=2",
            f"init={Path(__file__).parent / 'database_guest.sh'}",
            f"OUT={box.dir}",
            f"SECONDS_RUN={seconds}",
            f"VOLUME_MIB={VOLUME_MIB}",
            f"HEMI={HEMI}",
            f"ROUNDS={rounds}",
            f"SYSTEMS={','.join(system for system, _ in SYSTEMS)}",
            f"CASES={','.join(case for case, _ in CASES)}",
            name="linux",
        )
        for key in keys:
            path = result_of(guest, box.dir, key, RUN_SECONDS_LIMIT)
            data["runs"][key] = got = figures(path.read_text())
            say(f"{key}: {got['transactions']:.0f} a second, longest {got['max']:.0f} ms")
        guest.wait()
        data["kernel"] = (box.dir / "kernel").read_text().strip()
    return data


def figures(text: str) -> dict[str, float]:
    """Returns what sysbench printed: transactions a second, latencies of a transaction in ms."""
    report = parse(text)
    return {
        "transactions": report.transactions_per_second,
        "mean": report.latency_mean_ms,
        f"p{report.latency_rank}": report.latency_at_rank_ms,
        "max": report.latency_max_ms,
    }


def report(data: dict[str, Any]) -> list[str]:
    if "skipped" in data:
        return [f"{data['skipped']}."]
    lines = [
        "sysbench `oltp_read_write`, 4 threads, 2 tables of 10,000 rows; MariaDB on ext4.",
        f"{data['seconds']} s a run, medians of interleaved rounds, the longest of all; user-mode",
        f"Linux {data['kernel']}, one processor, RAM disks behind dm-linear, frozen by suspending",
        "it.",
        "",
    ]
    rows = []
    for case, case_label in CASES:
        md = _all(data, "md", case, "transactions")
        for system, label in SYSTEMS:
            done = _all(data, system, case, "transactions")
            rows.append(
                [
                    label,
                    case_label,
                    f"{median(done):.0f}",
                    f"{median(done) / median(md):.2f}",
                    f"{median(_all(data, system, case, 'mean')):.1f}",
                    f"{median(_all(data, system, case, 'p99')):.0f}",
                    f"{max(_all(data, system, case, 'max')):,.0f}",
                ]
            )
    head = ["", "case", "transactions/s", "÷ md", "mean ms", "p99 ms", "longest ms"]
    return lines + table(head, rows)


def _all(data: dict[str, Any], system: str, case: str, key: str) -> list[float]:
    ending = f".{system}.{case}"
    return [run[key] for name, run in data["runs"].items() if name.endswith(ending)]
