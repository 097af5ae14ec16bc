"""`hemi-lab report`: writes runs as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hemi_lab.report import build
from hemi_lab.results.store import Reader


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("report")(report)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Directories of runs.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file; report.html in the first run's directory by default."),
    ] = None,
) -> None:
    """Write one self-contained HTML file that opens offline and prints, light or dark."""
    readers = [Reader(folder) for folder in runs]
    path = out or runs[0] / "report.html"
    build.write(readers, path)
    typer.echo(path)
