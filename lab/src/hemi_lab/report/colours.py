"""The colours of charts, readable on light pages, dark ones and paper."""

from __future__ import annotations

BLUE, ORANGE, GREEN, GREY = "#3b76d6", "#d9822b", "#2f9e72", "#8a8f98"
RED = "#c2464a"
COLOURS = (BLUE, ORANGE, GREEN, "#a855b5", RED, "#4aa3b8", "#9a7b2f", GREY)


def faint(colour: str) -> str:
    """Returns a colour for areas through which lines can be seen."""
    red, green, blue = (int(colour[n : n + 2], 16) for n in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
