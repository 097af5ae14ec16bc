"""The parts of pages: charts and tables, each with its heading."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go


@dataclass(frozen=True)
class Table:
    """A table with its headings, its rows and a note below."""

    headings: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass
class Chart:
    """A chart with its heading and a note below."""

    title: str
    figure: go.Figure
    note: str = ""

    @property
    def json(self) -> str:
        """Returns the figure for a script element, which no `</` may end."""
        return str(self.figure.to_json()).replace("</", "<\\/")


Part = Chart | tuple[str, Table]
"""A chart, or a table with its heading."""
