"""The parts of pages: charts and tables, each with its heading."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass

import plotly.graph_objects as go


def packed(text: str) -> str:
    """Returns a text compressed with gzip and in base64. The same text gives the same bytes."""
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


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
    def packed(self) -> str:
        """Returns the figure's JSON, packed for a script element.

        Numbers have six digits, more than a screen has pixels."""
        exact = str(self.figure.to_json())
        short = json.loads(exact, parse_float=lambda text: float(f"{float(text):.6g}"))
        return packed(json.dumps(short, separators=(",", ":")))


Part = Chart | tuple[str, Table]
"""A chart, or a table with its heading."""
