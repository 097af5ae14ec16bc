"""Writes a step as a fio job file, for fio 3.33 and later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hemi_lab.workload import Load, WeightedSize

LOGS = "hemi"
"""Prefix of the logs a job writes."""


@dataclass(frozen=True)
class Destination:
    """The destination of fio's requests."""

    options: Mapping[str, str]
    """fio's own options: `filename` and `direct`, or `uri`."""
    engine: str
    capacity: int
    block: int


def file_name(path: Path) -> str:
    """Returns a path for fio's `filename`, in which a bare colon would separate two files."""
    return str(path).replace(":", "\\:")


def fitting_mix(load: Load, block: int) -> tuple[list[WeightedSize], list[str]]:
    """Returns the sizes as multiples of the target's block, and a note if that changed any."""
    mix: dict[int, int] = {}
    for part in load.mix():
        size = -(-part.size // block) * block
        mix[size] = mix.get(size, 0) + part.weight
    small = sorted({part.size for part in load.mix() if part.size % block})
    notes = []
    if small:
        listed = ", ".join(f"{size} B" for size in small)
        notes.append(f"requests of {listed} were made multiples of the target's block, {block} B")
    return [WeightedSize(size=size, weight=weight) for size, weight in sorted(mix.items())], notes


def job(
    destination: Destination,
    load: Load,
    seed: int,
    seconds: float | None = None,
    amount: int | None = None,
    every_request: bool = False,
) -> tuple[str, list[str]]:
    """Returns the job file's text, and notes of what could not be done as asked.

    With `every_request` the latency log has a line for each request, at the time of day, and there
    is no histogram log."""
    mix, notes = fitting_mix(load, destination.block)
    span = int(destination.capacity * load.span_percent / 100)
    span -= span % max(part.size for part in mix)
    options: dict[str, str] = {
        **destination.options,
        "ioengine": destination.engine,
        "thread": "1",
        "group_reporting": "1",
        "randseed": str(seed & 0xFFFFFFFFFFFFFFFF or 1),
        "norandommap": "1",
        "random_generator": "tausworthe64",
        # Latencies as bins: of the whole request, and of its device, which histogram logs need.
        "clat_percentiles": "1",
        "lat_percentiles": "1",
        "log_avg_msec": "1000",
        "log_max_value": "1",
        "log_hist_msec": "1000",
        "write_lat_log": LOGS,
        "write_hist_log": LOGS,
        "iodepth": str(load.queue_depth),
        "numjobs": str(load.threads),
        **_direction(load),
        **_sizes(mix),
    }
    if every_request:
        for averaged in ("log_avg_msec", "log_max_value", "log_hist_msec", "write_hist_log"):
            del options[averaged]
        options["log_unix_epoch"] = "1"
    if load.zones:
        zones = ":".join(f"{zone.accesses:g}/{zone.space:g}" for zone in load.zones)
        options["random_distribution"] = f"zoned:{zones}"
    if load.pattern == "sequential" and load.threads > 1:
        # Each thread has a stretch of its own, so that no thread reads what another has just read.
        stretch = span // load.threads
        stretch -= stretch % max(part.size for part in mix)
        options |= {"size": str(stretch), "offset_increment": str(stretch)}
    else:
        options["size"] = str(span)
    if seconds is not None:
        options["runtime"] = f"{max(seconds, 0.1) * 1000:.0f}ms"
        if amount is None:
            # With an amount the time is only its limit. With time_based it would write all that
            # time.
            options["time_based"] = "1"
    if amount is not None:
        options["io_size"] = str(max(amount // load.threads, max(part.size for part in mix)))
    lines = ["[global]", *(f"{key}={value}" for key, value in options.items()), "", "[load]", ""]
    return "\n".join(lines), notes


def _direction(load: Load) -> dict[str, str]:
    random = "rand" if load.pattern == "random" else ""
    if load.read_percent == 100:
        return {"rw": f"{random}read"}
    if load.read_percent == 0:
        return {"rw": f"{random}write"}
    # fio takes whole percents, and no plan has others.
    return {"rw": f"{random}rw", "rwmixread": str(round(load.read_percent))}


def _sizes(mix: list[WeightedSize]) -> dict[str, str]:
    if len(mix) == 1:
        return {"bs": str(mix[0].size)}
    total = sum(part.weight for part in mix)
    shares = [part.weight * 100 // total for part in mix]
    # fio wants whole percents that make 100, so the largest remainders get what rounding left.
    by_loss = sorted(range(len(mix)), key=lambda n: -(mix[n].weight * 100 % total))
    for n in by_loss[: 100 - sum(shares)]:
        shares[n] += 1
    parts = [f"{part.size}/{share}" for part, share in zip(mix, shares, strict=True) if share]
    return {"bssplit": ":".join(parts), "blockalign": str(min(part.size for part in mix))}


def null_job(outstanding: int, seconds: float) -> str:
    """Returns a job against fio's own `null` engine, which shows the generator's limit."""
    options = {
        "ioengine": "null",
        "size": "1g",
        "rw": "randread",
        "bs": "4k",
        "norandommap": "1",
        "iodepth": str(outstanding),
        "time_based": "1",
        "runtime": f"{seconds * 1000:.0f}ms",
        "thread": "1",
        "clat_percentiles": "1",
        "lat_percentiles": "1",
    }
    return "\n".join(["[global]", *(f"{k}={v}" for k, v in options.items()), "", "[null]", ""])
