"""The README's picture: one leg of a mirror freezes, as a client sees it.

`make picture` measures, writes docs/pictures/freeze.json, and draws from it. With `--draw` it only
draws. The SVG is laid out here, since plotly needs a browser to write one, and plotters cannot
leave out an axis or pair a light picture with a dark one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import polars as pl
from hemi_harness import HEMI, Nbdkit, Sandbox
from hemi_harness.hemi import leg_bytes
from hemi_harness.sandbox import sweep

from .replay import prioritised
from .settings import MIB, machine
from .targets import mirror

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"

SECONDS = 30
FREEZE_AFTER = 10.0
FREEZE_SECONDS = 10.0
RATE = 200
VOLUME_BYTES = 256 * MIB
BIN_SECONDS = 0.05
# The load's own lateness is in no figure, since latency counts from the time a write was sent, and
# only the generator delays sending. This bound only finds a machine that is of no use at all.
LATENESS_MS = 500
POLICIES = {"all": "plain mirror", "first": "hemi"}

LOAD = f"""title = "writes at a rate"
[workload.open]
rate = {RATE}
arrivals = "fixed"
duration = "{SECONDS} s"
access = {{ addresses = "uniform", sizes = "4 KiB", mix = {{ read_percent = 0 }} }}
"""


def measured(folder: Path, policy: str) -> dict[str, Any]:
    """Runs one round: two legs behind nbdkit, the first of which stops answering for a while."""
    with Sandbox(folder) as box:
        files = [box.file(f"leg{n}.img", leg_bytes(VOLUME_BYTES)) for n in range(2)]
        servers = [Nbdkit(box, file) for file in files]
        volume = mirror(box, [s.uri for s in servers], options=["--policy", policy])
        volume.create(VOLUME_BYTES)
        volume.start()
        volume.wait_converged(600)
        spec, out, rows = (box.path(name) for name in ("load.toml", "out.json", "rows.parquet"))
        spec.write_text(LOAD)
        load = box.start(
            *prioritised(), HEMI, "load", spec, "--target", volume.uri, "--wipe", volume.uri,
            "--lateness-bound", f"{LATENESS_MS}ms", "--records", rows, "--json", out,
            name="load",
        )  # fmt: skip
        frozen: list[float] = []

        def freeze() -> None:
            time.sleep(FREEZE_AFTER)
            servers[0].pause()
            frozen.append(time.time())
            time.sleep(FREEZE_SECONDS)
            servers[0].resume()
            frozen.append(time.time())

        thread = threading.Thread(target=freeze)
        thread.start()
        exposed = 0
        while load.running:
            exposed = max(exposed, int(volume.status()["exposure"]["bytes"]))
            time.sleep(0.25)
        thread.join()
        if load.wait(1) != 0:
            raise AssertionError(f"`{' '.join(load.argv)}` failed:\n{load.output()}")
        report = json.loads(out.read_text())
        return {
            "policy": policy,
            "frozen_seconds": [round(at - report["began"], 3) for at in frozen],
            "exposure_peak_bytes": exposed,
            "lateness_p99_ms": round(report["lateness"]["p99"] * 1e3, 3),
            **seen(pl.read_parquet(rows)),
        }


def seen(rows: pl.DataFrame) -> dict[str, Any]:
    """Returns the longest write of each interval as a client saw it, by the time it was sent."""
    assert rows["error"].null_count() == rows.height, "a write failed"
    took = (pl.col("completed") - pl.col("issued")) / 1e6
    timed = rows.select(
        took.alias("ms"),
        (pl.col("issued") / 1e9 // BIN_SECONDS).cast(pl.Int64).alias("bin"),
        "completed",
    )
    longest = timed.group_by("bin").agg(pl.col("ms").max()).sort("bin")
    silence = timed["completed"].sort().diff().max()
    assert isinstance(silence, int)
    return {
        "writes": timed.height,
        "longest_write_ms": round(float(timed["ms"].to_numpy().max()), 3),
        "longest_silence_ms": round(silence / 1e6, 3),
        "longest_ms": [
            [round(number * BIN_SECONDS, 2), float(f"{ms:.4g}")]
            for number, ms in longest.iter_rows()
        ],
    }


def run(folder: Path, rounds: int) -> dict[str, Any]:
    """Runs all rounds, with the policies in turns."""
    found = []
    for number in range(rounds):
        for policy, name in POLICIES.items():
            found.append(measured(folder, policy))
            print(
                f"round {number + 1}, {name}: longest write {found[-1]['longest_write_ms']} ms, "
                f"longest silence {found[-1]['longest_silence_ms']} ms",
                flush=True,
            )
    return {
        "load": f"{RATE} writes a second of 4 KiB, open loop, for {SECONDS} s",
        "legs": "two files, each behind nbdkit; the first is paused",
        # The README says which settings were not the default ones.
        "options": "",
        "interval_seconds": BIN_SECONDS,
        "real_time_priority": os.sched_getscheduler(0) == os.SCHED_RR,
        "machine": machine(folder),
        "rounds": found,
    }


# The drawing.


@dataclass(frozen=True)
class Colours:
    """One of two schemes."""

    paper: str
    ink: str
    muted: str
    grid: str
    band: str
    mirror: str
    hemi: str


LIGHT = Colours("#ffffff", "#1f2328", "#59636e", "#d9dee3", "#f1f3f5", "#bc4c00", "#0969da")
DARK = Colours("#0d1117", "#e6edf3", "#9198a1", "#2a313a", "#171d26", "#f0883e", "#58a6ff")

TITLE = f"One of two mirrored drives freezes for {FREEZE_SECONDS:.0f} s"
WIDTH, HEIGHT = 800, 420
LEFT, RIGHT, TOP, BOTTOM = 66, 20, 84, 46
LOWEST_MS, HIGHEST_MS = 0.1, 30_000.0
TICKS = {0.1: "0.1 ms", 1: "1 ms", 10: "10 ms", 100: "100 ms", 1e3: "1 s", 1e4: "10 s"}


def x_of(seconds: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * seconds / SECONDS


def y_of(ms: float) -> float:
    share = math.log(max(ms, LOWEST_MS) / LOWEST_MS) / math.log(HIGHEST_MS / LOWEST_MS)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def chosen(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns each policy's median round by its longest write: the plain mirror's, then hemi's."""
    found = []
    for policy in POLICIES:
        rounds = [one for one in result["rounds"] if one["policy"] == policy]
        rounds.sort(key=lambda one: float(one["longest_write_ms"]))
        found.append(rounds[(len(rounds) - 1) // 2])
    return found


def labels(mirror: dict[str, Any], hemi: dict[str, Any]) -> tuple[str, str]:
    """Returns the labels of the two lines, with the measured figures."""
    silence = mirror["longest_silence_ms"] / 1e3
    longest = hemi["longest_write_ms"]
    shown = f"{longest:.0f} ms" if longest >= 10 else f"{longest:.1f} ms"
    return f"plain mirror: {silence:.1f} s without an answer", f"hemi: longest write {shown}"


def drawn(result: dict[str, Any], colours: Colours) -> str:
    """Returns the SVG."""
    mirror, hemi = chosen(result)
    rounds = len(result["rounds"]) // len(POLICIES)
    of_mirror, of_hemi = labels(mirror, hemi)
    begin, end = mirror["frozen_seconds"]
    floor = HEIGHT - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" '
        'font-family="system-ui, -apple-system, \'Segoe UI\', Helvetica, Arial, sans-serif" '
        'font-size="14">',
        f"<title>{TITLE}. {escape(of_mirror)}; {escape(of_hemi)}.</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{colours.paper}"/>',
        _text(LEFT - 50, 32, TITLE, colours.ink, 20, bold=True),
        _text(
            LEFT - 50, 56,
            f"How long a 4 KiB write takes, {RATE} a second; the longest of each 50 ms; "
            f"median of {rounds} rounds",
            colours.muted,
        ),
        f'<rect x="{x_of(begin):.1f}" y="{TOP}" width="{x_of(end) - x_of(begin):.1f}" '
        f'height="{floor - TOP}" fill="{colours.band}"/>',
    ]  # fmt: skip
    for ms, name in TICKS.items():
        y = y_of(ms)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{colours.grid}" fill="none"/>'
        )
        parts.append(_text(LEFT - 8, y + 5, name, colours.muted, anchor="end"))
    for second in range(0, SECONDS + 1, 5):
        name = f"{second} s" if second else "0"
        parts.append(_text(x_of(second), floor + 22, name, colours.muted, anchor="middle"))
    middle = (x_of(begin) + x_of(end)) / 2
    parts.append(_text(middle, floor - 8, "one drive frozen", colours.muted, anchor="middle"))
    parts.append(_line(mirror, colours.mirror))
    parts.append(_line(hemi, colours.hemi))
    # Below the line, which falls: a write waits the less the later in the freeze it was sent.
    below = y_of(mirror["longest_write_ms"]) + 52
    for number, words in enumerate(of_mirror.split(": ")):
        text = words if number else f"{words}:"
        parts.append(_text(x_of(begin) + 8, below + 18 * number, text, colours.mirror, bold=True))
    second, ms = max(hemi["longest_ms"], key=lambda point: point[1])
    spike, peak = x_of(second + BIN_SECONDS / 2), y_of(ms)
    parts.append(f'<circle cx="{spike:.1f}" cy="{peak:.1f}" r="3" fill="{colours.hemi}"/>')
    place = beside(spike, text_width(of_hemi), (begin, end))
    parts.append(_text(place, peak - 9, of_hemi, colours.hemi, bold=True))
    return "\n".join([*parts, "</svg>", ""])


def text_width(text: str) -> float:
    """Returns the width of a bold label, as far as it is the same in all fonts."""
    return 8.3 * len(text)


def beside(spike: float, width: float, frozen: tuple[float, float]) -> float:
    """Returns where a label of a spike begins: above it, and on its side of the freeze's edges."""
    edges = [LEFT, x_of(frozen[0]), x_of(frozen[1]), WIDTH - RIGHT]
    left = max(edge for edge in edges[:-1] if edge <= max(spike, LEFT)) + 4
    right = min(edge for edge in edges[1:] if edge > min(spike, WIDTH - RIGHT - 1)) - 4
    return max(left, min(spike - width / 2, right - width))


def _text(
    x: float,
    y: float,
    text: str,
    colour: str,
    size: int = 14,
    *,
    anchor: str = "start",
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-size="{size}"{weight}{where}>'
        f"{escape(text)}</text>"
    )


def _line(found: dict[str, Any], colour: str) -> str:
    points = " ".join(
        f"{x_of(second + BIN_SECONDS / 2):.1f},{y_of(ms):.1f}" for second, ms in found["longest_ms"]
    )
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.75" '
        'stroke-linejoin="round"/>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="make picture PICTURE_ARGS=", description=__doc__)
    parser.add_argument("--draw", action="store_true", help="draw what was measured last")
    parser.add_argument("--rounds", type=int, default=3, help="of each policy (default 3)")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(os.environ.get("HEMI_TEST_DIR", tempfile.gettempdir())),
        help="where the legs are made",
    )
    asked = parser.parse_args()
    figures = FOLDER / "freeze.json"
    if not asked.draw:
        # Other work on the machine must not show up in the picture, so every server and the load
        # inherit a real-time priority, where that is allowed.
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        sweep(asked.dir)
        FOLDER.mkdir(exist_ok=True)
        figures.write_text(json.dumps(run(asked.dir, asked.rounds)) + "\n")
    result = json.loads(figures.read_text())
    (FOLDER / "freeze.svg").write_text(drawn(result, LIGHT))
    (FOLDER / "freeze-dark.svg").write_text(drawn(result, DARK))
    print("; ".join(labels(*chosen(result))))


if __name__ == "__main__":
    main()
