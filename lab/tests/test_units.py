"""Sizes and times: the grammar is that of hemi-units, by its examples."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hemi_lab.units import counted, parse_size, parse_time

GRAMMAR = tomllib.loads((Path(__file__).parents[2] / "crates/units/data/grammar.toml").read_text())


@pytest.mark.parametrize("text", GRAMMAR["sizes"])
def test_sizes(text: str) -> None:
    assert parse_size(text) == GRAMMAR["sizes"][text]


@pytest.mark.parametrize("text", GRAMMAR["not_sizes"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", GRAMMAR["durations"])
def test_times(text: str) -> None:
    assert parse_time(text) == pytest.approx(GRAMMAR["durations"][text] / 1e9, rel=1e-12)


@pytest.mark.parametrize("text", GRAMMAR["not_durations"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|longer than"):
        parse_time(text)


def test_numbers_of_tables_are_bytes_and_seconds() -> None:
    assert (parse_size(4096), parse_time(60), parse_time(0.5)) == (4096, 60.0, 0.5)
    for bad in (True, None, 1.5):
        with pytest.raises(ValueError, match="is not a size"):
            parse_size(bad)


def test_one_of_a_thing_is_no_plural() -> None:
    said = [counted(number, "run") for number in (0, 1, 2, 1200)]
    assert said == ["0 runs", "1 run", "2 runs", "1,200 runs"]
