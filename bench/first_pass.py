"""The price of intent: the first write into each clean region, beside warm regions."""

from __future__ import annotations

from typing import Any

from hemi_harness import Sandbox

from .measure import Load, Ratio, measured, median, table, thousands
from .settings import Settings
from .targets import Bench, Target

NAME = "first-pass"
TITLE = "First pass over clean regions"

LOADS = (Load("write QD1", "randwrite", 1), Load("write QD32", "randwrite", 32))


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    """Measures a freshly opened, cleanly closed volume without dirty regions, then again with
    them."""
    bench = Bench(settings)
    seconds = max(3, settings.seconds // 6)
    runs: dict[str, list[dict[str, Any]]] = {}
    with Sandbox(settings.directory) as box:
        volume = bench.volume(box)
        for round_number in range(settings.pairs):
            for load in LOADS:
                volume.restart()
                target = Target(volume.uri, volume.process)
                for state in ("clean", "warm"):
                    got = measured(box, target, load, settings.volume_bytes, seconds)
                    runs.setdefault(f"{load.name} {state}", []).append(got)
                    say(
                        f"round {round_number + 1}/{settings.pairs} {load.name} {state:6}"
                        f"{got['iops']:10,.0f} IOPS"
                    )
    return {"settings": settings.record(), "seconds": seconds, "runs": runs}


def report(data: dict[str, Any]) -> list[str]:
    lines = [
        f"hemi, two files, {data['seconds']} s of 4 KiB random writes right after a clean",
        "start (every region's first write records its intent durably), then the same again:",
        "",
    ]
    rows = []
    for load in LOADS:
        clean, warm = (data["runs"][f"{load.name} {s}"] for s in ("clean", "warm"))
        rows.append(
            [
                load.name,
                *(thousands(median(r["iops"] for r in runs)) for runs in (clean, warm)),
                str(Ratio.of([r["iops"] for r in clean], [r["iops"] for r in warm])),
                *(thousands(median(r["p99"] for r in runs)) for runs in (clean, warm)),
            ]
        )
    head = ["load", "clean, IOPS", "warm, IOPS", "clean ÷ warm", "clean, p99 µs", "warm, p99 µs"]
    return lines + table(head, rows)
