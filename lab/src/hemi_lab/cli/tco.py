"""`hemi-lab tco`: the cost of buying and running drives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hemi_lab.costs import page
from hemi_lab.costs.costs import cost
from hemi_lab.costs.plan import load_plan
from hemi_lab.costs.power import power


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("tco")(tco)


def tco(
    plan: Annotated[Path, typer.Argument(help="A cost plan, a TOML file (docs/lab/tco.md).")],
    html: Annotated[Path | None, typer.Option(help="Also write a self-contained page.")] = None,
) -> None:
    """Show the drives, energy and costs over some years of each option."""
    meant = load_plan(plan)
    costs = [
        cost(meant, option, power(option, plan.parent, meant.demand.iops > 0))
        for option in meant.options
    ]
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(meant.title)
    for content in (page.costs_table(meant, costs), page.drives_table(meant, costs)):
        table = Table(box=None)
        for number, heading in enumerate(content.headings):
            table.add_column(heading, justify="right" if number else "left", no_wrap=True)
        for row in content.rows:
            table.add_row(*row)
        console.print()
        Console(width=max(200, console.width)).print(table)
        console.print(content.note)
    if html is not None:
        page.write(meant, costs, plan.read_text(), html)
        typer.echo(html)
