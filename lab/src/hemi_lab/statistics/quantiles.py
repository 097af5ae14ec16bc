"""Confidence intervals of percentiles, from the ranks of the requests alone."""

from __future__ import annotations

from scipy import stats

from hemi_lab.statistics.confidence import LEVEL
from hemi_lab.statistics.histogram import Histogram


def percentile_interval(
    bins: Histogram, quantile: float, level: float = LEVEL
) -> tuple[float, float]:
    """Returns the seconds between which the true percentile lies.

    This is Clopper and Pearson's interval of the share of requests that are no slower, read off the
    bins. It holds for independent requests of any distribution, and ends at the slowest request
    seen."""
    if not bins.total:
        raise ValueError("no requests: a percentile needs some")
    if not 0 < quantile < 1:
        raise ValueError(f"a quantile between 0 and 1 has an interval, not {quantile}")
    n = bins.total
    below = quantile * n
    tail = (1 - level) / 2
    low = float(stats.beta.ppf(tail, below, n - below + 1))
    high = float(stats.beta.ppf(1 - tail, below + 1, n - below)) if below < n else 1.0
    return bins.percentile(low), bins.percentile(min(high, 1.0))
