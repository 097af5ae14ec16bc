"""The box at the top: target, state, load and machine."""

from __future__ import annotations

from typing import Any

import polars as pl

from hemi_lab.results.model import Result
from hemi_lab.units import counted, shown_size

Line = tuple[str, str]

_MOST_HOWS = 3
"""Largest number of preparations listed here. The tests' own sections have all."""


def header(result: Result, steps: pl.DataFrame) -> list[Line]:
    """Returns the lines of the box."""
    return [
        *_target(result),
        *_state(result, steps),
        *_load(result, steps),
        *_machine(result, steps),
    ]


def _target(result: Result) -> list[Line]:
    target: dict[str, Any] = result.target
    size = target.get("bytes")
    lines = [
        ("target", str(target["text"])),
        ("model", _joined(target.get("model"), target.get("firmware"))),
        ("capacity", f"{shown_size(size)} ({size / 1e9:,.4g} GB)" if size else "not known"),
    ]
    if target.get("policy"):
        lines.append(("policy", f"{target['policy']} over {', '.join(target.get('legs') or [])}"))
    if result.simulated:
        lines.append(("spare flash", _spare(target)))
        scale = target.get("scale")
        divided = f"flash divided by {scale}, beside its preset's own"
        lines.append(("scale", divided if scale != 1 else "as its preset"))
    else:
        lines += [
            ("scheduler", str(target.get("scheduler") or "not known")),
            ("write cache", str(target.get("write_cache") or "not known")),
            ("file system", str(target.get("file_system") or "none")),
            ("spare flash", "not known of real drives; active range says what the plan left"),
        ]
    return lines


def _spare(target: dict[str, Any]) -> str:
    """Returns over-provisioning in both of its usual forms, since they are easily confused."""
    said = []
    for leg, drive in zip(target.get("legs") or [], target.get("drives") or [], strict=False):
        alpha = (drive or {}).get("alpha")
        if alpha:
            both = f"{1 - 1 / alpha:.1%} of raw, {alpha - 1:.1%} of capacity"
            said.append(f"{leg}: {both} (alpha = {alpha:g})")
        elif drive:
            said.append(f"{leg}: none")
    return "; ".join(dict.fromkeys(said)) or "not known"


def _state(result: Result, steps: pl.DataFrame) -> list[Line]:
    lines = []
    for what, word in (("purge", "purge"), ("precondition", "precondition")):
        hows = [
            (item.how if item.done else f"NOT done: {item.how}")
            for item in result.preparations
            if item.what == what
        ]
        each = list(dict.fromkeys(hows))
        if len(each) > _MOST_HOWS:
            each = [*each[:_MOST_HOWS], f"{len(each) - _MOST_HOWS} more, told by the tests"]
        lines.append((word, "; ".join(each) or "none"))
    spans = steps["span_percent"].drop_nulls().unique().sort(descending=True).to_list()
    if spans:
        lines.append(("active range", f"{_listed([f'{span:g} %' for span in spans])} of capacity"))
    windows = []
    for test in result.tests:
        if test.tracked:
            first = test.tracked[0]
            reached = all(tracked.reached for tracked in test.tracked)
            said = f"rounds {first.first}-{first.last}" if reached else "NOT REACHED"
            windows.append(f"{test.name}: {said}")
    lines.append(("steady state", "; ".join(windows) or "not asked for"))
    return lines


def _load(result: Result, steps: pl.DataFrame) -> list[Line]:
    measured = steps.filter(pl.col("stage").is_in(["measure", "round", "baseline", "burst"]))
    lines = []
    for name, column in (("threads", "threads"), ("queue depth", "queue_depth")):
        counts = measured[column].drop_nulls().unique().sort().to_list()
        if counts:
            few = len(counts) <= 4
            said = _listed([str(count) for count in counts])
            lines.append((name, said if few else f"{counts[0]} to {counts[-1]}"))
    if result.simulated:
        lines.append(("data", "none: models hold handles and no bytes"))
    elif "fio" in result.engine.name:
        lines.append(("data", "random, filled once and scrambled for each request (fio's default)"))
    return lines


def _machine(result: Result, steps: pl.DataFrame) -> list[Line]:
    host = result.host
    lines = [
        (
            "host",
            f"{host.processor}, {counted(host.cores, 'core')}, {shown_size(host.memory_bytes)}, "
            f"{host.kernel}",
        ),
        ("engine", f"{result.engine.name} {result.engine.version}"),
    ]
    if result.ceiling:
        each = 1e6 * result.ceiling.cpu_seconds_per_request
        lines.append(
            (
                "generator",
                f"{result.ceiling.iops:,.0f} IOPS at most with one thread, {each:.3g} µs of "
                "processor a request",
            )
        )
    elif result.simulated:
        lines.append(("generator", "takes no time: virtual time stands still meanwhile"))
    busy = steps.filter((pl.col("cpu_seconds") > 0) & (pl.col("length_seconds") > 0)).select(
        (pl.col("cpu_seconds") / pl.col("length_seconds")).alias("busy")
    )["busy"]
    if busy.len():
        most = float(busy.max())  # type: ignore[arg-type]
        lines.append(("its processors", f"{most:.2f} of {host.cores} in its busiest step"))
    lines += [
        ("seed", str(result.seed)),
        ("run", f"{result.id}, {result.started:%Y-%m-%d %H:%M} UTC, hemi-lab {result.lab_version}"),
    ]
    return lines


def _joined(*parts: object) -> str:
    return ", ".join(str(part) for part in parts if part) or "not known"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
