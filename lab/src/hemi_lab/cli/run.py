"""`hemi-lab run`: runs a plan on a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hemi_lab import ready
from hemi_lab.errors import UsageError
from hemi_lab.estimate import of_plan
from hemi_lab.plans.load import load
from hemi_lab.plans.model import Plan
from hemi_lab.plans.trace import FORMATS, with_trace
from hemi_lab.progress import Progress
from hemi_lab.runner import Order
from hemi_lab.runner import run as carry_out
from hemi_lab.targets import safety
from hemi_lab.targets.base import Target
from hemi_lab.targets.database import HELP as DATABASE_HELP
from hemi_lab.targets.database import DatabaseTarget, parse_database
from hemi_lab.targets.parse import HELP, parse
from hemi_lab.units import shown_size


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("run")(run)


def run(
    plan: Annotated[str, typer.Argument(help="A built-in plan's name, or a plan file's path.")],
    target: Annotated[
        str, typer.Option("--target", "-t", help=f"The target: {HELP}; {DATABASE_HELP}.")
    ],
    second_target: Annotated[
        str | None,
        typer.Option(help="Plans of databases: target B, for a log apart from the data."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Parent of the run's directory.")] = Path(
        "hemi-lab-results"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 1,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this test of the plan; may be repeated. `spare-*` selects several."
        ),
    ] = None,
    time_scale: Annotated[
        float, typer.Option(help="Factor on every time of the plan; the report shows it.")
    ] = 1.0,
    repeat: Annotated[int, typer.Option(min=1, help="Number of times to run the plan.")] = 1,
    wipe: Annotated[
        list[str] | None,
        typer.Option(help="Data of the target of this name or PATH may be destroyed."),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(help="HOST[:PORT] of a fio --server that makes the load; may be repeated."),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(help="A trace for the plan's replays, instead of their own."),
    ] = None,
    trace_format: Annotated[
        str | None,
        typer.Option(help=f"Format of the trace: {', '.join(FORMATS)}; recognised by default."),
    ] = None,
    trace_volume: Annotated[
        str | None,
        typer.Option(help="The volume to replay from a trace of several; `*` means all."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show the steps and the data that would be lost; do nothing."
        ),
    ] = False,
) -> None:
    """Run a plan on a target. Ctrl-C leaves a valid partial result."""
    if not 0 < time_scale <= 100:
        raise UsageError(f"--time-scale {time_scale:g}", "Give a number above 0, at most 100.")
    whole, text = load(plan)
    chosen = whole.chosen(test or [])
    if not chosen.tests:
        names = ", ".join(known.name for known in whole.tests)
        raise UsageError(f"--test {' '.join(test or [])}: no such test", f"{plan} has {names}.")
    if trace is not None:
        chosen = with_trace(chosen, trace, trace_format, trace_volume)
    elif trace_format or trace_volume:
        raise UsageError("--trace-format and --trace-volume go with --trace", "Name a trace.")
    chosen = _placed(chosen, second_target, hosts)

    def named() -> Target:
        return (
            parse_database(target, second_target) if chosen.of_databases else parse(target, hosts)
        )

    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    if dry_run:
        _dry_run(chosen, named(), out, wipe or [], time_scale, console)
        return
    for number in range(1, repeat + 1):
        # The data of the previous run belong to this one, which may overwrite them.
        known = named()
        own = safety.paths(known) if number > 1 else []
        known.describe()
        for destroyed in safety.check(known, [*(wipe or []), *own]):
            console.print(f"will be destroyed: {destroyed}")
        order = Order(chosen, text, known, out, seed, time_scale, number)
        with Progress(of_plan(chosen, time_scale).most, console) as progress:
            ended = carry_out(order, progress.show, console.print)
        for check in ended.result.failed_checks():
            console.print(f"audit failed: {check.name}: {check.said}")
        state = "" if ended.error is None else " (partial)"
        console.print(f"result{state}: {ended.folder}")
        if ended.error is not None:
            raise ended.error
        typer.echo(ended.folder)


def _placed(plan: Plan, second: str | None, hosts: list[str] | None) -> Plan:
    """Returns a plan of databases with the placements that its targets allow."""
    if not plan.of_databases:
        if second is not None:
            raise UsageError(
                f"--second-target {second}: {plan.name} runs no database", "The plan oltp does."
            )
        return plan
    if hosts:
        raise UsageError(f"--hosts goes not with {plan.name}", "A database is on this machine.")
    placed = plan.placed(second is not None)
    if not placed.tests:
        raise UsageError(
            f"{plan.name}: every placement names a target B", "Give it: --second-target."
        )
    return placed


def _dry_run(
    plan: Plan, target: Target, out: Path, wipe: list[str], time_scale: float, console: Console
) -> None:
    description = target.describe()
    estimate = of_plan(plan, time_scale)
    console.print(f"plan      {plan.name}: {plan.title}")
    size = "" if description.bytes is None else f", {shown_size(description.bytes)}"
    console.print(f"target    {description.text} ({description.kind}{size})")
    for line in estimate.lines(description.bytes, description.simulated):
        console.print(line)
    if isinstance(target, DatabaseTarget):
        for letter, part in zip("AB", target.parts, strict=False):
            console.print(f"makes {letter}   {part.text}: {part.makes}")
    hazards = target.hazards()
    for use in hazards.in_use:
        console.print(f"refused   {use}")
    for held in hazards.holds:
        console.print(f"destroys  {held}")
    if not hazards.in_use and not hazards.holds:
        why = "" if isinstance(target, DatabaseTarget) else ": the target is empty"
        console.print(f"destroys  nothing{why}")
    console.print(f"results   in {out}")
    ready.check(plan, target, out, time_scale)
    safety.check(target, wipe)
    console.print("ready     nothing was found that would fail")
