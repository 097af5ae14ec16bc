"""`hemi-lab compare`: differences of targets, with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hemi_lab.comparison import page
from hemi_lab.comparison import summary as whole
from hemi_lab.comparison.figures import BASES, Compared, compared
from hemi_lab.comparison.freezes import compared_freezes
from hemi_lab.comparison.interleave import Turns, check, letters, take_turns
from hemi_lab.comparison.sides import Side, side
from hemi_lab.errors import UsageError
from hemi_lab.estimate import of_plan
from hemi_lab.plans.load import load
from hemi_lab.printed import print_table
from hemi_lab.progress import Progress
from hemi_lab.report.parts import Table
from hemi_lab.runner import Ended
from hemi_lab.targets.base import Target
from hemi_lab.targets.database import parse_database
from hemi_lab.targets.parse import HELP, parse
from hemi_lab.units import counted


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("compare")(compare)


def compare(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="A B...",
            help="Directories of runs, or of the runs of one target each; with --plan, "
            f"targets: {HELP}.",
        ),
    ],
    plan: Annotated[
        str | None, typer.Option(help="First run this plan on the targets A, B, … in turns.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of runs of each target.")
    ] = 5,
    out: Annotated[
        Path, typer.Option(help="With --plan: directory for the runs, in A, B, …, and the page.")
    ] = Path("hemi-lab-comparison"),
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first round; each round adds 1.")
    ] = 1,
    test: Annotated[
        list[str] | None, typer.Option(help="Only this test of the plan; may be repeated.")
    ] = None,
    time_scale: Annotated[float, typer.Option(help="Multiplies every time of the plan.")] = 1.0,
    wipe: Annotated[
        list[str] | None,
        typer.Option(help="Data of the target of this name or PATH may be destroyed."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="The page; compare.html beside the runs by default.")
    ] = None,
) -> None:
    """Compare targets by their runs: throughput and latency, with intervals."""
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    names = letters(len(sides))
    folders = [Path(name) for name in sides]
    if plan is not None:
        if not 0 < time_scale <= 100:
            raise UsageError(f"--time-scale {time_scale:g}", "Give a number above 0, at most 100.")
        whole, text = load(plan)
        chosen = whole.chosen(test or [])
        if not chosen.tests:
            known = ", ".join(found.name for found in whole.tests)
            raise UsageError(f"--test {' '.join(test or [])}: no such test", f"There are {known}.")
        chosen = chosen.placed(second=False)
        if not chosen.tests:
            raise UsageError(
                f"{plan}: every placement names a target B", "hemi-lab run takes --second-target."
            )
        named: Callable[[str], Target] = parse_database if chosen.of_databases else parse
        turns = Turns(chosen, text, sides, named, rounds, out, seed, time_scale, wipe or [])
        for destroyed in check(turns):
            console.print(f"will be destroyed: {destroyed}")

        def told(number: int, letter: str, ended: Ended) -> None:
            console.print(f"round {number} of {rounds}, {letter}: {ended.folder}")
            for failed in ended.result.failed_checks():
                console.print(f"audit failed: {failed.name}: {failed.said}")

        most = of_plan(chosen, time_scale).most * rounds * len(sides)
        with Progress(most, console) as progress:
            folders = take_turns(turns, progress.show, told)
    known_sides = [side(name, folder) for name, folder in zip(names, folders, strict=True)]
    a = known_sides[0]
    found = {
        other.letter: [*compared_freezes(a, other), *compared(a, other)]
        for other in known_sides[1:]
    }
    if not any(found.values()):
        raise UsageError("the runs have no point in common", "Compare runs of one plan.")
    _print(known_sides, found)
    path = html or (out / "compare.html" if plan else Path("compare.html"))
    page.write(known_sides, found, path)
    typer.echo(path)


def _print(sides: list[Side], found: dict[str, list[Compared]]) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for known in sides:
        console.print(f"{known.letter}  {known.name}: {counted(len(known.readers), 'run')}")
    for said in page.warnings(sides):
        console.print(f"note: {said}")
    console.print()
    print_table(whole.table(sides, found))
    for letter, compareds in found.items():
        for item in compareds:
            console.print(f"\n{item.point[0]}, {item.label}: {letter} against A")
            rows = [page.row(figure) for figure in item.figures]
            print_table(Table(page.headings(letter), rows))
        for basis in dict.fromkeys(item.basis for item in compareds):
            console.print(f"\nintervals: {BASES[basis]}")
        console.print(page.summary(compareds))
