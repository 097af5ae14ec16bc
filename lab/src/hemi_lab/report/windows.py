"""The measurement window of a tracked variable: its plot, and the numbers below."""

from __future__ import annotations

from hemi_lab.report import figures
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.results.model import Tracked
from hemi_lab.statistics.steady import EXCURSION, RANGE
from hemi_lab.units import counted, shown_rate, shown_time, signed


def parts(tracked: Tracked) -> list[Part]:
    """Returns the plot and the numbers, or none if there was only one round."""
    if len(tracked.values) < 2:
        return []
    chart = Chart(f"Measurement window: {tracked.label}", figures.window(tracked), _said(tracked))
    return [chart, *_numbers(tracked)]


def _said(tracked: Tracked) -> str:
    if tracked.reached:
        said = f"Steady in rounds {tracked.first} to {tracked.last}."
    else:
        said = f"Steady state NOT REACHED in {counted(len(tracked.values), 'round')}."
    if tracked.left_in_round:
        said += f" Left again: the window from round {tracked.left_in_round} is not steady."
    return said


def _numbers(tracked: Tracked) -> list[Part]:
    """Returns the numbers that the PTS's reports have."""
    mean, first, last = tracked.mean, tracked.first, tracked.last
    if mean is None or first is None or last is None:
        return []
    window = tracked.values[first - 1 : last]
    rows = [
        ["rounds of the window", f"{first} to {last} of {len(tracked.values)}"],
        ["average", amount(mean, tracked.unit)],
        ["average + 10 %", amount(1.1 * mean, tracked.unit)],
        ["average − 10 %", amount(0.9 * mean, tracked.unit)],
        [
            "least and most",
            f"{amount(min(window), tracked.unit)}, " f"{amount(max(window), tracked.unit)}",
        ],
    ]
    if tracked.range_share is not None:
        rows.append(["range, at most 20 % of the average", _judged(tracked.range_share, RANGE)])
    if tracked.slope is not None and tracked.intercept is not None:
        # The intercept is kept at the window's first round, but readers count from round 0.
        start = tracked.intercept - tracked.slope * first
        sign = "+" if tracked.slope >= 0 else "−"
        fit = f"{signed(_plain(start))} {sign} {_plain(abs(tracked.slope))} × round, {tracked.unit}"
        rows += [
            ["best linear fit", fit],
            ["slope a round", signed(f"{_plain(tracked.slope)} {tracked.unit}")],
        ]
    if tracked.excursion_share is not None:
        rows.append(
            ["excursion of the fit, at most 10 %", _judged(tracked.excursion_share, EXCURSION)]
        )
    which = "Steady window" if tracked.reached else "Last window, NOT steady"
    return [(f"{which}: {tracked.label}", Table(["", ""], rows))]


def _judged(share: float, most: float) -> str:
    return f"{share:.1%}" + ("" if share <= most + 1e-9 else ": too much")


def amount(value: float, unit: str) -> str:
    """Returns a value of a tracked variable with its unit."""
    if unit == "s":
        return shown_time(value)
    if unit == "bytes/s":
        return shown_rate(value)
    return f"{_plain(value)} {unit}"


def _plain(value: float) -> str:
    """Returns four digits, and no power of ten where a reader can count."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
