"""A leg that stops answering for two seconds under load, and the stalls of clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hemi_harness import FioResult, Nbdkit, Sandbox, Volume
from hemi_harness.hemi import leg_bytes
from hemi_lab.drivers.fio.document import direction

from .measure import Load, figures, median, table, thousands, verdict
from .settings import Settings
from .targets import Target, mirror, quorum, write_in_full

NAME = "freeze"
TITLE = "A leg frozen for 2 s"

FREEZE_SECONDS = 2.0
DELAY_MS = 20
WAIT_LIMIT_MAX_MS = 50.0
BOUNDS = "Exposure bound 2 GiB and 60 s, buffer budget 1 GiB"
OPTIONS = [
    "--set",
    "engine.exposure.bytes=2GiB",
    "--set",
    "engine.exposure.age=60s",
    "--set",
    "buffer_budget=1GiB",
]


@dataclass
class Case:
    """A mirror whose legs can be frozen, with its load, its freeze and its wait limit."""

    target: Target
    freeze: Callable[[int], None]
    # Wait limit of the leg that is to freeze, or the highest of all.
    wait_limit_ms: Callable[[int | None], float | None]


def _nbdkit_legs(settings: Settings, box: Sandbox, delays: tuple[float, float]) -> list[Nbdkit]:
    # In memory, since nbdkit writes files through the page cache, and the cost of a flush would
    # hide everything else.
    size = leg_bytes(settings.volume_bytes)
    return [Nbdkit(box, size=size, delay_ms=delay) for delay in delays]


def _pause(legs: list[Nbdkit]) -> Callable[[int], None]:
    def freeze(leg: int) -> None:
        legs[leg].pause()
        time.sleep(FREEZE_SECONDS)
        legs[leg].resume()

    return freeze


def _wait_limit(volume: Volume) -> Callable[[int | None], float | None]:
    def read(leg: int | None) -> float | None:
        limits = [leg["write_wait_limit_ns"] for leg in volume.status()["legs"]]
        return float(max(limits) if leg is None else limits[leg]) / 1e6

    return read


def _hemi(
    settings: Settings,
    box: Sandbox,
    *,
    policy: str = "first",
    delays: tuple[float, float] = (0, 0),
    from_outside: bool = False,
) -> Case:
    size = leg_bytes(settings.volume_bytes)
    options = [*OPTIONS, "--policy", policy]
    servers: list[Nbdkit] = []
    if from_outside:
        servers = _nbdkit_legs(settings, box, delays)
        volume = mirror(box, [s.uri for s in servers], options=options)
    else:
        paths = [box.file(f"leg{i}.img", size) for i in range(2)]
        for path in paths:
            write_in_full(path, size)
        volume = mirror(box, paths, options=options, inject=True)
    wipe = [a for leg in volume.legs for a in ("--wipe", leg)]
    volume.create(settings.volume_bytes, *wipe)
    volume.start()
    volume.wait_converged(600)

    def inject(leg: int) -> None:
        volume.inject(leg, "--freeze", f"{FREEZE_SECONDS:g}s")
        time.sleep(FREEZE_SECONDS)

    freeze = _pause(servers) if from_outside else inject
    return Case(Target(volume.uri, volume.process), freeze, _wait_limit(volume))


def _quorum(settings: Settings, box: Sandbox) -> Case:
    servers = _nbdkit_legs(settings, box, (0, 0))
    legs = [f"driver=nbd,server.type=unix,server.path={s.socket}" for s in servers]
    return Case(quorum(box, legs), _pause(servers), lambda _: None)


@dataclass(frozen=True)
class Kind:
    """A row of the table."""

    key: str
    label: str
    make: Callable[[Settings, Sandbox], Case]
    ours: bool = True
    # The longest stall allowed: this many milliseconds, or this multiple of the longest without a
    # freeze if that is more.
    stall_ms: float = 0
    times_calm: float = 0
    # Delay of the leg that stays when leg 0 freezes.
    survivor_ms: float = 0
    freezes: tuple[int, ...] = (0, 1)


KINDS = (
    Kind("files", "**hemi**, two files, `hemi inject`", lambda s, b: _hemi(s, b), stall_ms=15),
    Kind(
        "nbd",
        "**hemi**, two NBD legs in memory, frozen from outside",
        lambda s, b: _hemi(s, b, from_outside=True),
        stall_ms=5,
        times_calm=3,
    ),
    Kind(
        "survivor-slow",
        f"**hemi**, leg 0 frozen, leg 1 +{DELAY_MS} ms",
        lambda s, b: _hemi(s, b, from_outside=True, delays=(0, DELAY_MS)),
        stall_ms=80,
        survivor_ms=DELAY_MS,
        freezes=(0,),
    ),
    Kind(
        "paper",
        "hemi, policy `paper`, two NBD legs",
        lambda s, b: _hemi(s, b, policy="paper", from_outside=True),
        ours=False,
    ),
    Kind(
        "all",
        "hemi, policy `all`, two NBD legs",
        lambda s, b: _hemi(s, b, policy="all", from_outside=True),
        ours=False,
    ),
    Kind(
        "write-behind",
        "hemi, policy `write-behind`, two NBD legs",
        lambda s, b: _hemi(s, b, policy="write-behind", from_outside=True),
        ours=False,
    ),
    Kind("quorum", "`qemu-storage-daemon` quorum, two NBD legs", _quorum, ours=False),
)


def one_run(
    box: Sandbox, case: Case, load: Load, settings: Settings, leg: int | None
) -> dict[str, Any]:
    """Returns the figures of a run, with leg `leg` (or none) frozen a third of the way in."""
    seconds = settings.freeze_seconds
    before = case.target.cpu_seconds()
    fio = load.start(box, case.target, settings.volume_bytes, seconds)
    failed: list[BaseException] = []
    limits: list[float | None] = []

    def freeze() -> None:
        try:
            time.sleep(seconds / 3)
            assert leg is not None
            limits.append(case.wait_limit_ms(leg))
            case.freeze(leg)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=freeze, daemon=True)
    if leg is not None:
        thread.start()
    job = fio.wait(seconds + 180)
    if leg is not None:
        thread.join()
    if failed:
        raise failed[0]
    after = case.target.cpu_seconds()
    got = figures(
        FioResult.parse(job, load.direction),
        None if before is None or after is None else after - before,
    )
    # A stall of a flush is a stall as well.
    got["flush_max"] = direction(job, "sync").latency.maximum * 1e6
    got["wait_limit_ms"] = limits[0] if limits else case.wait_limit_ms(None)
    return got


def measure_loads(
    settings: Settings, say: Any, loads: tuple[Load, ...], kinds: tuple[Kind, ...]
) -> dict[str, Any]:
    """Returns the figures of each round, by kind, load and frozen leg (or none)."""
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for kind in kinds:
        if settings.kinds and kind.key not in settings.kinds:
            continue
        with Sandbox(settings.directory) as box:
            case = kind.make(settings, box)
            for number in range(settings.freeze_rounds):
                for load in loads:
                    for leg in (None, *kind.freezes):
                        got = one_run(box, case, load, settings, leg)
                        frozen = "none" if leg is None else str(leg)
                        key = f"{load.name}/{frozen}"
                        runs.setdefault(kind.key, {}).setdefault(key, []).append(got)
                        say(
                            f"round {number + 1}/{settings.freeze_rounds} {kind.key:14}"
                            f"{load.name:14} frozen {frozen:4} {got['iops']:9,.0f} IOPS, "
                            f"longest stall {max(got['max'], got['flush_max']) / 1000:9.1f} ms"
                        )
    return {"settings": settings.record(), "runs": runs}


LOADS = (Load("write QD1", "randwrite", 1), Load("write QD16", "randwrite", 16))


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    return measure_loads(settings, say, LOADS, KINDS)


def _stall(run: dict[str, Any]) -> float:
    return max(float(run["max"]), float(run["flush_max"])) / 1000


# Rows of the table at the top of the page.
HEADLINE = (
    ("nbd", "**hemi**, two NBD legs in memory"),
    ("files", "**hemi**, two files on one disk"),
    ("all", "plain mirror (hemi's policy `all`)"),
    ("write-behind", "fixed write-behind (hemi's policy `write-behind`)"),
    ("quorum", "`qemu-storage-daemon` quorum"),
)


def worst_stall(runs: list[dict[str, Any]]) -> float:
    """Returns the longest time of any request of these runs, flushes included, in milliseconds."""
    return max(_stall(run) for run in runs)


def headline(data: dict[str, Any], loads: tuple[Load, ...]) -> list[list[str]]:
    """Returns for each mirror the longest stall with either leg frozen, and the IOPS, by load."""
    rows = []
    for key, label in HEADLINE:
        runs = data["runs"].get(key)
        if not runs:
            continue
        row = [label, data["host"]]
        for load in loads:
            got = [run for leg in ("0", "1") for run in runs[f"{load.name}/{leg}"]]
            row += [f"{worst_stall(got):,.0f}", thousands(median(r["iops"] for r in got))]
        rows.append(row)
    return rows


def report(data: dict[str, Any]) -> list[str]:
    return report_loads(data, LOADS, KINDS)


def targets(data: dict[str, Any]) -> list[str]:
    return targets_of_loads(data, LOADS, KINDS)


def report_loads(
    data: dict[str, Any], loads: tuple[Load, ...], kinds: tuple[Kind, ...]
) -> list[str]:
    """Returns a report of every measured row."""
    seconds = data["settings"]["freeze_seconds"]
    lines = [
        f"4 KiB random writes, runs of {seconds} s, one leg frozen for {FREEZE_SECONDS:g} s a",
        f"third of the way in. {BOUNDS}: large enough to hold two seconds of writes. The longest",
        "stall is the longest any single request took, flushes included. Medians of the rounds;",
        "the worst round for the longest stall.",
        "",
    ]
    rows = []
    for kind in kinds:
        for load in loads:
            for leg in ("none", *map(str, kind.freezes)):
                got = data["runs"].get(kind.key, {}).get(f"{load.name}/{leg}")
                if not got:
                    continue
                limit = got[0]["wait_limit_ms"]
                rows.append(
                    [
                        kind.label,
                        load.name.removeprefix("write "),
                        leg,
                        thousands(median(r["iops"] for r in got)),
                        thousands(median(r["p50"] for r in got)),
                        thousands(median(r["p99"] for r in got)),
                        thousands(median(r["p999"] for r in got)),
                        f"{worst_stall(got):,.1f}",
                        "" if limit is None else f"{limit:.0f}",
                    ]
                )
    head = ["", "load", "frozen leg", "IOPS", "p50 µs", "p99 µs", "p99.9 µs"]
    return lines + table([*head, "longest stall ms", "wait limit ms"], rows)


def targets_of_loads(
    data: dict[str, Any], loads: tuple[Load, ...], kinds: tuple[Kind, ...]
) -> list[str]:
    """Returns the target of each row of hemi, with its verdict."""
    rows = []
    for kind in kinds:
        runs = data["runs"].get(kind.key)
        if not runs or not kind.ours:
            continue
        for load in loads:
            for leg in map(str, kind.freezes):
                calm = runs[f"{load.name}/none"]
                rows += _targets(kind, load, leg, runs[f"{load.name}/{leg}"], calm)
    return table(["", "frozen leg", "what", "target", "measured", ""], rows)


def _targets(
    kind: Kind,
    load: Load,
    leg: str,
    got: list[dict[str, Any]],
    calm: list[dict[str, Any]],
) -> list[list[str]]:
    name = f"{kind.label.replace('**', '')}, {load.name}"
    limit = max(float(r["wait_limit_ms"]) for r in got)
    stall = worst_stall(got)
    allowed = max(kind.stall_ms, kind.times_calm * worst_stall(calm))
    if kind.survivor_ms:
        # If the survivor is the slow one, its own tail is the reference.
        reference, what = kind.survivor_ms * 1000, "the survivor's delay"
    else:
        reference, what = median(r["p999"] for r in calm), "without a freeze"
    tail = median(r["p999"] for r in got) / reference
    rows = [
        ["wait limit, ms", f"≤ {WAIT_LIMIT_MAX_MS:.0f}", f"{limit:.0f}", limit <= 50],
        ["longest stall, ms", f"≤ {allowed:.0f}", f"{stall:.1f}", stall <= allowed],
        [f"p99.9 ÷ {what}", "≤ 2.00", f"{tail:.2f}", tail <= 2],
    ]
    return [[name, leg, *map(str, row[:3]), verdict(bool(row[3]))] for row in rows]
