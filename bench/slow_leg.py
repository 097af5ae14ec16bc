"""One leg 20 ms later than the other: speed until the exposure bound, and after it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from hemi_harness import Nbdkit, Sandbox, Volume
from hemi_harness.hemi import leg_bytes

from .measure import Load, Ratio, measured, median, table, thousands, verdict
from .settings import MIB, Settings
from .targets import Target, fill, mirror, write_in_full

NAME = "slow-leg"
TITLE = "One leg 20 ms slower"

DELAY_MS = 20
EXPOSURE_MIB = 256
EXPOSURE_AGE = 600
# Averages of the load, short enough to tell the two phases apart.
SAMPLE_MS = 100
LOAD = Load("write QD1", "randwrite", 1)
# nbdkit serves 16 requests at once, so it is at its best by that depth.
SWEEP = (1, 4, 16, 32, 64)


def _volume(settings: Settings, box: Sandbox, delay_ms: float) -> tuple[Volume, Nbdkit]:
    """Returns a volume of a file and a file behind nbdkit, which adds `delay_ms` when asked."""
    size = leg_bytes(settings.volume_bytes)
    fast, slow = box.file("fast.img", size), box.file("slow.img", size)
    for path in (fast, slow):
        write_in_full(path, size)
    server = Nbdkit(box, slow, delay_ms=delay_ms)
    options = [
        "--set",
        f"engine.exposure.bytes={EXPOSURE_MIB}MiB",
        "--set",
        f"engine.exposure.age={EXPOSURE_AGE}s",
        "--set",
        "buffer_budget=1GiB",
    ]
    volume = mirror(box, [fast, server.uri], options=options)
    volume.create(settings.volume_bytes, *(a for leg in volume.legs for a in ("--wipe", leg)))
    volume.start()
    volume.wait_converged(600)
    return volume, server


class _Watch:
    """Polls the exposure while a load runs."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._end = threading.Event()
        self.samples: list[tuple[float, int, bool]] = []
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> _Watch:
        self._start = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._end.wait(0.05):
            status = self._volume.status()
            self.samples.append(
                (
                    time.monotonic() - self._start,
                    status["exposure"]["bytes"],
                    bool(status["exposure"]["throttling"]),
                )
            )

    def throttled_from(self) -> float | None:
        return next((t for t, _, throttling in self.samples if throttling), None)

    def peak(self) -> int:
        return max((b for _, b, _ in self.samples), default=0)


def _samples(log: Path) -> list[float]:
    """Returns the IOPS of each sample, from fio's log of averages."""
    return [float(line.split(",")[1]) for line in log.read_text().splitlines() if line.strip()]


def _phases(settings: Settings, box: Sandbox, volume: Volume) -> dict[str, Any]:
    log = box.path("iops")
    with _Watch(volume) as watch:
        fio = LOAD.start(
            box,
            Target(volume.uri, volume.process),
            settings.volume_bytes,
            settings.slow_seconds,
            write_iops_log=log,
            log_avg_msec=SAMPLE_MS,
        )
        result = fio.writes(settings.slow_seconds + 120)
    samples = _samples(Path(f"{log}_iops.1.log"))
    edge = watch.throttled_from()
    # fio starts a moment after the watch.
    started = settings.slow_seconds - len(samples) * SAMPLE_MS / 1000
    place = 0 if edge is None else int((edge - max(started, 0)) * 1000 / SAMPLE_MS)
    before = samples if edge is None else samples[: max(1, place)]
    after = [] if edge is None else samples[place + 2000 // SAMPLE_MS :]
    return {
        "before": sum(before) / len(before),
        "before_seconds": len(before) * SAMPLE_MS / 1000,
        "after": sum(after) / len(after) if after else None,
        "after_seconds": len(after) * SAMPLE_MS / 1000,
        "peak": watch.peak(),
        "p99": result.p99,
        "max": result.max,
        "samples": samples,
    }


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    rounds = max(1, settings.pairs // 2)
    short = max(3, settings.seconds // 3)
    runs: list[dict[str, Any]] = []
    for number in range(rounds):
        with Sandbox(settings.directory) as box:
            volume, server = _volume(settings, box, 0)
            target = Target(volume.uri, volume.process)
            fill(box, volume.uri, settings.volume_bytes)
            undelayed = measured(box, target, LOAD, settings.volume_bytes, short)["iops"]
            volume.command("leg", "detach", "1")
            alone = measured(box, target, LOAD, settings.volume_bytes, short)["iops"]
        with Sandbox(settings.directory) as box:
            path = box.file("slow.img", settings.volume_bytes)
            write_in_full(path, settings.volume_bytes)
            server = Nbdkit(box, path, delay_ms=DELAY_MS)
            itself = max(
                measured(
                    box,
                    Target(server.uri, server.process, server),
                    Load("sweep", "randwrite", depth),
                    settings.volume_bytes,
                    3,
                )["iops"]
                for depth in SWEEP
            )
        with Sandbox(settings.directory) as box:
            volume, _ = _volume(settings, box, DELAY_MS)
            phases = _phases(settings, box, volume)
        runs.append({"undelayed": undelayed, "alone": alone, "slow_best": itself, **phases})
        after = "not reached" if phases["after"] is None else f"{phases['after']:,.0f}"
        say(
            f"round {number + 1}/{rounds}: undelayed {undelayed:,.0f}, fast leg alone "
            f"{alone:,.0f}, slow leg itself {itself:,.0f}; before the bound "
            f"{phases['before']:,.0f}, after it {after} IOPS"
        )
    return {"settings": settings.record(), "runs": runs}


def report(data: dict[str, Any]) -> list[str]:
    runs = data["runs"]
    seconds = data["settings"]["slow_seconds"]
    reached = [r for r in runs if r["after"] is not None]
    lines = [
        f"4 KiB random writes, queue depth 1, {seconds} s; leg 0 a file, leg 1 a file behind",
        f"nbdkit's delay filter (+{DELAY_MS} ms). Exposure bound {EXPOSURE_MIB} MiB and",
        f"{EXPOSURE_AGE} s, buffer budget 1 GiB. The slow leg itself: the best of queue depths",
        f"{', '.join(map(str, SWEEP))}. Before the bound: until hemi first holds writers back.",
        "",
    ]
    rows = [
        ["hemi, the same legs, no delay", thousands(median(r["undelayed"] for r in runs))],
        ["hemi, fast leg alone", thousands(median(r["alone"] for r in runs))],
        ["the slow leg itself, best depth", thousands(median(r["slow_best"] for r in runs))],
        ["hemi, slow leg, before the bound", thousands(median(r["before"] for r in runs))],
    ]
    if reached:
        rows.append(
            ["hemi, slow leg, after the bound", thousands(median(r["after"] for r in reached))]
        )
    lines += table(["", "IOPS"], rows)
    peak = max(r["peak"] for r in runs)
    held = median(r["before_seconds"] for r in runs)
    lines += [
        "",
        f"Exposure peak {peak / MIB:.0f} MiB; the bound was felt after {held:.1f} s (median).",
    ]
    return lines


def headline(data: dict[str, Any]) -> list[str]:
    """Returns the row of the table at the top of the page: equal legs, one slower, the share
    kept."""
    alike = median(r["undelayed"] for r in data["runs"])
    slow = median(r["before"] for r in data["runs"])
    share = median(r["before"] / r["undelayed"] for r in data["runs"])
    cells = ["**hemi**, a file and an NBD leg", data["host"], "1"]
    return [*cells, thousands(alike), thousands(slow), f"{share:.0%}"]


def targets(data: dict[str, Any]) -> list[str]:
    """Returns the targets, with their verdicts."""
    runs = data["runs"]
    before = Ratio.of([r["before"] for r in runs], [r["alone"] for r in runs])
    reached = [r for r in runs if r["after"] is not None]
    rows = [
        [
            "before the bound ÷ fast leg alone",
            "≥ 0.80",
            str(before),
            verdict(before.median >= 0.8),
        ]
    ]
    if reached:
        after = Ratio.of([r["after"] for r in reached], [r["slow_best"] for r in reached])
        rows.append(
            [
                "after the bound ÷ the slow leg's best",
                "≥ 1.00",
                str(after),
                verdict(after.median >= 1),
            ]
        )
    return table(["", "target", "measured", ""], rows)
