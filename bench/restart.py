"""kill -9 under random writes: the time until the next start answers, and the regions compared."""

from __future__ import annotations

import time
from typing import Any

from hemi_harness import Client, NbdError, Sandbox

from .measure import Load, median, table, verdict
from .settings import MIB, Settings
from .targets import Bench, Target

NAME = "restart"
TITLE = "Killed under load, and started again"

LOAD = Load("write QD16", "randwrite", 16)
FIRST_ANSWER_MAX_MS = 100.0


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    bench = Bench(settings)
    seconds = max(3, settings.seconds // 3)
    runs: list[dict[str, Any]] = []
    with Sandbox(settings.directory) as box:
        volume = bench.volume(box)
        for number in range(settings.pairs):
            target = Target(volume.uri, volume.process)
            fio = LOAD.start(box, target, settings.volume_bytes, seconds)
            time.sleep(seconds / 2)
            volume.kill()
            # It loses its server, and reports that.
            fio.process.kill()
            begun = time.monotonic()
            volume.launch()
            answered = _first_answer(volume.uri) - begun
            volume.wait_serving()
            volume.wait_converged(600)
            converged = time.monotonic() - begun
            legs = volume.status()["legs"]
            compared = sum(leg["compared_bytes"] for leg in legs)
            copied = sum(leg["drained_bytes"] for leg in legs)
            runs.append(
                {
                    "first_answer": answered * 1000,
                    "converged": converged,
                    "compared": compared,
                    "copied": copied,
                }
            )
            say(
                f"round {number + 1}/{settings.pairs}: first answer after "
                f"{answered * 1000:.0f} ms, converged after {converged:.1f} s; "
                f"{compared / MIB:,.0f} MiB compared, "
                f"{copied / MIB:,.1f} MiB written"
            )
    return {"settings": settings.record(), "seconds": seconds, "runs": runs}


def _first_answer(uri: str) -> float:
    """Returns the time at which a starting server has answered a read."""
    deadline = time.monotonic() + 120
    while True:
        try:
            with Client(uri) as client:
                client.read(0, 4096)
                return time.monotonic()
        except NbdError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


def report(data: dict[str, Any]) -> list[str]:
    runs = data["runs"]
    lines = [
        "hemi, two files, killed in the middle of 4 KiB random writes at queue depth 16, and",
        f"started again. The load had run for {data['seconds'] / 2:g} s over the whole volume of",
        f"{data['settings']['volume_mib']} MiB. Medians, and the highest, of {len(runs)} rounds.",
        "",
    ]
    rows = [
        _row("from the start of the process to the first answered read, ms", "first_answer", runs),
        _row("to legs known to be identical, s", "converged", runs, 1),
        _row("compared, MiB", "compared", runs, unit=MIB),
        _row("copied of it, MiB", "copied", runs, 1, MIB),
    ]
    return lines + table(["", "median", "highest"], rows)


def _row(
    label: str, name: str, runs: list[dict[str, Any]], digits: int = 0, unit: float = 1
) -> list[str]:
    values = [run[name] / unit for run in runs]
    return [label, f"{median(values):,.{digits}f}", f"{max(values):,.{digits}f}"]


def targets(data: dict[str, Any]) -> list[str]:
    """Returns the target with its verdict."""
    highest = max(run["first_answer"] for run in data["runs"])
    rows = [
        [
            "first answer, ms, highest",
            f"≤ {FIRST_ANSWER_MAX_MS:.0f}",
            f"{highest:.0f}",
            verdict(highest <= FIRST_ANSWER_MAX_MS),
        ]
    ]
    return table(["", "target", "measured", ""], rows)
