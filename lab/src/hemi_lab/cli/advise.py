"""`hemi-lab advise`: which drives to buy, as a page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from hemi_lab.advice import page
from hemi_lab.advice.model import advice


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("advise")(advise)


def advise(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE|ADVICE.json...",
            help="Traces, or files that hemi advise --json wrote.",
        ),
    ],
    options: Annotated[
        str, typer.Option(help="Options of hemi advise for the traces, as in '--p99.9 2ms'.")
    ] = "",
    out: Annotated[Path, typer.Option(help="The page.")] = Path("advice.html"),
) -> None:
    """Write one page of the drives that serve a trace: cost against latency, and the reasons."""
    page.write([advice(path, shlex.split(options)) for path in files], out)
    typer.echo(out)
