"""Replays a trace at its own times, at several effective queue depths."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hemi_lab import traces
from hemi_lab.bench import Bench
from hemi_lab.methods.estimate import Estimate
from hemi_lab.plans.model import ReplayTest
from hemi_lab.results.model import Outcome
from hemi_lab.timed import ReplayLoad


def estimate(test: ReplayTest) -> Estimate:
    """Estimates the trace once for each depth, or as much of it as the test's time allows."""
    whole = test.time * len(test.queue_depths)
    return Estimate(0.0 if test.trace else whole, whole, len(test.queue_depths))


def run(test: ReplayTest, bench: Bench, outcome: Outcome) -> None:
    """Replays the same trace at each depth."""
    with tempfile.TemporaryDirectory(prefix="hemi-lab-trace-") as folder:
        if test.trace is None:
            path = Path(folder) / "synthetic.csv"
            seconds = bench.scaled(test.time)
            made = traces.mail_like(path, test.synthetic, seconds, bench.capacity, bench.seed)
            outcome.facts |= {
                "trace": "SYNTHETIC: generated, not captured from a mail server",
                "requests in the trace": float(made.requests),
                "reads in the trace, %": made.read_percent,
                "mean size, KiB": made.mean_bytes / 1024,
                "span, GiB": made.span_bytes / (1 << 30),
            }
            _play(test, bench, str(path), "*", made)
        else:
            outcome.facts["trace"] = test.trace
            _play(test, bench, test.trace, test.volume, None)


def _play(
    test: ReplayTest,
    bench: Bench,
    trace: str,
    volume: str | None,
    made: traces.Made | None,
) -> None:
    for depth in test.queue_depths:
        load = ReplayLoad.model_validate(
            {
                "trace": trace,
                "format": None if made else test.format,
                "volume": volume,
                "queue_depth": depth,
                "speed": test.speed,
                "lateness": test.lateness,
                "reads": made.read_percent if made else None,
                "bytes_of_a_request": made.mean_bytes if made else None,
            }
        )
        mark = "synthetic, " if made else ""
        bench.measure(test.name, "measure", f"{mark}{depth} in flight", load, test.time)
