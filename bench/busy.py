"""Healthy volumes on a busy machine: each processor has a process that never sleeps."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Iterator
from typing import Any

from hemi_harness import Sandbox

from .measure import LOADS, Load, Ratio, measured, median, table, thousands, verdict
from .settings import Settings
from .targets import Bench

NAME = "busy"
TITLE = "Healthy legs on a busy machine"

TARGETS = ("hemi", "hemi-usual", "qemu-nbd", "quorum")
LOAD = next(load for load in LOADS if load.name == "write QD1")
# Share of `qemu-nbd` that it reaches on an idle machine (part speed).
QUIET_SHARE = 0.77


def _spin() -> None:
    while True:
        pass


@contextlib.contextmanager
def _busy() -> Iterator[None]:
    """Runs one process for each processor, at the usual priority, that never sleeps."""
    spinning = multiprocessing.get_context("spawn")
    processes = [spinning.Process(target=_spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    """Returns one set of figures per target and round, with the targets in turns."""
    bench = Bench(settings)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in TARGETS}
    with contextlib.ExitStack() as stack:
        box = stack.enter_context(Sandbox(settings.directory))
        targets = {}
        for name in TARGETS:
            say(f"{name}: start and write in full")
            targets[name] = stack.enter_context(bench.open(name))
        for name in TARGETS:
            warm, seconds = Load("warm", "randwrite", 32), max(2, settings.seconds // 10)
            measured(box, targets[name], warm, settings.volume_bytes, seconds)
        stack.enter_context(_busy())
        for round_number in range(settings.pairs):
            turn = round_number % len(TARGETS)
            for name in (*TARGETS[turn:], *TARGETS[:turn]):
                got = measured(box, targets[name], LOAD, settings.volume_bytes, settings.seconds)
                runs[name].append(got)
                say(f"round {round_number + 1}/{settings.pairs} {name:10}{got['iops']:10,.0f} IOPS")
    return {"settings": settings.record(), "runs": runs}


def _ratio(data: dict[str, Any], peer: str) -> Ratio:
    ours, theirs = ([run["iops"] for run in data["runs"][name]] for name in ("hemi", peer))
    return Ratio.of(ours, theirs)


def report(data: dict[str, Any]) -> list[str]:
    lines = ["4 KiB random writes at queue depth 1; a process that never sleeps on each processor."]
    lines += [f"{data['settings']['pairs']} rounds of {data['settings']['seconds']} s, medians;"]
    lines += ["hemi ÷ peer is paired by round, with the lowest and the highest.", ""]
    rows = []
    for name in TARGETS:
        runs = data["runs"][name]
        figures = [median(run[key] for run in runs) for key in ("iops", "p50", "p99", "p999")]
        ratio = "" if name == "hemi" else str(_ratio(data, name))
        rows.append([Bench.LABELS[name], *map(thousands, figures), ratio])
    return lines + table(["", "IOPS", "p50, µs", "p99, µs", "p99.9, µs", "hemi ÷"], rows)


def targets(data: dict[str, Any]) -> list[str]:
    """Returns the targets, each with its verdict."""
    rows = []
    for peer, share in (("qemu-nbd", QUIET_SHARE), ("quorum", 1.0)):
        ratio = _ratio(data, peer)
        met = verdict(ratio.median >= share)
        rows.append([LOAD.name, Bench.LABELS[peer], f"≥ {share:.2f}", str(ratio), met])
    return table(["load", "hemi ÷", "target", "measured", ""], rows)
