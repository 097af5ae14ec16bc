"""Steps marked on an axis of time: where one ends, the next begins, and what each of them is."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from hemi_lab.report.colours import GREY

_MOST = 60
"""Largest number of marked steps. More are only lines beside each other."""

HEADROOM = 1.22
"""Height of the first panel as a multiple of its largest value, for the names of steps."""


def spans(steps: pl.DataFrame) -> list[tuple[str, float, float]]:
    """Returns name, begin and end of each span on the axis whose zero is the first step's begin.

    Neighbours of one name are one span. Cells of one round are the round, and what only prepares
    the target is its preparation."""
    found: list[tuple[str, float, float]] = []
    first = float(steps["start_seconds"].min() or 0.0)  # type: ignore[arg-type]
    for step in steps.sort("start_seconds").iter_rows(named=True):
        begin = step["start_seconds"] - first
        end = begin + step["length_seconds"]
        name = str(step["label"])
        if step["stage"] == "round" and step["round"] is not None:
            name = f"round {step['round']}"
        elif step["stage"] == "precondition" and step["round"] is not None:
            name = "precondition"
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1], end)
        else:
            found.append((name, begin, end))
    return found


def mark(figure: go.Figure, named: list[tuple[str, float, float]]) -> None:
    """Shades every second span over all panels, and writes names at the top.

    The page hides names that have no room. A single span needs no mark."""
    if not 1 < len(named) <= _MOST:
        return
    for number, (name, begin, end) in enumerate(named):
        if number % 2:
            figure.add_shape(
                type="rect",
                xref="x",
                yref="paper",
                x0=begin,
                x1=end,
                y0=0,
                y1=1,
                fillcolor=GREY,
                opacity=0.09,
                line_width=0,
                layer="below",
            )
        figure.add_annotation(
            name="step",
            text=name,
            x=begin,
            xref="x",
            y=1,
            yref="paper",
            xanchor="left",
            yanchor="top",
            align="left",
            showarrow=False,
            font={"size": 11},
        )
