"""Checks that the alerts and the dashboard for Prometheus and Grafana use metrics that hemi has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hemi_harness import Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB
from hemi_harness.sandbox import PATIENCE, free_port
from hemi_harness.smartctl import NVME, Smartctl

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "packaging/prometheus/hemi.rules.yml"
TESTS = ROOT / "packaging/prometheus/hemi.test.yml"
DASHBOARD = ROOT / "packaging/grafana/hemi.json"
PAGE = ROOT / "docs/metrics.md"

METRIC = re.compile(r"\bhemi_[a-z0-9_]+\b")
#: A metric and the text in its braces.
SELECTED = re.compile(r"\b(hemi_[a-z0-9_]+)\{([^}]*)\}")
#: Labels that an operator joins or groups by.
GROUPED = re.compile(r"\b(?:by|on|group_left|ignoring|without)\s*\(([^)]*)\)")
SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}")
#: Labels that Prometheus adds to what it scrapes.
SCRAPED = {"instance", "job"}

#: Content types by what a client accepts.
ACCEPTED = {
    "*/*": "text/plain; version=0.0.4; charset=utf-8",
    "text/plain": "text/plain; version=0.0.4; charset=utf-8",
    "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5": (
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    ),
}

Labels = dict[str, set[str]]

#: Metrics that Prometheus makes itself, and that `hemi exporter` adds (test_exporter.py).
ELSEWHERE: Labels = {"up": {"job"}, "hemi_up": {"volume", "control"}}


def expressions_of_rules() -> Iterator[tuple[str, str]]:
    """Yields each rule's expression and the text of its annotations.

    The file is simple enough to be read by lines: each key is alone on one, except for expressions
    in blocks."""
    text = RULES.read_text()
    for rule in text.split("      - alert: ")[1:]:
        block = re.search(r"expr: \|\n((?: {10}.*\n)+)", rule)
        line = re.search(r"expr: (.*)\n", rule)
        assert line, rule
        yield block.group(1) if block else line.group(1), " ".join(re.findall(r'"(.*)"', rule))


def expressions_of_dashboard() -> Iterator[tuple[str, str]]:
    """Yields each query of the dashboard and its legend."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"], target["legendFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"], ""
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["expr"], annotation["titleFormat"] + annotation["textFormat"]


def expressions_of_page() -> Iterator[tuple[str, str]]:
    for block in re.findall(r"```promql\n(.*?)```", PAGE.read_text(), re.S):
        for line in block.splitlines():
            yield line.partition("#")[0], ""


def wrong(expression: str, shown: str, served: Labels) -> list[str]:
    """Returns the metrics and labels of an expression that are not served."""
    complaints = []
    metrics = set(METRIC.findall(expression))
    known = set().union(*(served.get(metric, set()) for metric in metrics)) | SCRAPED
    complaints += [f"no metric {metric}" for metric in metrics if metric not in served]
    for metric, matchers in SELECTED.findall(expression):
        names = re.findall(r"([a-z_]+)\s*[=!]", matchers)
        labels = served.get(metric, set()) | SCRAPED
        complaints += [f"{metric} has no label {name}" for name in names if name not in labels]
    for group in GROUPED.findall(expression):
        names = [name.strip() for name in group.split(",") if name.strip()]
        complaints += [f"no label {name} to group by" for name in names if name not in known]
    for name in SHOWN.findall(shown):
        if name not in known | {"value"}:
            complaints.append(f"no label {name} to show")
    return complaints


@pytest.fixture(scope="module")
def scraped() -> Iterator[dict[str, tuple[str, str]]]:
    """Yields the content type and the metrics of a served volume that has every one of them, for
    each value of `Accept`."""
    with Sandbox() as sandbox:
        smartctl = Smartctl(sandbox)
        smartctl.tells(NVME)
        port = free_port()
        options = ("--http", f"127.0.0.1:{port}")
        volume = Volume.on_files(sandbox, 32 * MIB, options=options, start=False)
        volume.env = smartctl.env
        volume.start()
        wait_until("the drives are looked up", lambda: bool(drive(volume)))
        if drive(volume)["device"] is None:
            pytest.skip(f"the test's directory has no disk: {drive(volume)['why_unknown']}")
        wait_until("wear is kept", lambda: any(smartctl.state.glob("*.drives.json")))
        volume.stop()
        smartctl.has_watched(time.time_ns() // 1_000_000)
        volume.start()
        wait_until("the drives are looked up", lambda: bool(drive(volume)))
        answers = {}
        for accept in ACCEPTED:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept}
            )
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                answers[accept] = (answer.headers["Content-Type"], answer.read().decode())
        yield answers


@pytest.fixture(scope="module")
def served(scraped: dict[str, tuple[str, str]]) -> Labels:
    """Returns the metrics and their labels."""
    return labels_of(scraped["*/*"][1]) | ELSEWHERE


def test_metrics_are_in_the_format_that_was_asked_for(
    scraped: dict[str, tuple[str, str]], served: Labels
) -> None:
    for accept, (kind, text) in scraped.items():
        assert kind == ACCEPTED[accept], accept
        assert text.endswith("# EOF\n") == kind.startswith("application/"), accept
        assert labels_of(text) | ELSEWHERE == served, accept


def test_prometheus_understands_the_metrics(scraped: dict[str, tuple[str, str]]) -> None:
    promtool("check", "metrics", given=scraped["*/*"][1])


def drive(volume: Volume) -> dict[str, Any]:
    found: dict[str, Any] = volume.status()["legs"][0]["drive"] or {}
    return found


def labels_of(text: str) -> Labels:
    labels: Labels = {}
    for line in text.splitlines():
        if found := re.match(r"(hemi_[a-z0-9_]+)(?:\{(.*)\})? ", line):
            names = re.findall(r'([a-z_]+)="', found.group(2) or "")
            labels.setdefault(found.group(1), set()).update(names)
    return labels


@pytest.mark.parametrize(
    ("source", "least"),
    [
        (expressions_of_rules, 18),
        (expressions_of_dashboard, 30),
        (expressions_of_page, 8),
    ],
)
def test_every_query_asks_for_what_is_served(source: Any, least: int, served: Labels) -> None:
    count = 0
    for expression, shown in source():
        if expression.strip():
            count += 1
            assert wrong(expression, shown, served) == [], expression
    assert count >= least, "queries were not found in the file"


def test_a_wrong_query_would_be_seen(served: Labels) -> None:
    for expression, shown in (
        ("hemi_lost_byte > 0", ""),
        ('hemi_leg_state{stat="out"}', ""),
        ("sum by (legg) (hemi_leg_owed_bytes)", ""),
        ("hemi_lost_bytes", "{{leg}}"),
    ):
        assert wrong(expression, shown, served) != [], expression


def test_every_metric_of_the_page_is_served(served: Labels) -> None:
    rows = re.findall(r"^\| `(hemi_[a-z_]+)` \| (\w+) \| ([^|]*) \|", PAGE.read_text(), re.M)
    assert len(rows) > 60
    for name, kind, labels in rows:
        wanted = {label.strip() for label in labels.split(",") if label.strip()} | {"volume"}
        found = served.get(f"{name}_count" if kind == "histogram" else name)
        assert found == wanted, (name, found)


def promtool(*argv: str, given: str = "") -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (make setup-bench)")
    done = subprocess.run(
        [program, *argv],
        input=given,
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_understands_the_rules() -> None:
    promtool("check", "rules", RULES.name)


def test_each_fault_raises_its_alert() -> None:
    promtool("test", "rules", TESTS.name)


def test_the_dashboards_panels_are_sound() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                assert other == panel["title"], f"{panel['title']} lies on {other}"
