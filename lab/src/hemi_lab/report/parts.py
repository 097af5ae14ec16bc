"""What pages are made of: charts and tables, each with its heading."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go


@dataclass(frozen=True)
class Table:
    """Headings, rows, and what stands under it."""

    headings: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass
class Chart:
    """A chart with its heading and what stands under it."""

    title: str
    figure: go.Figure
    note: str = ""

    @property
    def json(self) -> str:
        """For a script element: no `</` may end it."""
        return str(self.figure.to_json()).replace("</", "<\\/")


Part = Chart | tuple[str, Table]
"""A chart, or a table with its heading."""
