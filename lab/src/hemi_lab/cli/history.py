"""`hemi-lab history`: the results of a target over time, and where they changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hemi_lab.errors import UsageError
from hemi_lab.history import page
from hemi_lab.history.series import chosen, runs, series
from hemi_lab.printed import print_table
from hemi_lab.units import counted


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("history")(history)


def history(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER...", help="Directories with runs, at any depth."),
    ],
    target: Annotated[
        str | None, typer.Option(help="Only runs of this target, named as they were.")
    ] = None,
    plan: Annotated[str | None, typer.Option(help="Only runs of this plan.")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Only this test; may be repeated.")] = None,
    label: Annotated[
        str | None,
        typer.Option(help="The load of the tests, such as 4T/32Q; the fastest by default."),
    ] = None,
    html: Annotated[Path, typer.Option(help="The page.")] = Path("history.html"),
) -> None:
    """Show the runs of each target over time, and where a test became better or worse."""
    readers = chosen(runs(folders), target, plan, test or [])
    if not readers:
        raise UsageError("there is no run in these directories", "hemi-lab run makes runs.")
    found = series(readers, test or [], label)
    if not found:
        raise UsageError(
            f"{counted(len(readers), 'run')}, and no load that two of one target and plan have",
            "A history needs two runs or more; --label names a load that they have.",
        )
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for one in found:
        console.print(f"\n{one.target}, {one.plan}: {one.name}\n{page.said(one)}")
        print_table(page.table(one))
    page.write(found, html)
    typer.echo(html)
