"""A trace replayed on time, by `hemi load` and by fio's `read_iolog`."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from hemi_harness import HEMI, Sandbox, run
from hemi_harness.fio import job_of
from hemi_lab.drivers.fio.document import direction

from .measure import median, table, verdict
from .settings import MIB, Settings

NAME = "replay"
TITLE = "A trace replayed on time"

CAPS = (1, 8, 48, 64)
RATE = 2_000
SECONDS = 10
PAGE = 4096
# Bounds of the table: the deviation of a replay's length from its trace, and its latency.
DURATION_BOUND = 0.005
P99_BOUND_US = 100.0
# Keeps other work of the machine out of the figures. Needs the right to do so.
PRIORITY = ("chrt", "--fifo", "10")


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    """Replays the same reads with both, each page once, on a file in the page cache."""
    chance = random.Random(20)
    times: list[float] = []
    at = 0.0
    while (at := at + chance.expovariate(RATE)) < SECONDS:
        times.append(at)
    size = 128 * MIB
    offsets = [page * PAGE for page in chance.sample(range(size // PAGE), len(times))]
    runs: dict[str, list[dict[str, Any]]] = {}
    with Sandbox(settings.directory) as box:
        target = box.path("target")
        target.write_bytes(chance.randbytes(size))
        trace = box.path("poisson.iolog")
        lines = [
            f"{at * 1e6:.0f} {target} read {offset} {PAGE}"
            for at, offset in zip(times, offsets, strict=True)
        ]
        head = ["fio version 3 iolog", f"0 {target} add", f"0 {target} open"]
        trace.write_text("\n".join([*head, *lines, f"{SECONDS * 10**6} {target} close", ""]))
        intended = dict(zip(offsets, times, strict=True))
        for round_number in range(settings.pairs):
            for cap in CAPS:
                for name, replay in (("hemi load", hemi_load), ("fio", fio)):
                    got = replay(box, target, trace, cap, intended)
                    runs.setdefault(f"{name} {cap}", []).append(got)
                    say(
                        f"round {round_number + 1}/{settings.pairs} cap {cap:2} {name:9}"
                        f" {got['seconds']:8.4f} s, p99 {got['p99']:8.1f} us"
                    )
    return {
        "settings": settings.record(),
        "requests": len(times),
        "length": times[-1] - times[0],
        "priority": bool(prioritised()),
        "runs": runs,
    }


def hemi_load(
    box: Sandbox, target: Path, trace: Path, cap: int, intended: dict[int, float]
) -> dict[str, Any]:
    """Returns the figures of one replay by hemi."""
    spec = box.path("replay.toml")
    spec.write_text(
        f'title = "a Poisson trace"\n[workload.replay]\ntrace = "{trace}"\nformat = "fio_iolog"\n'
    )
    records = box.path("records.parquet")
    records.unlink(missing_ok=True)
    out = box.path("load.json")
    out.unlink(missing_ok=True)
    process = box.start(
        *prioritised(), HEMI, "load", spec, "--target", target, "--buffered",
        "--queue-depth-cap", cap, "--lateness-bound", "60s", "--records", records, "--json", out,
        name="load",
    )  # fmt: skip
    code = process.wait(SECONDS * 3 + 60)
    if code != 0:
        raise AssertionError(f"`{' '.join(process.argv)}` exited {code}:\n{process.output()}")
    result = json.loads(out.read_text())
    if result["completed"] != len(intended):
        raise AssertionError(f"{result['completed']} of {len(intended)} requests were done")
    return {
        "seconds": result["time"],
        "requests": result["completed"],
        "p99": result["reads"]["p99"] * 1e6,
        "service_p99": result["service"]["p99"] * 1e6,
        "lateness_p99": result["lateness"]["p99"] * 1e6,
        "processor_seconds": result["processor"]["process"],
    }


def fio(
    box: Sandbox, target: Path, trace: Path, cap: int, intended: dict[int, float]
) -> dict[str, Any]:
    """Returns the figures of one replay by fio, whose log has request ends in milliseconds."""
    out = box.path("fio.json")
    log = box.path("fio")
    process = box.start(
        *prioritised(), "fio", "--name=replay", f"--read_iolog={trace}", "--ioengine=io_uring",
        f"--iodepth={cap}", "--thread", "--output-format=json", f"--output={out}",
        f"--write_lat_log={log}", "--log_offset=1", "--percentile_list=99",
        name="fio",
    )  # fmt: skip
    code = process.wait(SECONDS * 3 + 60)
    if code != 0:
        raise AssertionError(f"`{' '.join(process.argv)}` exited {code}:\n{process.output()}")
    job = job_of(out, process)
    rows = [line.split(",") for line in Path(f"{log}_clat.1.log").read_text().splitlines()]
    first = min(intended.values())
    late = sorted(int(row[0]) / 1e3 - intended[int(row[4])] for row in rows)
    return {
        "seconds": max(int(row[0]) for row in rows) / 1e3 - first,
        "requests": len(late),
        "p99": late[len(late) * 99 // 100] * 1e6,
        "service_p99": direction(job, "read").completion.percentile(99) * 1e6,
        "lateness_p99": None,
        "processor_seconds": (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1e3,
    }


def prioritised() -> tuple[str, ...]:
    """Returns the prefix that gives a replay priority over other work, if this user may have it."""
    try:
        run(*PRIORITY, "true")
    except (AssertionError, FileNotFoundError):
        return ()
    return PRIORITY


def report(data: dict[str, Any]) -> list[str]:
    first = next(iter(data["runs"].values()))
    priority = "at the FIFO priority 10" if data["priority"] else "without a priority"
    lines = [
        f"{data['requests']:,} reads of 4 KiB at random times, {RATE:,} a second (Poisson),",
        f"over {data['length']:.4f} s, of a file in the page cache, each page once; at most",
        f"*cap* in flight. Both {priority}, in turns, {len(first)} rounds: medians (lowest to",
        "highest). Latency counts from the intended time; fio reports it from the time it sent the",
        "request, so its own log is read against the trace (whole milliseconds). Lateness is what",
        "the engine itself was late.",
        "",
    ]

    def spread(runs: list[dict[str, Any]], key: str, digits: int = 0, scale: float = 1.0) -> str:
        values = [run[key] * scale for run in runs if run[key] is not None]
        if not values:
            return ""
        low, high = min(values), max(values)
        return f"{median(values):,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"

    rows = []
    for name in ("hemi load", "fio"):
        for cap in CAPS:
            runs = data["runs"][f"{name} {cap}"]
            for one in runs:
                one["beyond"] = one["seconds"] / data["length"] - 1
            rows.append(
                [
                    f"`{name}`, {cap}",
                    spread(runs, "requests"),
                    spread(runs, "beyond", 3, 100),
                    spread(runs, "p99"),
                    spread(runs, "service_p99"),
                    spread(runs, "lateness_p99", 1),
                    spread(runs, "processor_seconds", 1),
                ]
            )
    head = [
        "replayed by, cap",
        "requests done",
        "longer than the trace, %",
        "p99 from intended, µs",
    ]
    head += ["p99 from sent, µs", "lateness p99, µs", "processor, s"]
    return lines + table(head, rows)


def targets(data: dict[str, Any]) -> list[str]:
    """Returns the targets of `hemi load`, with their verdicts."""
    marks = []
    for cap in CAPS:
        runs = data["runs"][f"hemi load {cap}"]
        beyond = max(abs(one["seconds"] / data["length"] - 1) for one in runs)
        p99 = median(one["p99"] for one in runs)
        marks.append(
            [
                str(cap),
                f"{beyond * 100:.3f} %",
                verdict(beyond <= DURATION_BOUND),
                f"{p99:,.0f} µs",
                verdict(p99 < P99_BOUND_US),
            ]
        )
    head = ["cap", "duration, worst (≤ 0.5 %)", "", "p99, median (< 100 µs)", ""]
    return table(head, marks)
