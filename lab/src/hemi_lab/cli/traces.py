"""`hemi-lab traces`: properties of large traces, on local processes or on Ray."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hemi_lab.errors import UsageError
from hemi_lab.parallel.base import Pool, pool
from hemi_lab.trace_analysis import results, shown
from hemi_lab.trace_analysis.analysis import Store, read_missing
from hemi_lab.trace_analysis.conversion import Reading
from hemi_lab.trace_analysis.figures import Row
from hemi_lab.trace_analysis.page import notes
from hemi_lab.trace_analysis.task import Analysed
from hemi_lab.trace_analysis.tasks import PART, Trace
from hemi_lab.trace_analysis.tasks import traces as traces_of
from hemi_lab.units import counted, parse_size, shown_size

_SHOWN_VOLUMES = 20


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("traces")(traces)


def traces(
    files: Annotated[list[Path], typer.Argument(help="Traces, of one format.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Directory of results; parts in it are not read again. Without it, the figures "
            "are printed and nothing is kept."
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option("--format", help="As --from of hemi trace; recognised by default."),
    ] = None,
    time_unit: Annotated[
        str | None, typer.Option(help="Unit of a disksim or csv trace's times, as in hemi trace.")
    ] = None,
    event: Annotated[
        str | None, typer.Option(help="The blkparse event that is a request: Q (default) or D.")
    ] = None,
    joined: Annotated[
        bool, typer.Option("--joined", help="Read the files as one trace, in this order.")
    ] = False,
    block: Annotated[str, typer.Option(help="Block of the working set.")] = "4 KiB",
    part: Annotated[int, typer.Option(min=1, help="Requests of one task.")] = PART,
    on: Annotated[str, typer.Option(help="`local` processes, or `ray`.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Ray: the cluster; Ray on this machine by default.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Parts at a time; one for each core by default.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the number of parts to read; read none.")
    ] = False,
) -> None:
    """Analyze request streams: load, bursts, sizes, runs, working set, skew."""
    console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    try:
        block_bytes = parse_size(block)
    except ValueError as error:
        raise UsageError(f"--block: {error}") from error
    if out is None and on != "local":
        raise UsageError(f"--on {on}: its machines share no place", "Give one: --out FOLDER.")
    workers = pool(on, jobs, address)
    with ExitStack() as stack:
        place = out or Path(stack.enter_context(TemporaryDirectory(prefix="hemi-lab-traces-")))
        reading = Reading(format_, time_unit, event)
        found = _found(files, reading, place, joined, block_bytes, part, console)
        _analyse(found, place, workers, dry_run, console, keep=out is not None)


def _bars(console: Console) -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


def _found(
    files: list[Path],
    reading: Reading,
    place: Path,
    joined: bool,
    block: int,
    part: int,
    console: Console,
) -> list[Trace]:
    with _bars(console) as bars:
        line = bars.add_task("files", total=len(files))
        return traces_of(
            files, reading, place / "tables", joined, block, part, lambda: bars.advance(line)
        )


def _analyse(
    found: list[Trace], place: Path, workers: Pool, dry_run: bool, console: Console, keep: bool
) -> None:
    """Reads the missing parts of traces, prints the figures, and writes the page if it is kept."""
    store = Store(place)
    tasks = [task for trace in found for task in trace.tasks]
    if dry_run:
        missing = {task.key for task in tasks if not store.has(task)}
        console.print(f"{counted(len(tasks), 'part')}, {len(missing)} without a result yet")
        return
    with _bars(console) as bars:
        line = bars.add_task("parts", total=None)

        def show(done: int, whole: int, last: Analysed | None) -> None:
            bars.update(line, completed=done, total=whole)

        done = read_missing(found, store, workers, show)
    if not keep:
        _print(found, results.figures(found, store), console)
        console.print("nothing is kept; --out FOLDER keeps the figures and writes a page of charts")
        return
    folder, figures = results.write(found, store, place)
    _print(found, figures, console)
    console.print(f"{counted(done.run, 'part')} read, {done.known} known before")
    typer.echo(folder / "report.html")


def _print(found: list[Trace], figures: list[Row], console: Console) -> None:
    plain = Console(highlight=False, markup=False, soft_wrap=True)
    # A file's lines are never cut to the width of a terminal.
    wide = Console(width=max(200, plain.width), highlight=False, markup=False)
    for trace in found:
        own = [row for row in figures if row["trace"] == trace.name]
        volumes = own[1:] if len(own) > 2 else []
        content = shown.summary(own[:1] + volumes[:_SHOWN_VOLUMES])
        table = Table(box=None)
        for number, heading in enumerate(content.headings):
            table.add_column(heading, justify="right" if number else "left", no_wrap=True)
        for cells in content.rows:
            table.add_row(*cells)
        plain.print(f"{trace.name}: {trace.format}, {shown_size(trace.size)}")
        wide.print(table)
        if len(volumes) > _SHOWN_VOLUMES:
            console.print(f"… and {len(volumes) - _SHOWN_VOLUMES} more volumes")
        for note in notes(trace, own):
            console.print(note)
