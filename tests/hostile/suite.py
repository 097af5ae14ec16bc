"""Measures another client's small writes beside hostile clients.

`make hostile` runs every attack with one client and with 63, prints the table of
docs/hostile-clients.md, and fails if a bound is broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from attacks import ATTACKS
from hemi_harness import Process, Sandbox, Volume

HERE = Path(__file__).parent
VOLUME = 256 << 30
# The bounds beside one hostile client, and beside 63.
TIMES_ALONE = 3
ALONE_MS = 50
CROWD = 63
CROWD_MS = 250


@dataclass(frozen=True)
class Figures:
    """A client's writes: their number, and percentiles in milliseconds."""

    writes: int
    p50: float
    p99: float
    max: float


def volume(box: Sandbox, *options: str) -> Volume:
    """Returns a served volume of 256 GiB on sparse files."""
    return Volume.on_files(box, VOLUME, options=options)


def victim(box: Sandbox, target: Volume, seconds: float) -> Figures:
    """Measures a well-behaved client."""
    script = HERE / "victim.py"
    process = box.start(sys.executable, script, target.socket, str(seconds), name="victim")
    code = process.wait(seconds + 120)
    assert code == 0, f"the client failed:\n{process.output()}"
    return Figures(**json.loads(process.output().splitlines()[-1]))


@contextlib.contextmanager
def attacked(box: Sandbox, target: Volume, attack: str, clients: int) -> Iterator[Process]:
    """Runs an attack for the duration of the block."""
    script = HERE / "attacks.py"
    process = box.start(sys.executable, script, attack, target.socket, str(clients), name="attack")
    try:
        # Lets the attack start.
        time.sleep(1)
        process.check_running()
        yield process
    finally:
        process.kill()


def measure(attack: str, clients: int, seconds: float, *options: str) -> tuple[Figures, Figures]:
    """Returns a client's figures alone, and beside `clients` hostile clients."""
    with Sandbox() as box:
        target = volume(box, *options)
        # The first writes to a region are slower, and are not measured.
        victim(box, target, seconds / 2)
        alone = victim(box, target, seconds)
        with attacked(box, target, attack, clients):
            beside = victim(box, target, seconds)
        target.status()
    return alone, beside


def allowed(alone: Figures, clients: int) -> float:
    """Returns the bound on the 99th percentile in milliseconds."""
    return min(TIMES_ALONE * alone.p99, ALONE_MS) if clients == 1 else CROWD_MS


def main() -> None:
    parser = argparse.ArgumentParser(prog="make hostile", description=__doc__)
    parser.add_argument("attacks", nargs="*", default=list(ATTACKS))
    parser.add_argument("--seconds", type=float, default=10, help="length of a measurement")
    asked = parser.parse_args()
    print("| attack | clients | p99 alone, ms | p99 beside, ms | longest, ms | allowed | |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    broken = 0
    for attack in asked.attacks:
        for clients in (1, CROWD):
            alone, beside = measure(attack, clients, asked.seconds)
            most = allowed(alone, clients)
            met = beside.p99 <= most
            broken += not met
            print(
                f"| {attack} | {clients} | {alone.p99:.2f} | {beside.p99:.2f} | "
                f"{beside.max:.1f} | {most:.2f} | {'met' if met else '**missed**'} |",
                flush=True,
            )
    if broken:
        raise SystemExit(f"{broken} bounds are broken")


if __name__ == "__main__":
    main()
