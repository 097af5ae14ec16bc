"""The ranking of `hemi advise` against drives that are there: `python -m bench.advice`.

Each drive is an nbdkit with delays, one of which serves one request at a time. `hemi advise` knows
it by a preset with the same figures, as a buyer knows a drive by its data sheet. One trace is
advised on and then replayed by `hemi load`, on each drive alone and on each pair behind `hemi
serve`. The two rankings by the 99.9th percentile are compared by Spearman's coefficient.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hemi_harness import HEMI, Nbdkit, Sandbox, hemi
from hemi_harness.hemi import leg_bytes
from hemi_harness.sandbox import sweep

from .measure import table
from .replay import prioritised
from .settings import MIB
from .targets import mirror

SIZE = 256 * MIB
PAGE = 4096
OVERHEAD_MS = 0.08
"""Time of a request through the sockets of a machine at rest, besides the delay."""
BOUND = 0.9


@dataclass(frozen=True)
class Drive:
    """A drive made of delays in milliseconds, that serves a number of requests at once."""

    name: str
    read_ms: float
    write_ms: float
    threads: int = 16

    def options(self) -> tuple[str, ...]:
        return (f"--threads={self.threads}", "--filter=delay")

    def extra(self) -> tuple[str, ...]:
        return (f"delay-read={self.read_ms:g}ms", f"delay-write={self.write_ms:g}ms")

    def preset(self) -> str:
        """Returns the text of a preset with the same figures."""
        read = f'{{ median = "{self.read_ms + OVERHEAD_MS:g} ms", sigma = 0.0 }}'
        write = f'{{ median = "{self.write_ms + OVERHEAD_MS:g} ms", sigma = 0.0 }}'
        parameters = {
            "capacity": '"10 GiB"',
            "iops": "{ sustained = 100000 }",
            "bandwidth": '{ sustained = "1 GB/s" }',
            "window": '"1 s"',
            "accounting_size": '"256 KiB"',
            "merge_sequential": "false",
            "queue_depth": str(self.threads),
            "transfer": '"2000 MB/s"',
            "read": read,
            "write": write,
            "flush": f'{{ median = "{OVERHEAD_MS:g} ms", sigma = 0.0 }}',
        }
        lines = [f'title = "{self.name}"', 'model = "network"', "[purchase]", "price = 100"]
        lines += ['currency = "USD"', 'date = "undated"', 'source = "made for this check"']
        lines += ["[parameters]", *(f"{key} = {value}" for key, value in parameters.items())]
        lines += ["[sources]", *(f'{key} = "by definition"' for key in parameters)]
        return "\n".join([*lines, ""])


DRIVES = (
    Drive("quick", 0.5, 0.5),
    Drive("even", 6, 6),
    Drive("late-reads", 24, 3),
    Drive("late-writes", 2, 40),
    Drive("one-by-one", 4, 4, 1),
)


def trace(path: Path, seconds: int, rate: int, seed: int) -> int:
    """Writes a trace of bursts of reads and writes of 4 to 64 KiB, and returns their number."""
    chance = random.Random(seed)
    lines, at, count = ["at_ns,operation,fua,offset,length,latency_ns"], 0.0, 0
    while at < seconds:
        for _ in range(chance.choice((1, 1, 2, 4, 8))):
            kind = chance.choice(("read", "write"))
            length = PAGE * chance.choice((1, 1, 1, 2, 4, 16))
            offset = chance.randrange((SIZE - length) // PAGE) * PAGE
            lines.append(f"{int(at * 1e9)},{kind},0,{offset},{length},")
            count += 1
            at += 1e-5
        at += chance.expovariate(rate / 3.2)
    path.write_text("\n".join([*lines, ""]))
    return count


def advised(box: Sandbox, path: Path) -> dict[str, dict[str, float]]:
    """Returns the latencies of each system by `hemi advise`."""
    presets = {}
    for drive in DRIVES:
        preset = box.path(f"{drive.name}.toml")
        preset.write_text(drive.preset())
        presets[str(preset)] = drive.name
    found = json.loads(hemi("advise", path, "--candidates", ",".join(presets), "--json"))
    systems = {}
    for system in found["systems"]:
        legs = [presets[leg["preset"]] for leg in system["legs"]]
        if all(leg["drives"] == 1 for leg in system["legs"]) and len(set(legs)) == len(legs):
            systems[" + ".join(legs)] = system["latency"]
    return systems


def measured(box: Sandbox, path: Path, seconds: int, drives: tuple[Drive, ...]) -> dict[str, Any]:
    """Returns the latencies of one replay on one drive, or on a pair behind hemi."""
    size = SIZE if len(drives) == 1 else leg_bytes(SIZE)
    legs = [
        Nbdkit(box, size=size, filters=False, options=drive.options(), extra=drive.extra())
        for drive in drives
    ]
    volume = None
    uri = legs[0].uri
    try:
        if len(legs) > 1:
            volume = mirror(box, [leg.uri for leg in legs])
            volume.create(SIZE)
            volume.start()
            uri = volume.uri
        spec = box.path("replay.toml")
        spec.write_text(f'title = "t"\n[workload.replay]\ntrace = "{path}"\n')
        out = box.path("load.json")
        process = box.start(
            *prioritised(), HEMI, "load", spec, "--target", uri, "--wipe", uri,
            "--lateness-bound", "60s", "--json", out, name="load",
        )  # fmt: skip
        code = process.wait(seconds * 4 + 60)
        if code != 0:
            raise AssertionError(f"`{' '.join(process.argv)}` exited {code}:\n{process.output()}")
        result: dict[str, Any] = json.loads(out.read_text())["all"]
        return result
    finally:
        if volume is not None:
            volume.stop()
        for leg in legs:
            leg.kill()


def spearman(one: list[float], other: list[float]) -> float:
    """Returns Spearman's coefficient of two lists; equal values share their mean rank."""
    return statistics.correlation(ranks(one), ranks(other))


def ranks(values: list[float]) -> list[float]:
    """Returns the rank of each value, from 1."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) + 1) / 2 for value in values]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.advice", description=__doc__)
    parser.add_argument("--seconds", type=int, default=30, help="length of the trace (default 30)")
    parser.add_argument("--rate", type=int, default=150, help="requests a second (default 150)")
    parser.add_argument("--rounds", type=int, default=3, help="replays of each (default 3)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the trace")
    parser.add_argument("--json", type=Path, help="also write all figures there")
    asked = parser.parse_args()
    directory = Path(os.environ.get("HEMI_TEST_DIR", tempfile.gettempdir()))
    systems = [(drive,) for drive in DRIVES] + list(itertools.combinations(DRIVES, 2))
    runs: dict[str, list[dict[str, Any]]] = {}
    try:
        with Sandbox(directory) as box:
            path = box.path("bursts.csv")
            count = trace(path, asked.seconds, asked.rate, asked.seed)
            expected = advised(box, path)
            for number in range(asked.rounds):
                for drives in systems:
                    name = " + ".join(drive.name for drive in drives)
                    with Sandbox(directory) as inner:
                        got = measured(inner, path, asked.seconds, drives)
                    runs.setdefault(name, []).append(got)
                    print(
                        f"round {number + 1}/{asked.rounds} {name:26} p99.9 "
                        f"{got['p999'] * 1e3:8.2f} ms, advised {expected[name]['p999'] * 1e3:8.2f}"
                    )
    finally:
        sweep()
    print(report(count, expected, runs))
    if asked.json:
        asked.json.write_text(json.dumps({"advised": expected, "runs": runs}, indent=1))


def report(
    count: int, expected: dict[str, dict[str, float]], runs: dict[str, list[dict[str, Any]]]
) -> str:
    """Returns a table of advised and measured latencies, with the coefficients."""
    rows = []
    middle = {
        name: {key: statistics.median(run[key] for run in own) for key in ("p50", "p99", "p999")}
        for name, own in runs.items()
    }
    for name in sorted(middle, key=lambda name: expected[name]["p999"]):
        cells = [name]
        for key in ("p50", "p99", "p999"):
            cells += [f"{expected[name][key] * 1e3:.2f}", f"{middle[name][key] * 1e3:.2f}"]
        rows.append(cells)
    headings = ["system", "p50 advised", "measured", "p99 advised", "measured"]
    headings += ["p99.9 advised", "measured"]
    lines = [f"{count} requests, ms", "", *table(headings, rows), ""]
    for key, shown in (("p99", "p99"), ("p999", "p99.9")):
        both = [(expected[name][key], middle[name][key]) for name in middle]
        found = spearman([one for one, _ in both], [other for _, other in both])
        met = "met" if found >= BOUND else "MISSED"
        lines.append(f"Spearman by {shown}: {found:.3f} (at least {BOUND}: {met})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
