"""Linux md RAID-1 and hemi, both inside user-mode Linux on the same RAM disks.

Kernels without md (and clouds without nested virtualisation) leave user-mode Linux as the place
where both run (`make user-mode-kernel`). It has one processor and a 10 ms tick, so compare the rows
with each other, not with the other tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hemi_harness import FioResult
from hemi_harness.fio import job_of

from .guest import missing, run_in_guest, why
from .measure import figures, median, table, thousands
from .settings import Settings

NAME = "md"
TITLE = "Linux md RAID-1 beside hemi, in user-mode Linux"

SYSTEMS = (
    ("md.plain", "md"),
    ("md.write-behind-256", "md, write-mostly leg 0, write-behind 256"),
    ("md.write-behind-16383", "md, write-mostly leg 0, write-behind 16383"),
    ("ublk", "**hemi, ublk**"),
    ("hemi", "**hemi, NBD socket**"),
)
CASES = (
    ("none", "both legs alike"),
    ("0", "leg 0 frozen 2 s"),
    ("1", "leg 1 frozen 2 s"),
    ("slow", "leg 0 +20 ms"),
)
DEPTHS = (1, 16)
VOLUME_MIB = 192
# All of it takes under 12 minutes, of which setup and teardown take some 4 s in each run.
SECONDS_MAX = 12
# Limit for a guest that hangs. Its own waits give up after 30 s.
RUN_SECONDS_LIMIT = 600
NEEDS = ("mdadm", "dmsetup", "busybox", "fio")


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    seconds = min(settings.freeze_seconds, SECONDS_MAX)
    data: dict[str, Any] = {"settings": settings.record(), "seconds": seconds, "runs": {}}
    lacking = missing(NEEDS)
    if lacking:
        data["skipped"] = f"not run: {', '.join(lacking)} missing"
        say(data["skipped"])
        return data
    keys = [f"{s}.{c}.{depth}" for depth in DEPTHS for c, _ in CASES for s, _ in SYSTEMS]
    say(f"{len(keys)} runs of {seconds} s in the guest")

    def told(key: str, got: dict[str, Any]) -> None:
        say(f"{key}: {got['iops']:.0f} IOPS, longest stall {got['max'] / 1000:.1f} ms")

    run_in_guest(
        settings,
        data,
        memory="2G",
        script="md_guest.sh",
        variables={
            "brd.rd_size": (VOLUME_MIB + 64) * 1024,
            "brd.rd_nr": 2,
            "SECONDS_RUN": seconds,
            "VOLUME_MIB": VOLUME_MIB,
            "SYSTEMS": ",".join(system for system, _ in SYSTEMS),
            "CASES": ",".join(case for case, _ in CASES),
            "DEPTHS": ",".join(str(depth) for depth in DEPTHS),
        },
        keys=keys,
        limit=RUN_SECONDS_LIMIT,
        take=_figures,
        told=told,
    )
    return data


def _figures(key: str, path: Path, directory: Path) -> dict[str, Any]:
    """Returns the figures of a run. Latencies count from the start of the submission."""
    result = FioResult.parse(job_of(path), "write", with_submission=True)
    if result.errors or not result.operations:
        raise AssertionError(f"{key} wrote nothing in the guest:\n{why(directory)}")
    return figures(result, None)


def freeze_headline(data: dict[str, Any]) -> list[list[str]]:
    """Returns for each system the longest stall with either leg frozen, and the IOPS, by depth."""
    rows = []
    for system, label in _hemi_first(data):
        row = [f"{label}, in the guest", data["host"]]
        for depth in DEPTHS:
            got = [data["runs"][f"{system}.{leg}.{depth}"] for leg in ("0", "1")]
            row.append(f"{max(run['max'] for run in got) / 1000:,.0f}")
            row.append(thousands(median(run["iops"] for run in got)))
        rows.append(row)
    return rows


def slow_headline(data: dict[str, Any]) -> list[list[str]]:
    """Returns by system and depth the IOPS with equal legs and with a slow one, and the share
    kept."""
    rows = []
    for system, label in _hemi_first(data):
        for depth in DEPTHS:
            alike, slow = (data["runs"][f"{system}.{c}.{depth}"]["iops"] for c in ("none", "slow"))
            cells = [f"{label}, in the guest", data["host"], str(depth)]
            rows.append([*cells, thousands(alike), thousands(slow), f"{slow / alike:.0%}"])
    return rows


def _systems(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the systems that were measured. Stored results can be older than a system here."""
    return [(key, label) for key, label in SYSTEMS if f"{key}.{CASES[0][0]}.1" in data["runs"]]


def _hemi_first(data: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted(_systems(data), key=lambda system: "hemi" not in system[1])


def report(data: dict[str, Any]) -> list[str]:
    if "skipped" in data:
        return [f"{data['skipped']}."]
    lines = [
        f"4 KiB random writes, {data['seconds']} s a run, one run each; user-mode Linux",
        f"{data['kernel']}, one processor with a tick of 10 ms, RAM disks behind dm-delay, frozen",
        "by suspending it. fio on the block device for md and ublk, its NBD engine for the socket.",
        "hemi's exposure bound: 1 GiB, 60 s. Its ledger is in memory, as the legs are. Latencies",
        "include the submission, in which md lets a writer wait once too many writes are behind.",
        '"Of its own": the IOPS beside those of the same mirror with both legs alike.',
        "",
    ]
    rows = []
    for case, case_label in CASES:
        for depth in DEPTHS:
            for system, label in _systems(data):
                got = data["runs"][f"{system}.{case}.{depth}"]
                undisturbed = data["runs"][f"{system}.none.{depth}"]
                rows.append(
                    [
                        label,
                        case_label,
                        str(depth),
                        thousands(got["iops"]),
                        f"{got['iops'] / undisturbed['iops']:.0%}",
                        thousands(got["p50"]),
                        thousands(got["p99"]),
                        thousands(got["p999"]),
                        f"{got['max'] / 1000:,.1f}",
                    ]
                )
    head = ["", "case", "QD", "IOPS", "of its own", "p50 µs", "p99 µs", "p99.9 µs"]
    return lines + table([*head, "longest stall ms"], rows)
