"""Advice as a page: the frontier, what is said, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hemi_lab.advice import page
from hemi_lab.advice.model import Advice, advice
from hemi_lab.errors import LabError, UsageError
from hemi_lab.report.parts import Chart


def distribution(p999: float) -> dict[str, Any]:
    return {
        "count": 20_000,
        "mean": p999 / 10,
        "p50": p999 / 20,
        "p99": p999 / 2,
        "p999": p999,
        "p999_low": p999 * 0.9,
        "p999_high": p999 * 1.1,
        "max": p999 * 4,
    }


def system(rank: int, name: str, total: float, p999: float, **more: Any) -> dict[str, Any]:
    leg = {
        "preset": name,
        "drives": 1,
        "owned": 0,
        "price": total,
        "monthly": None,
        "date": "2025",
        "source": f"list of {name}",
        "flash_scale": 8,
        "busy": 0.25,
        "wear": {
            "written_a_day": 1e9,
            "read_a_day": 1e9,
            "write_amplification": 1.5,
            "endurance": 600 * 10**12,
            "years": 1600.0,
            "years_amplified": 1095.0,
            "of_workload": None,
            "replacements": 0,
        },
    }
    cost = {
        "purchase": total,
        "monthly": 0.0,
        "replacements": 0.0,
        "drives": total,
        "kilowatt_hours": 40.0,
        "kilowatt_hours_cooled": 60.0,
        "energy": 0.0,
        "total": total,
    }
    deciding = {
        "class": "random writes of 4KiB",
        "kind": "write",
        "bytes": 4096,
        "sequential": False,
        "share": 0.61,
        "above": 0.002,
        "known": [
            {"preset": name, "figure": None, "off": 0.0, "fitted": False, "latency": False},
            {"preset": "x", "figure": "a figure", "off": -0.07, "fitted": True, "latency": True},
        ],
    }
    return {
        "rank": rank,
        "name": name,
        "copies": 1,
        "verdict": "meets",
        "why": [],
        "frontier": True,
        "cost": cost,
        "latency": distribution(p999),
        "reads": None,
        "writes": None,
        "behind": 0.0,
        "exposure_peak": 0,
        "plain": None,
        "deciding": deciding,
        "legs": [leg],
        "what_if": None,
        **more,
    }


def content(*systems: dict[str, Any], **asked: Any) -> dict[str, Any]:
    return {
        "load": {
            "file": "/traces/vm.vscsi",
            "requests": 20_000,
            "reads": 5_000,
            "writes": 15_000,
            "read_bytes": 5_000 * 4096,
            "written_bytes": 15_000 * 4096,
            "duration": 1200.0,
            "volume": 1 << 35,
            "classes": [["random writes of 4KiB", 0.75]],
        },
        "asked": {
            "p999": 0.002,
            "exposure": None,
            "budget": 400.0,
            "years": 5.0,
            "currency": "USD",
            "electricity": None,
            "cooling_percent": 50.0,
            "have": None,
            "what_if": None,
            "seed": 1,
            **asked,
        },
        "assumptions": ["Requests arrive at their times."],
        "cautions": ["Too light to tell."],
        "systems": list(systems),
        "left_out": [{"name": "old", "why": "has no price"}],
    }


PLAIN = {"latency": distribution(3.0), "stalled_above": 0.002, "stalled": 200, "saved": 150}


def given(tmp_path: Path, *systems: dict[str, Any], **asked: Any) -> Advice:
    path = tmp_path / "advice.json"
    path.write_text(json.dumps(content(*systems, **asked)))
    return advice(path, [])


def test_the_frontier_is_drawn_from_the_cheapest_to_the_fastest(tmp_path: Path) -> None:
    found = given(
        tmp_path,
        system(1, "fast", 300, 0.001),
        system(2, "cheap", 100, 0.02),
        system(3, "bad", 400, 0.03, frontier=False, verdict="misses", why=["p99.9 is 15 times"]),
    )
    figure = page.pareto(found)
    line = figure.data[0]
    assert list(line.x) == [100, 300] and list(line.y) == [0.02, 0.001]
    marks = {trace.name: list(trace.text) for trace in figure.data if trace.mode == "markers"}
    assert marks == {"meets, 1 copy": ["fast", "cheap"], "misses, 1 copy": ["bad"]}
    # The target and the budget are lines.
    assert len(figure.layout.shapes) == 2


def test_the_table_says_what_was_saved_and_what_freezes_do(tmp_path: Path) -> None:
    frozen = {"leg": 1, "latency": distribution(0.004), "exposure_peak": 1 << 20, "plain": PLAIN}
    found = given(
        tmp_path,
        system(1, "a + b", 300, 0.001, copies=2, plain=PLAIN, what_if=frozen),
        what_if={"said": "One freeze of 2s.", "at": 1.0, "length": 2.0, "count": 1},
    )
    row = page.systems_table(found).rows[0]
    assert row[0] == "1. a + b *"
    assert "75%" in row and "4 ms" in row and "over 100 years" in row
    titles = [part.title for part in page.parts(found) if isinstance(part, Chart)]
    assert titles == ["Cost against latency", "What freezes change"]


def test_the_page_is_one_file_with_every_reason(tmp_path: Path) -> None:
    out = tmp_path / "advice.html"
    page.write([given(tmp_path, system(1, "a <b>", 300, 0.001))], out)
    text = out.read_text()
    for said in (
        "Which drives to buy: vm.vscsi",
        "Too light to tell.",
        "Decided by random writes of 4KiB: 61% of the time above 2 ms",
        "not validated for such requests",
        "x -7% (a figure, fitted)",
        "list of a &lt;b&gt;",
        "Requests arrive at their times.",
        "old has no price",
    ):
        assert said in text, said
    assert "a <b>" not in text.split("<main>")[1].split("application/json")[0]
    assert "<link" not in text and 'src="http' not in text.split("<main>")[1]


def test_what_is_no_advice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"load": 3}')
    with pytest.raises(LabError, match="is no advice"):
        advice(path, [])
    with pytest.raises(UsageError, match="given already"):
        advice(path, ["--p99.9", "2ms"])
    with pytest.raises(UsageError, match=r"b\.json"):
        advice(tmp_path / "b.json", [])
