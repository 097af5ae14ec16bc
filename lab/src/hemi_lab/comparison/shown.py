"""Figures of a comparison as text."""

from __future__ import annotations

from hemi_lab.comparison.figures import Figure
from hemi_lab.units import shown_count, shown_rate, shown_time, signed


def shown(figure: Figure, value: float | None) -> str:
    """Returns a figure's value as text."""
    if value is None:
        return "–"
    by_kind = {"rate": shown_count, "bytes": shown_rate, "time": shown_time}
    return by_kind[figure.kind](value)


def share(value: float | None) -> str:
    """Returns a text such as `+12.3 %`."""
    if value is None or value != value:
        return "–"
    if value > 1e6:
        return "× over 10⁶"
    if value > 999:
        return f"× {value + 1:,.0f}"
    # A hyphen is half as wide as the plus in the row above it.
    return signed(f"{100 * value:+.1f} %") if abs(value) < 9.995 else f"× {value + 1:.3g}"
