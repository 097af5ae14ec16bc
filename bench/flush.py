"""The freeze table again, with a flush every 16 writes and after every write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from . import freeze
from .measure import Load
from .settings import Settings

NAME = "flush"
TITLE = "A leg frozen for 2 s, with flushes"

LOADS = tuple(
    Load(f"write QD{depth} flush/{every}", "randwrite", depth, options=(("fsync", every),))
    for depth in (1, 16)
    for every in (16, 1)
)
STALL_MS = 25
KINDS = tuple(
    replace(kind, stall_ms=STALL_MS, times_calm=0)
    for kind in freeze.KINDS
    if kind.key in ("files", "nbd", "all", "quorum")
)


def measure(settings: Settings, say: Any) -> dict[str, Any]:
    return freeze.measure_loads(settings, say, LOADS, KINDS)


def report(data: dict[str, Any]) -> list[str]:
    return freeze.report_loads(data, LOADS, KINDS)


def targets(data: dict[str, Any]) -> list[str]:
    return freeze.targets_of_loads(data, LOADS, KINDS)
