"""`hemi-lab tco`: the cost of buying and running drives."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hemi_lab.costs import page
from hemi_lab.costs.costs import cost
from hemi_lab.costs.plan import load_plan
from hemi_lab.costs.power import power
from hemi_lab.printed import print_table


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
    for warning in dict.fromkeys(said for one in costs for said in one.power.warnings):
        typer.echo(f"warning: {warning}", err=True)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(meant.title)
    tables = (
        page.costs_table(meant, costs),
        page.wear_table(meant, costs),
        page.drives_table(meant, costs),
    )
    for content in filter(None, tables):
        console.print()
        print_table(content)
    if html is not None:
        page.write(meant, costs, plan.read_text(), html)
        typer.echo(html)
