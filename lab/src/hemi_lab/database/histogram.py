"""Latency histograms: bins that merge, and percentiles from them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hemi_lab.errors import LabError


@dataclass(frozen=True)
class Bin:
    """The number of events with about this latency."""

    milliseconds: float
    count: int


def percentile(
    bins: Iterable[Bin], rank: float, least: float = 0.0, most: float = math.inf
) -> float | None:
    """Returns the latency in milliseconds of the bin that holds the event of this rank.

    It is limited to the exact minimum and maximum if these are given. An empty histogram gives
    None.

    The rank is sysbench's own (of n events the one numbered n·rank/100, rounded to the nearest), so
    that without bounds the result can be compared with sysbench's.
    """
    if not 0 < rank <= 100:
        raise LabError(f"a percentile's rank must be above 0 and at most 100, not {rank:g}")
    ordered = sorted(bins, key=lambda b: b.milliseconds)
    total = sum(b.count for b in ordered)
    if total == 0:
        return None
    wanted, seen = max(1, math.floor(total * rank / 100 + 0.5)), 0
    for one in ordered:
        seen += one.count
        if seen >= wanted:
            return min(max(one.milliseconds, least), most)
    return min(ordered[-1].milliseconds, most)


def merge(histograms: Iterable[Iterable[Bin]]) -> list[Bin]:
    """Merges histograms. Percentiles must come from merged ones and are never averaged."""
    counts: dict[float, int] = {}
    for bins in histograms:
        for one in bins:
            counts[one.milliseconds] = counts.get(one.milliseconds, 0) + one.count
    return [Bin(value, count) for value, count in sorted(counts.items())]
