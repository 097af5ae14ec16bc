"""Linux md RAID-1 beside hemi, both inside user-mode Linux on the same RAM disks.

Kernels without md (and clouds without nested virtualisation) leave user-mode Linux as the
place where both run. It has one processor and a 10 ms tick: compare the rows with each
other, not with the other tables.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from hemi_harness import HEMI, FioResult, Sandbox
from hemi_harness.sandbox import run

from .measure import figures, table, thousands
from .settings import Settings

NAME = "md"
TITLE = "Linux md RAID-1 beside hemi, in user-mode Linux"

SYSTEMS = (
    ("md.plain", "md"),
    ("md.write-behind", "md, write-mostly leg 0, write-behind 256"),
    ("hemi.first", "**hemi**"),
)
CASES = (
    ("none", "both legs alike"),
    ("0", "leg 0 frozen 2 s"),
    ("1", "leg 1 frozen 2 s"),
    ("slow", "leg 0 +20 ms"),
)
DEPTHS = (1, 16)
VOLUME_MIB = 192
NEEDS = ("linux", "mdadm", "dmsetup", "busybox")


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"settings": settings.record(), "runs": {}}
    missing = [tool for tool in NEEDS if not shutil.which(tool)]
    if missing:
        data["skipped"] = f"not run: {', '.join(missing)} not installed (`make setup`)"
        say(data["skipped"])
        return data
    seconds = settings.freeze_seconds
    runs = len(SYSTEMS) * len(CASES) * len(DEPTHS)
    say(f"{runs} runs of {seconds} s in the guest")
    with Sandbox(settings.directory) as box:
        output = run(
            "linux",
            "mem=2G",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "rw",
            "con=null",
            "con0=null,fd:1",
            "quiet",
            f"init={Path(__file__).parent / 'md_guest.sh'}",
            # The kernel hands what it does not know to init, as environment.
            f"OUT={box.dir}",
            f"SECONDS_RUN={seconds}",
            f"VOLUME_MIB={VOLUME_MIB}",
            f"HEMI={HEMI}",
            timeout=runs * (seconds + 30) + 120,
        )
        log = box.dir / "guest.log"
        for system, _ in SYSTEMS:
            for case, _ in CASES:
                for depth in DEPTHS:
                    key = f"{system}.{case}.{depth}"
                    path = box.dir / f"{key}.json"
                    text = path.read_text() if path.exists() else ""
                    if "{" not in text:
                        tail = log.read_text()[-3000:] if log.exists() else output[-3000:]
                        raise AssertionError(f"no result for {key} from the guest:\n{tail}")
                    job = json.loads(text[text.index("{") :])["jobs"][0]
                    got = figures(FioResult.parse(job, "write"), None)
                    if not got["operations"]:
                        tail = log.read_text()[-3000:] if log.exists() else output[-3000:]
                        raise AssertionError(f"{key} wrote nothing in the guest:\n{tail}")
                    data["runs"][key] = got
        data["kernel"] = (box.dir / "kernel").read_text().strip()
    return data


def report(data: dict[str, Any]) -> list[str]:
    if "skipped" in data:
        return [f"{data['skipped']}."]
    lines = [
        f"4 KiB random writes, {data['settings']['freeze_seconds']} s a run, one run each;",
        f"user-mode Linux {data['kernel']}, one processor, RAM disks behind dm-delay, frozen by",
        "suspending it. fio on `/dev/md0` for md (no socket), fio's NBD engine for hemi, so the",
        "protocol's cost is hemi's alone here. hemi's exposure bound: 1 GiB, 60 s.",
        "",
    ]
    rows = []
    for case, case_label in CASES:
        for system, label in SYSTEMS:
            for depth in DEPTHS:
                got = data["runs"][f"{system}.{case}.{depth}"]
                rows.append(
                    [
                        label,
                        case_label,
                        str(depth),
                        thousands(got["iops"]),
                        thousands(got["p50"]),
                        thousands(got["p99"]),
                        thousands(got["p999"]),
                        f"{got['max'] / 1000:,.1f}",
                    ]
                )
    head = ["", "case", "QD", "IOPS", "p50 µs", "p99 µs", "p99.9 µs", "longest stall ms"]
    return lines + table(head, rows)
