"""`hemi-lab plans`: lists the plans, or shows one."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hemi_lab.methods import METHODS
from hemi_lab.plans.load import built_in_names, load
from hemi_lab.units import shown_time


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("plans")(plans)


def plans(
    name: Annotated[str | None, typer.Argument(help="A plan's name or path.")] = None,
    text: Annotated[bool, typer.Option("--text", help="Print the plan's file.")] = False,
) -> None:
    """List the built-in plans, or show the tests of one."""
    console = Console()
    if name is None:
        table = Table(box=None)
        table.add_column("plan")
        table.add_column("what it is")
        table.add_column("tests", justify="right")
        for known in built_in_names():
            plan, _ = load(known)
            table.add_row(known, plan.title, str(len(plan.tests)))
        console.print(table)
        return
    plan, source = load(name)
    if text:
        typer.echo(source, nl=False)
        return
    console.print(f"{plan.title}\n\n{' '.join(plan.source.split())}\n", markup=False)
    table = Table(box=None)
    for column in ("test", "kind", "what it measures", "takes (without fills)"):
        table.add_column(column)
    for test in plan.tests:
        estimate = METHODS[test.kind].estimate(test)
        least = shown_time(estimate.least + estimate.unscaled[0])
        most = shown_time(estimate.most + estimate.unscaled[1])
        table.add_row(
            test.name, test.kind, test.title, least if least == most else f"{least} to {most}"
        )
    console.print(table)
