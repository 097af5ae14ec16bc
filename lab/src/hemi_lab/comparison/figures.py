"""The figures of two sides with their differences and confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hemi_lab.comparison.sides import OF_DATABASES, QUANTILES, Measured, Point, Side
from hemi_lab.statistics.confidence import LEVEL, compare
from hemi_lab.statistics.difference import Difference, bootstrap_percentile, unpaired
from hemi_lab.statistics.histogram import Histogram

Kind = Literal["rate", "bytes", "time"]

_BATCHES = 10
_RESAMPLES = 2000


@dataclass(frozen=True)
class Figure:
    """One figure of a point, for A and another side."""

    name: str
    kind: Kind
    a: float | None
    b: float | None
    difference: float | None
    """Difference of B from A as a share of A: 0.1 is 10 % more. `None` if a side lacks the
    figure."""
    low: float
    high: float
    verdict: Literal["more", "less", "noise", "unknown"]

    @property
    def better(self) -> bool | None:
        """True if B has more throughput or less latency, `None` inside the noise."""
        if self.verdict not in ("more", "less"):
            return None
        return (self.verdict == "less") if self.kind == "time" else (self.verdict == "more")

    def said(self) -> str:
        """Returns the verdict in words."""
        if self.verdict == "noise":
            return "inside the noise"
        if self.verdict == "unknown":
            return "not known"
        return "better" if self.better else "worse"


Basis = Literal["pairs", "runs", "within"]

BASES = {
    "pairs": "Student's t over the logarithms of the ratios of each round's two runs",
    "runs": "Welch's t over the logarithms of the runs' figures: the sides have unequal numbers "
    "of runs, so that what drifted for both is not taken out",
    "within": "one run for a side: rates and means from means of ten batches of seconds, "
    "percentiles from resampled requests. What differs from run to run is NOT in these intervals; "
    "several interleaved rounds would tell",
}


@dataclass(frozen=True)
class Compared:
    """One point of A and another side."""

    point: Point
    basis: Basis
    rounds: tuple[int, int]
    figures: list[Figure]
    freeze: bool = False
    """True if the figures are of the requests around a freeze, not of the whole step."""

    @property
    def label(self) -> str:
        """Name of the point for readers, unique in its test."""
        return f"{self.point[1]}: around the freeze" if self.freeze else self.point[1]


def basis_of(a: int, b: int) -> Basis:
    """Returns the method of the intervals for these numbers of runs."""
    if min(a, b) == 1:
        return "within"
    return "pairs" if a == b else "runs"


def compared(a: Side, b: Side, level: float = LEVEL, seed: int = 1) -> list[Compared]:
    """Compares every load that both sides have."""
    found = []
    for point, of_a in a.points.items():
        of_b = b.points.get(point)
        if not of_b:
            continue
        basis = basis_of(len(of_a), len(of_b))
        rates = [_rate("IOPS", "rate", lambda run: run.iops, of_a, of_b, basis, level)]
        rates.append(
            _rate("rate", "bytes", lambda run: run.bytes_per_second, of_a, of_b, basis, level)
        )
        quantiles = QUANTILES
        if of_a[0].transactions:
            # The bytes of a transaction are not known.
            rates = [replace(rates[0], name="tps")]
            quantiles = OF_DATABASES
        if of_a[0].scans:
            # Scans are few and long, so their time is the only figure.
            mean = replace(_mean(of_a, of_b, basis, level), name="scan")
            found.append(Compared(point, basis, (len(of_a), len(of_b)), [mean]))
            continue
        figures = [
            *rates,
            _mean(of_a, of_b, basis, level),
            *(
                _percentile(name, quantile, of_a, of_b, basis, level, seed)
                for name, quantile in quantiles.items()
            ),
            _maximum(of_a, of_b, basis, level),
        ]
        found.append(Compared(point, basis, (len(of_a), len(of_b)), figures))
    return found


def over_runs(
    a: list[float | None], b: list[float | None], basis: Basis, level: float
) -> Difference | None:
    """Compares one value of each run. `None` if a run lacks it or has no ratio."""
    if any(value is None or value <= 0 for value in (*a, *b)):
        return None
    known_a = [value for value in a if value is not None]
    known_b = [value for value in b if value is not None]
    if basis == "pairs":
        paired = compare(known_a, known_b, level)
        return Difference(paired.difference, paired.low, paired.high)
    return unpaired(known_a, known_b, level)


def figure_of(
    name: str, kind: Kind, a: float | None, b: float | None, found: Difference | None
) -> Figure:
    """Returns a figure with its shown values and the verdict on their difference."""
    if found is None:
        plain = b / a - 1 if a and b else None
        return Figure(name, kind, a, b, plain, math.nan, math.nan, "unknown")
    verdict: Literal["more", "less", "noise", "unknown"] = "noise"
    if math.isnan(found.low):
        verdict = "unknown"
    elif found.low > 0:
        verdict = "more"
    elif found.high < 0:
        verdict = "less"
    return Figure(name, kind, a, b, found.difference, found.low, found.high, verdict)


def _rate(
    name: str,
    kind: Kind,
    of: Callable[[Measured], float],
    a: list[Measured],
    b: list[Measured],
    basis: Basis,
    level: float,
) -> Figure:
    shown = [sum(map(of, runs)) / len(runs) for runs in (a, b)]
    if basis == "within":
        found = _batched([run.rates for run in a], [run.rates for run in b], level)
    else:
        found = over_runs([of(run) for run in a], [of(run) for run in b], basis, level)
    return figure_of(name, kind, shown[0], shown[1], found)


def _mean(a: list[Measured], b: list[Measured], basis: Basis, level: float) -> Figure:
    shown = [
        sum(run.mean * run.histogram.total for run in runs)
        / max(1, sum(run.histogram.total for run in runs))
        for runs in (a, b)
    ]
    if basis == "within":
        found = _batched([run.means for run in a], [run.means for run in b], level)
    else:
        found = over_runs([run.mean for run in a], [run.mean for run in b], basis, level)
    return figure_of("mean", "time", shown[0], shown[1], found)


def _percentile(
    name: str,
    quantile: float,
    a: list[Measured],
    b: list[Measured],
    basis: Basis,
    level: float,
    seed: int,
) -> Figure:
    merged = [Histogram.merged(run.histogram for run in runs) for runs in (a, b)]
    shown = [bins.known_percentile(quantile) for bins in merged]
    found = None
    if basis != "within":
        values = [[run.histogram.known_percentile(quantile) for run in runs] for runs in (a, b)]
        found = over_runs(values[0], values[1], basis, level)
    elif None not in shown:
        found = bootstrap_percentile(merged[0], merged[1], quantile, level, _RESAMPLES, seed)
    if found is not None:
        found = _widened(found, merged[0], merged[1], quantile)
    return figure_of(name, "time", shown[0], shown[1], found)


def _widened(found: Difference, a: Histogram, b: Histogram, quantile: float) -> Difference:
    """Widens an interval by the width of the bins.

    A percentile is known only to its bin, so runs that agree to the bin may differ in
    nanoseconds."""
    low = (1 + found.low) * (1 - _width(b, quantile)) - 1
    high = (1 + found.high) / (1 - _width(a, quantile)) - 1
    return Difference(found.difference, low, high)


def _width(bins: Histogram, quantile: float) -> float:
    """Returns the width of a percentile's bin, as a share of its highest value."""
    index = int(np.searchsorted(bins.high / 1e9, bins.percentile(quantile)))
    high, low = int(bins.high[index]), int(bins.low[index])
    return (high - low) / max(high, 1)


def _maximum(a: list[Measured], b: list[Measured], basis: Basis, level: float) -> Figure:
    shown = [max(run.maximum for run in runs) for runs in (a, b)]
    found = None
    if basis != "within":
        found = over_runs([run.maximum for run in a], [run.maximum for run in b], basis, level)
    return figure_of("max", "time", shown[0], shown[1], found)


def _batched(
    a: list[tuple[float, ...]], b: list[tuple[float, ...]], level: float
) -> Difference | None:
    """Compares means of ten batches of each side's seconds, as if each batch were a run."""
    batches = []
    for runs in (a, b):
        values = [value for run in runs for value in run]
        size = len(values) // _BATCHES
        if not size:
            return None
        kept = values[len(values) - size * _BATCHES :]
        batches.append([sum(kept[n : n + size]) / size for n in range(0, len(kept), size)])
    if min(min(batches[0]), min(batches[1])) <= 0:
        return None
    return unpaired(batches[0], batches[1], level)
