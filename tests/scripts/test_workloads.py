"""The page of the workloads' grammar is the schema's, and its examples are accepted by hemi."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "workloads.py"


def test_the_page_is_of_the_schema() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_page_that_differs_is_found(tmp_path: Path) -> None:
    for name in ("workload.schema.json", "workloads.md"):
        (tmp_path / "docs").mkdir(exist_ok=True)
        text = (ROOT / "docs" / name).read_text()
        (tmp_path / "docs" / name).write_text(text.replace("Number of threads.", "", 1))
    (tmp_path / "scripts").mkdir()
    copy = tmp_path / "scripts" / SCRIPT.name
    copy.write_text(SCRIPT.read_text())
    page = tmp_path / "docs" / "workloads.md"
    page.write_text((ROOT / "docs" / "workloads.md").read_text())
    done = subprocess.run([sys.executable, copy, "--check"], capture_output=True, text=True)
    assert done.returncode != 0
    subprocess.run([sys.executable, copy], check=True)
    assert "Number of threads." not in page.read_text().split("## closed")[1].split("\n## ")[0]
