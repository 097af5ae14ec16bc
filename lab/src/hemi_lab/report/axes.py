"""Axes with units.

The page labels an axis by its suffix: `s` as seconds with their prefix (`20 µs`), `B/s` as bytes a
second, none as a number. So data stay in base units, and every label of an axis has its unit."""

from __future__ import annotations


def _axis(title: str, unit: str, log: bool) -> dict[str, object]:
    scale: dict[str, object] = {"type": "log"} if log else {"rangemode": "tozero"}
    return {"title": title, "ticksuffix": unit, "hoverformat": ".3~s", **scale}


def seconds(title: str, log: bool = True) -> dict[str, object]:
    """Returns an axis of times, whose data are seconds."""
    return _axis(title, "s", log)


def rate(title: str = "throughput", log: bool = False) -> dict[str, object]:
    """Returns an axis of bytes a second."""
    return _axis(title, "B/s", log)


def count(title: str, log: bool = False) -> dict[str, object]:
    """Returns an axis of plain numbers, such as IOPS."""
    return {**_axis(title, "", log), "hoverformat": ",.4~r"}


def multiple(title: str) -> dict[str, object]:
    """Returns a logarithmic axis of ratios."""
    return {**_axis(title, "", True), "tickprefix": "× ", "hoverformat": ".3~r"}
