"""The command `hemi-lab`. Each command is a module of this directory with a `register`."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

import typer
from rich.console import Console

from hemi_lab import __version__
from hemi_lab.errors import LabError

app = typer.Typer(
    name="hemi-lab",
    help="A storage lab: published methodologies as plans, on real and simulated targets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hemi-lab {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """A storage lab: published methodologies as plans, on real and simulated targets."""


for module in sorted(found.name for found in iter_modules(__path__)):
    import_module(f"{__name__}.{module}").register(app)


def main() -> None:
    """Runs the command. Failures are printed with their way out."""
    try:
        app()
    except LabError as error:
        fail(error)


def fail(error: LabError) -> None:
    """Prints an error and its way out, and exits with its status."""
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    console.print(f"error: {error.what}")
    if error.way_out:
        console.print(f"hint: {error.way_out}")
    sys.exit(error.exit_code)
