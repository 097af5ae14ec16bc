"""MariaDB under sysbench on hemi's block devices and on md RAID-1, in a user-mode kernel.

The kernel is that of `make user-mode-kernel`. It has one processor and slow system calls, so
compare the rows with each other, not with the other tables.
"""

from __future__ import annotations

from typing import Any

from hemi_lab.database.sysbench import parse

from .guest import keys_of, missing, run_in_guest, values_of
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
    lacking = missing(NEEDS)
    if lacking:
        data["skipped"] = f"not run: {', '.join(lacking)} missing"
        say(data["skipped"])
        return data
    rounds = min(settings.freeze_rounds, 3)
    systems, cases = [system for system, _ in SYSTEMS], [case for case, _ in CASES]
    keys = keys_of(rounds, systems, cases)
    say(f"{len(keys)} runs of {seconds} s in the guest")

    def told(key: str, got: dict[str, Any]) -> None:
        say(f"{key}: {got['transactions']:.0f} a second, longest {got['max']:.0f} ms")

    run_in_guest(
        settings,
        data,
        memory="3G",
        script="database_guest.sh",
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
        take=lambda _key, path, _directory: figures(path.read_text()),
        told=told,
    )
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
        md = values_of(data, "md", case, "transactions")
        for system, label in SYSTEMS:
            done = values_of(data, system, case, "transactions")
            rows.append(
                [
                    label,
                    case_label,
                    f"{median(done):.0f}",
                    f"{median(done) / median(md):.2f}",
                    f"{median(values_of(data, system, case, 'mean')):.1f}",
                    f"{median(values_of(data, system, case, 'p99')):.0f}",
                    f"{max(values_of(data, system, case, 'max')):,.0f}",
                ]
            )
    head = ["", "case", "transactions/s", "÷ md", "mean ms", "p99 ms", "longest ms"]
    return lines + table(head, rows)
