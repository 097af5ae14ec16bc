"""`hemi-lab sweep`: runs many simulations, on local processes or on Ray."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hemi_lab.errors import LabError, UsageError
from hemi_lab.parallel.base import pool
from hemi_lab.sweeps import sweep as sweeps
from hemi_lab.sweeps.cases import tasks as tasks_of
from hemi_lab.sweeps.store import Store
from hemi_lab.sweeps.task import Simulated
from hemi_lab.units import counted, shown_count, shown_rate, shown_time

_MOST_SEEDS = 10_000
_SHOWN_ROWS = 60


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("sweep")(sweep)


def sweep(
    spec: Annotated[Path, typer.Argument(help="A file of hemi sim run, with a [sweep].")],
    out: Annotated[
        Path, typer.Option(help="Directory of results; existing ones are not run again.")
    ],
    seeds: Annotated[
        str | None, typer.Option(help="Seeds for each case, as in 1-10 or 1,5,9; else the spec's.")
    ] = None,
    on: Annotated[str, typer.Option(help="`local` processes, or `ray`.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Ray: the cluster; Ray on this machine by default.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Simulations at a time; one for each core by default."),
    ] = None,
    snapshots: Annotated[
        Path | None,
        typer.Option(help="Directory in which preconditioned flash is kept between runs."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the number of simulations; run none.")
    ] = False,
) -> None:
    """Run every case of a spec that has no result yet, and print one table."""
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    tasks = tasks_of(spec, seeds_of(seeds), snapshots)
    store = Store(out)
    if dry_run:
        missing = sum(not store.has(task) for task in tasks)
        console.print(f"{counted(len(tasks), 'simulation')}, {missing} without a result yet")
        return
    workers = pool(on, jobs, address)
    columns = TextColumn("simulations"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bars:
        line = bars.add_task("", total=None)

        def show(done: int, whole: int, last: Simulated | None) -> None:
            bars.update(line, completed=done, total=whole)
            if last is not None and last.failed is not None:
                bars.console.print(f"case {last.task.case}, seed {last.task.seed}: {last.failed}")

        swept = sweeps.sweep(tasks, store, workers, show)
    path = sweeps.keep_table(tasks, store)
    _print(
        sweeps.table(tasks, store).head(_SHOWN_ROWS).to_dicts(), tasks[0].values if tasks else {}
    )
    if len(tasks) > _SHOWN_ROWS:
        console.print(f"… and {len(tasks) - _SHOWN_ROWS} more rows")
    console.print(f"{swept.run} run, {swept.known} known before, {len(swept.failed)} failed")
    typer.echo(path)
    if swept.failed:
        first = swept.failed[0]
        raise LabError(
            f"{len(swept.failed)} of {len(tasks)} simulations failed",
            first.way_out or "Their messages are above; the same command runs them again.",
        )


def seeds_of(text: str | None) -> list[int]:
    """Returns the seeds of `1-10`, `1,5,9`, or both, each once."""
    if text is None:
        return []
    found: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if match is None or last < first or last >= 1 << 63 or last - first >= _MOST_SEEDS:
            raise UsageError(
                f"--seeds {text}: {part!r} is no seed or range",
                f"Write them as in 1-10 or 1,5,9; at most {_MOST_SEEDS:,}.",
            )
        found |= dict.fromkeys(range(first, last + 1))
    return list(found)


def _print(rows: list[dict[str, object]], values: dict[str, object]) -> None:
    table = Table(box=None)
    # The last part of a dotted key is enough if it is unique.
    last = [key.rsplit(".", 1)[-1] for key in values]
    names = [
        short if last.count(short) == 1 else key for short, key in zip(last, values, strict=True)
    ]
    for heading in ("case", "seed", *names, "IOPS", "rate", "mean", "99 %", "99.9 %", "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        seconds = [row[f"{name}_seconds"] for name in ("mean", "p99", "p999", "maximum")]
        table.add_row(
            str(row["case"]),
            str(row["seed"]),
            *(str(row[key]) for key in values),
            shown_count(_number(row["iops"])),
            shown_rate(_number(row["bytes_per_second"])),
            *("–" if value is None else shown_time(_number(value)) for value in seconds),
        )
    console = Console()
    # A file's lines are never cut to the width of a terminal.
    Console(width=console.width if console.is_terminal else 200).print(table)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
