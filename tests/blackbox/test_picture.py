"""Checks that the README's picture shows the measured values and nothing else."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from xml.etree import ElementTree

import polars as pl
import pytest

from bench.picture import (
    DARK,
    FOLDER,
    LIGHT,
    beside,
    chosen,
    drawn,
    labels,
    seen,
    text_width,
    x_of,
)

ROOT = FOLDER.parents[1]


def test_what_a_client_saw_is_worked_out_of_its_writes() -> None:
    due = [0, 10, 40, 60, 120]
    done = [1, 15, 41, 100, 121]
    rows = pl.DataFrame(
        {
            "issued": [at * 10**6 for at in due],
            "completed": [at * 10**6 for at in done],
            "error": [None] * 5,
        },
        schema_overrides={"error": pl.String},
    )
    found = seen(rows)
    assert found["longest_ms"] == [[0.0, 5.0], [0.05, 40.0], [0.1, 1.0]]
    assert (found["writes"], found["longest_write_ms"]) == (5, 40.0)
    assert found["longest_silence_ms"] == 59.0


def test_each_policys_median_round_is_drawn() -> None:
    rounds = [
        {"policy": policy, "longest_silence_ms": silence, "longest_write_ms": longest}
        for policy, silence, longest in [
            ("all", 10_020.0, 10_030.0),
            ("all", 9_980.0, 9_990.0),
            ("all", 10_004.0, 10_010.0),
            ("first", 9.0, 12.3),
            ("first", 9.0, 45.6),
            ("first", 9.0, 177.0),
        ]
    ]
    assert labels(*chosen({"rounds": rounds})) == (
        "plain mirror: 10.0 s without an answer",
        "hemi: longest write 46 ms",
    )


@pytest.mark.parametrize(("name", "colours"), [("freeze", LIGHT), ("freeze-dark", DARK)])
def test_the_picture_is_of_the_figures_beside_it(name: str, colours: object) -> None:
    result = json.loads((FOLDER / "freeze.json").read_text())
    picture = (FOLDER / f"{name}.svg").read_text()
    assert picture == drawn(result, colours)  # type: ignore[arg-type]
    assert len(picture) < 60_000
    texts = [str(element.text) for element in ElementTree.fromstring(picture).iter()]
    assert all(label in " ".join(texts) for label in labels(*chosen(result)))


def test_labels_stand_where_what_they_say_is() -> None:
    result = json.loads((FOLDER / "freeze.json").read_text())
    mirror, hemi = chosen(result)
    places = {
        str(element.text): float(element.attrib["x"])
        for element in ElementTree.fromstring(drawn(result, LIGHT)).iter()
        if "x" in element.attrib
    }
    of_mirror, of_hemi = labels(mirror, hemi)
    begin, end = (x_of(at) for at in mirror["frozen_seconds"])
    for words in (of_mirror.split(": ")[0] + ":", of_mirror.split(": ")[1]):
        assert begin < places[words] < places[words] + text_width(words) < end, "in the band"
    spike = x_of(max(hemi["longest_ms"], key=lambda point: point[1])[0])
    assert places[of_hemi] <= spike <= places[of_hemi] + text_width(of_hemi), "at its spike"
    for second in (0.0, 3.4, 9.9, 10.1, 15.0, 19.9, 20.1, 29.9):
        at = beside(x_of(second), 190, (10, 20))
        edges = [x_of(edge) for edge in (0, 10, 20, 30)]
        assert any(low < at and at + 190 < high for low, high in pairwise(edges)), second


def readme() -> str:
    return " ".join((ROOT / "README.md").read_text().split())


def test_the_readme_says_the_longest_write_of_all_rounds() -> None:
    rounds = json.loads((FOLDER / "freeze.json").read_text())["rounds"]
    ours = [one["longest_write_ms"] for one in rounds if one["policy"] == "first"]
    number = {3: "three", 5: "five", 7: "seven"}[len(ours)]
    assert f"the longest write of all {number} rounds took {max(ours):.0f} ms." in readme()


def test_the_readme_says_with_what_settings_it_was_measured() -> None:
    result = json.loads((FOLDER / "freeze.json").read_text())
    settings = result["options"].replace("--set", "").split()
    said = readme().partition("<sub>The picture:")[2].partition("</sub>")[0]
    assert re.findall(r"`(engine\.[^`]+)`", said) == settings
    assert ("default settings" in said) == (not settings)
    assert ("real-time priority" in said) == result["real_time_priority"]


def test_the_readme_says_the_stalls_where_the_other_drive_is_slow() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    row = (
        r"leg 0 frozen, leg 1 \+20 ms, write QD{} \| 0 \| longest stall, ms \|[^|]*\| ([0-9.]+) \|"
    )
    alone, many = (re.search(row.format(depth), page) for depth in (1, 16))
    assert alone is not None and many is not None
    claim = f"[{float(alone[1]):.0f} ms, and {float(many[1]):.0f} ms with 16 writes at once]"
    assert claim in readme()
