"""Tables on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from hemi_lab.report.parts import Table as Content

_WIDE = 200
"""Fewest columns of a terminal's line, so that a file has whole lines."""


def print_table(content: Content) -> None:
    """Prints a table with its note. Columns of numbers are at the right, verdicts at the left."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    table = Table(box=None)
    for number, heading in enumerate(content.headings):
        # A column without a heading has words.
        justify = "left" if not number or not heading else "right"
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in content.rows:
        table.add_row(*row)
    Console(width=max(_WIDE, console.width), highlight=False, markup=False).print(table)
    if content.note:
        console.print(content.note)
