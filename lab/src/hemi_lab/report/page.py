"""Writes pages in the report's design, each as one self-contained file."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import jinja2
from plotly.offline import get_plotlyjs

from hemi_lab import __version__
from hemi_lab.errors import LabError
from hemi_lab.report.parts import Chart


def write_page(template: str, path: Path, **content: object) -> None:
    """Renders a template of this directory with the design's style, script and charts."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hemi_lab", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    folder = resources.files("hemi_lab.report")
    page = environment.get_template(template).render(
        style=(folder / "style.css").read_text(),
        script=(folder / "charts.js").read_text(),
        plotly=get_plotlyjs(),
        lab_version=__version__,
        is_chart=lambda part: isinstance(part, Chart),
        **content,
    )
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(page)
        temporary.replace(path)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", "Give another file.") from error
