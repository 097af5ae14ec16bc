"""Pages as a browser has them once it has unpacked their charts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

_CHART = re.compile(
    r"<figure><h3>(?P<title>[^<]*)</h3>.*?"
    r'<script type="application/gzip">(?P<packed>[^<]*)</script>',
    re.S,
)


def unpacked(packed: str) -> str:
    return gzip.decompress(base64.b64decode(packed)).decode()


def read(path: Path) -> str:
    """Returns the text of a page without the chart library, with every chart in clear."""
    text = re.sub(r"window\.packedPlotly = \"[^\"]*\";", "", path.read_text(), count=1)
    return re.sub(
        r'(?<=<script type="application/gzip">)[^<]*', lambda found: unpacked(found[0]), text
    )


def figures(path: Path) -> dict[str, Any]:
    """Returns the first chart of each title, as the page's script reads it."""
    charts: dict[str, Any] = {}
    for found in _CHART.finditer(path.read_text()):
        charts.setdefault(found["title"], json.loads(unpacked(found["packed"])))
    return charts
