"""Checks the documents' statements about results."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
import typer
from fakes import FakeDriver, always
from hemi_lab.cli import app
from hemi_lab.results.model import Result
from hemi_lab.results.store import TABLES, Reader
from hemi_lab.statistics.histogram import Histogram
from test_runner import SWEEP, carry_out

DOCUMENTS = Path(__file__).parents[2] / "docs" / "lab"


def test_every_field_and_column_is_documented() -> None:
    page = (DOCUMENTS / "results.md").read_text()
    for field in Result.model_fields:
        assert f"`{field}`" in page, field
    # Percentiles are written as a range.
    between = {"p99_seconds", "p999_seconds", "p9999_seconds"}
    for name, columns in TABLES.items():
        section = page.split(f"## {name}.parquet")[1].split("\n## ")[0]
        for column in set(columns) - between:
            assert f"`{column}`" in section, f"{name}: {column}"


def test_the_query_on_the_page_gives_the_percentile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parts = []
    for number, rate in enumerate((500.0, 1000.0, 7000.0)):
        run = carry_out(SWEEP, FakeDriver(always(rate)), tmp_path / "runs")
        run.folder.rename(tmp_path / f"run-{number}")
        parts.append(Reader(tmp_path / f"run-{number}").histogram([6, 7, 8], "read"))
    text = (DOCUMENTS / "results.md").read_text()
    (query,) = re.findall(r"```sql\n(.*?)```", text, re.S)
    found = duckdb.connect().execute(query).fetchall()
    expected = Histogram.merged(parts).percentile(0.999) * 1e3
    assert found == [(pytest.approx(expected),)]


def test_every_option_is_on_its_commands_page() -> None:
    """Also finds options on a page that its command no longer has."""
    commands = vars(typer.main.get_command(app))["commands"]
    assert {"run", "compare", "history", "tco"} <= set(commands)
    for name, command in commands.items():
        own = DOCUMENTS / f"{name}.md"
        page = (own if own.exists() else DOCUMENTS / "README.md").read_text()
        options = {text for one in command.params for text in one.opts if text.startswith("--")}
        for option in options - {"--help"}:
            assert f"{option}" in page, f"{name}: {option}"
        shown = set(re.findall(rf"hemi-lab {name} [^`\n]*", page))
        # Quoted options are another command's.
        shown = {re.sub(r"'[^']*'", "", line) for line in shown}
        named = {option for line in shown for option in re.findall(r"(--[a-z-]+)", line)}
        assert named <= options | {"--help"}, f"{name}: {named - options}"
