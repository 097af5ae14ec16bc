"""Healthy volumes: hemi on two files and its peers, in interleaved rounds."""

from __future__ import annotations

import contextlib
from typing import Any

from hemi_harness import Sandbox

from .measure import LOADS, Load, Ratio, measured, median, table, thousands, verdict
from .settings import Settings
from .targets import Bench

NAME = "speed"
TITLE = "Healthy legs, 4 KiB random"

# Peers without a target, for orientation, in runs a third as long.
FOR_ORIENTATION = ("quorum", "nbdkit-file")


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    """Returns one set of figures for each round, by target and load.

    All targets stay up for the whole part and take turns for every load, so that a slower minute of
    the machine affects all of them. The order is reversed with each round.
    """
    bench = Bench(settings)
    size = settings.volume_bytes
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {load.name: [] for load in LOADS} for name in Bench.NAMES
    }
    with contextlib.ExitStack() as stack:
        box = stack.enter_context(Sandbox(settings.directory))
        targets = {}
        for name in Bench.NAMES:
            say(f"{name}: start and write in full")
            targets[name] = stack.enter_context(bench.open(name))
        # Once over everything before the clock runs, so that regions are dirty and caches warm.
        for name in Bench.NAMES:
            for load in (Load("warm", "randwrite", 32), Load("warm", "randread", 32)):
                measured(box, targets[name], load, size, max(2, settings.seconds // 10))
        for round_number in range(settings.pairs):
            for load in LOADS:
                turn = round_number % len(Bench.NAMES)
                for name in (*Bench.NAMES[turn:], *Bench.NAMES[:turn]):
                    seconds = settings.seconds
                    if name in FOR_ORIENTATION:
                        seconds = max(2, seconds // 3)
                    got = measured(box, targets[name], load, size, seconds)
                    runs[name][load.name].append(got)
                    say(
                        f"round {round_number + 1}/{settings.pairs} {load.name:10} {name:14}"
                        f"{got['iops']:10,.0f} IOPS {got['cpu_per_request']:7.1f} us CPU/request"
                    )
    return {"settings": settings.record(), "runs": runs}


def _iops(data: dict[str, Any], target: str, load: str) -> list[float]:
    return [run["iops"] for run in data["runs"][target][load]]


def limits(data: dict[str, Any], load: Load) -> tuple[str, list[float], float]:
    """Returns hemi's limits from disk and socket, their value per round, and the share to reach.

    The socket's limit is nbdkit's memory plugin: the same protocol and client, no disk.
    """
    file = _iops(data, "file", load.name)
    socket = _iops(data, "nbdkit-memory", load.name)
    both = list(zip(file, socket, strict=True))
    if load.depth == 1:
        return "1 / (1/file + 1/socket)", [1 / (1 / f + 1 / s) for f, s in both], 0.9
    if load.direction == "read":
        return "lower of file and socket", [min(f, s) for f, s in both], 0.8
    return "half the file's own", [f / 2 for f in file], 0.8


def report(data: dict[str, Any]) -> list[str]:
    lines = ["Median IOPS, and in brackets the server's processor time per request in µs (for the"]
    lines += ["file itself fio's own, which includes making the load)."]
    lines += [f"{data['settings']['pairs']} rounds of {data['settings']['seconds']} s;"]
    lines += [f"a third of that for {' and '.join(FOR_ORIENTATION)}.", ""]
    rows = []
    for name in Bench.NAMES:
        row = [Bench.LABELS[name]]
        for load in LOADS:
            runs = data["runs"][name][load.name]
            cpu = median(r["cpu_per_request"] for r in runs)
            row.append(f"{thousands(median(r['iops'] for r in runs))} ({cpu:.1f})")
        rows.append(row)
    lines += table(["", *(load.name for load in LOADS)], rows)
    lines += ["", "hemi ÷ peer, paired by round: median (lowest to highest):", ""]
    rows = []
    for name in Bench.NAMES[1:]:
        row = [Bench.LABELS[name]]
        for load in LOADS:
            ours, theirs = _iops(data, "hemi", load.name), _iops(data, name, load.name)
            row.append(str(Ratio.of(ours, theirs)))
        rows.append(row)
    return lines + table(["", *(load.name for load in LOADS)], rows)


def latencies(data: dict[str, Any]) -> list[str]:
    """Returns each server's latencies."""
    lines = ["p50 / p99 / p99.9 in µs, medians:", ""]
    rows = []
    for name in Bench.NAMES:
        row = [Bench.LABELS[name]]
        for load in LOADS:
            runs = data["runs"][name][load.name]
            tail = (median(r[key] for r in runs) for key in ("p50", "p99", "p999"))
            row.append(" / ".join(thousands(value) for value in tail))
        rows.append(row)
    return lines + table(["", *(load.name for load in LOADS)], rows)


def targets(data: dict[str, Any]) -> list[str]:
    """Returns the targets, with their verdicts."""
    rows = []
    for load in LOADS:
        ours = _iops(data, "hemi", load.name)
        qemu = Ratio.of(ours, _iops(data, "qemu-nbd", load.name))
        rows.append([load.name, "`qemu-nbd`", "≥ 1.20", str(qemu), verdict(qemu.median >= 1.2)])
        what, bound, share = limits(data, load)
        ratio = Ratio.of(ours, bound)
        met = verdict(ratio.median >= share)
        rows.append([load.name, what, f"≥ {share:.2f}", str(ratio), met])
    return table(["load", "hemi ÷", "target", "measured", ""], rows)
