"""Writes docs/benchmarks.md from the figures of all parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .settings import LENGTHS

# What somebody who has looked at the figures says of them, by hand.
REMARKS = Path(__file__).with_name("remarks.md")
INTRODUCTION = """\
# Benchmarks

This page is written by `make bench`; the raw figures are in `bench/results.json`. Peers run
beside hemi, in interleaved rounds on one machine, because the same test half an hour later
can differ by a third: read the ratios, not the absolute figures. Clients are fio's NBD engine
on one unix-socket connection. Files are fully written before they are measured.
"""


def page(results: dict[str, Any], parts: dict[str, Any]) -> str:
    lines = [INTRODUCTION]
    for name, part in parts.items():
        if name not in results:
            continue
        data = results[name]
        lines += [f"## {part.TITLE}", ""]
        lines += part.report(data)
        lines += ["", *_provenance(name, data), ""]
    lines += [REMARKS.read_text()]
    return "\n".join(lines).rstrip() + "\n"


def _provenance(name: str, data: dict[str, Any]) -> list[str]:
    """How these figures came about."""
    settings = data["settings"]
    lengths = " ".join(f"--{key.replace('_', '-')} {settings[key]}" for key in LENGTHS)
    machine = "; ".join(f"{key}: {value}" for key, value in data["machine"].items())
    return [
        f"Measured {data['date']} with `make bench BENCH_ARGS=\"{name} {lengths}\"`.",
        f"Machine: {machine}.",
    ]
