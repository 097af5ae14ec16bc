"""Writes pages in the report's design, each as one self-contained file.

The chart library and every chart's data are compressed in the page, and the browser unpacks them
(docs/design/decisions/0022-compressed-pages.md)."""

from __future__ import annotations

import os
from functools import cache
from importlib import resources
from pathlib import Path

import jinja2

from hemi_lab import __version__
from hemi_lab.errors import LabError
from hemi_lab.report.parts import Chart, packed

_LIBRARY = "plotly-cartesian.min.js"
"""Plotly's bundle for charts with two axes, a third of the whole library."""

_SCRIPTS = ("ticks.js", "charts.js")


@cache
def _library() -> str:
    """Returns the statement that gives the page the packed library."""
    source = resources.files("hemi_lab.report") / "vendor" / _LIBRARY
    return f'window.packedPlotly = "{packed(source.read_text())}";'


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
        script="\n".join((folder / name).read_text() for name in _SCRIPTS),
        plotly=_library(),
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
