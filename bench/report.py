"""Writes docs/benchmarks.md from the figures of all parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import (
    busy,
    database,
    devices,
    first_pass,
    flush,
    freeze,
    md,
    replay,
    restart,
    slow_leg,
    speed,
)
from .measure import table
from .settings import LENGTHS

# Remarks on the figures, written by hand, with a heading for each section.
REMARKS = Path(__file__).with_name("remarks.md")
UNNAMED = "unnamed"
INTRODUCTION = """\
# Benchmarks

hemi is for the moment in which a drive stalls or is slow; that comes first. What the mirror
costs while both drives are healthy comes after it, and at the end are
[every target, met or missed](#targets-met-and-missed), and [all figures](#all-figures).

This page is written by `make bench` from `bench/results.json`. Peers run beside hemi, in
interleaved rounds on one machine, because the same test half an hour later can differ by a
third: compare the rows of one machine with each other, and read no figure as an absolute.
What has the same letter below was measured on the same machine.
Unless a table says otherwise, the client is fio's NBD engine on one unix-socket connection,
and files are written in full before they are measured. hemi keeps its ledger on a tmpfs.
"""
MODULES = (
    speed,
    busy,
    first_pass,
    slow_leg,
    freeze,
    flush,
    restart,
    md,
    devices,
    database,
    replay,
)
GUEST = (
    "*In the guest*: Linux md and hemi in user-mode Linux on RAM disks, with one processor; md "
    "without a socket in between."
)


def page(results: dict[str, Any]) -> str:
    """Returns the whole page, without parts that were not measured."""
    remarks = _remarks()
    lines = [INTRODUCTION, *_machines(results)]
    for title, key, body in _sections(results):
        lines += [f"## {title}", "", *body, ""]
        if key in remarks:
            lines += [remarks.pop(key), ""]
    lines += ["## Targets, met and missed", "", *_targets(results)]
    lines += ["## All figures", ""]
    for part, module, report in (
        ("freeze", freeze, freeze.report),
        ("flush", flush, flush.report),
        ("slow-leg", slow_leg, slow_leg.report),
        ("md", md, md.report),
        ("devices", devices, devices.report),
        ("speed", speed, speed.latencies),
    ):
        if part in results:
            lines += [f"### {module.TITLE}", "", f"Machine {results[part]['host']}.", ""]
            lines += [*report(results[part]), ""]
    lines += ["## How they were measured", "", *_provenance(results)]
    unknown = remarks.keys() - {module.NAME for module in MODULES}
    assert not unknown, f"{REMARKS.name} has remarks on no section: {', '.join(sorted(unknown))}"
    return "\n".join(lines).rstrip() + "\n"


def part_report(name: str, data: dict[str, Any]) -> str:
    """Returns the text that is printed after a part has run."""
    module = {m.NAME: m for m in MODULES}[name]
    lines = [f"## {module.TITLE}", "", *module.report(data)]
    if hasattr(module, "targets"):
        lines += ["", "Targets:", "", *module.targets(data)]
    return "\n".join(lines)


def _sections(results: dict[str, Any]) -> Iterator[tuple[str, str, list[str]]]:
    """Yields title, key of the remarks, and body."""
    stalls: list[list[str]] = []
    if "freeze" in results:
        stalls += freeze.headline(results["freeze"], freeze.LOADS)
    guest = results.get("md", {}).get("runs")
    if guest:
        stalls += md.freeze_headline(results["md"])
    if stalls:
        head = ["mirror", "machine", "longest stall, ms, QD1", "IOPS, QD1"]
        head += ["longest stall, ms, QD16", "IOPS, QD16"]
        body = ["4 KiB random writes; one leg stops answering for two seconds during the run. The"]
        body += ["longest stall of any request, whichever leg it was; IOPS over the whole run.", ""]
        yield "A frozen leg", "freeze", [*body, *table(head, stalls), "", GUEST]
    slow = [slow_leg.headline(results["slow-leg"])] if "slow-leg" in results else []
    if guest:
        slow += md.slow_headline(results["md"])
    if slow:
        head = ["mirror", "machine", "QD", "IOPS, legs alike", "IOPS, one leg slower", "keeps"]
        body = ["4 KiB random writes; one leg answers 20 ms later than the other.", ""]
        yield "A slow leg", "slow-leg", [*body, *table(head, slow)]
    if "flush" in results:
        loads = flush.LOADS
        head = ["mirror", "machine"]
        for load in loads:
            head += [f"stall, ms, {load.name.removeprefix('write ')}", "IOPS"]
        body = ["The same freeze with a flush after every 16 writes and after every write.", ""]
        rows = freeze.headline(results["flush"], loads)
        yield "Flushes with a frozen leg", "flush", [*body, *table(head, rows)]
    for key, title, part in (
        ("speed", "Healthy legs", speed),
        ("busy", "A busy machine", busy),
        ("first-pass", "The first write to a region", first_pass),
        ("restart", "After a kill", restart),
        ("replay", "A trace replayed on time", replay),
    ):
        if key in results:
            yield title, key, [f"Machine {results[key]['host']}.", "", *part.report(results[key])]
    if results.get("devices", {}).get("runs"):
        data = results["devices"]
        body = [f"Machine {data['host']}.", "", *devices.headline(data)]
        yield "As a block device", "devices", body
    if results.get("database", {}).get("runs"):
        data = results["database"]
        body = [f"Machine {data['host']}.", "", *database.report(data)]
        yield "Under a database", "database", body


def _machines(results: dict[str, Any]) -> list[str]:
    """Returns the machines by name, with the parts measured on each."""
    parts: dict[str, list[str]] = {}
    for name, data in results.items():
        parts.setdefault(data.setdefault("host", UNNAMED), []).append(name)
    rows = []
    for host, names in sorted(parts.items()):
        machine = results[names[0]]["machine"]
        kind = f"{machine['processor']}, {machine['memory']}, Linux {machine['kernel']}"
        rows.append([host, ", ".join(names), kind])
    return [*table(["machine", "parts", ""], rows), ""]


def _targets(results: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    met = missed = 0
    for part in (freeze, flush, slow_leg, restart, speed, busy, replay):
        if part.NAME in results:
            rows = part.targets(results[part.NAME])
            met += sum(row.count("| met") for row in rows)
            missed += sum(row.count("| **missed**") for row in rows)
            lines += [f"### {part.TITLE}: targets", ""]
            lines += [f"Machine {results[part.NAME]['host']}.", "", *rows, ""]
    return [f"{met} are met and {missed} are missed.", "", *lines]


def _provenance(results: dict[str, Any]) -> list[str]:
    lines = []
    for name, data in results.items():
        lengths = " ".join(f"--{k.replace('_', '-')} {data['settings'][k]}" for k in LENGTHS)
        machine = "; ".join(f"{key} {value}" for key, value in data["machine"].items())
        lines.append(
            f"- **{name}**: {data['date']}, machine {data['host']} ({machine}), "
            f'`make bench BENCH_ARGS="{name} {lengths}"`'
        )
    return lines


def _remarks() -> dict[str, str]:
    """Returns the remarks on each section, by its key."""
    found: dict[str, str] = {}
    for text in REMARKS.read_text().split("\n## ")[1:]:
        key, _, body = text.partition("\n")
        found[key.strip()] = body.strip()
    return found
