"""Arrays of one drive over several runs, and how they scale with the number of drives."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import plotly.graph_objects as go
import polars as pl

from hemi_lab.report.colours import COLOURS, GREY
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.results.store import Reader
from hemi_lab.units import shown_count, shown_rate


@dataclass(frozen=True)
class _Run:
    letter: str
    leg: str
    member: str
    """Preset of the drive."""
    count: int
    reader: Reader


def parts(runs: list[tuple[str, Reader]]) -> list[Part]:
    """Returns the parts for every drive that several runs have in different numbers."""
    families: dict[str, list[_Run]] = defaultdict(list)
    for letter, reader in runs:
        target = reader.result.target
        drives, legs = target.get("drives") or [], target.get("legs") or []
        if len(drives) == 1 and len(legs) == 1 and drives[0]:
            drive, leg = drives[0], str(legs[0])
            member = str(drive.get("member") or leg)
            families[member].append(_Run(letter, leg, member, int(drive["count"]), reader))
    found: list[Part] = []
    for member, own in families.items():
        if len({run.count for run in own}) > 1:
            found += _family(member, sorted(own, key=lambda run: (run.count, run.leg)))
    return found


def _family(member: str, runs: list[_Run]) -> list[Part]:
    rates = {run.letter: _best(run.reader) for run in runs}
    base = runs[0]
    rows = []
    figure = go.Figure()
    for number, test in enumerate(rates[base.letter]):
        least = rates[base.letter][test][0]
        x, y, names = [], [], []
        for run in runs:
            if test not in rates[run.letter]:
                continue
            iops, rate = rates[run.letter][test]
            times = iops / least
            efficiency = times / (run.count / base.count)
            x.append(run.count)
            y.append(times)
            names.append(run.leg)
            rows.append(
                [
                    f"{test}: {run.letter}, {run.leg}",
                    str(run.count),
                    shown_count(iops),
                    shown_rate(rate),
                    f"× {times:.3g}",
                    f"{efficiency:.0%}",
                ]
            )
        figure.add_scatter(
            x=x,
            y=y,
            text=names,
            name=test,
            mode="lines+markers" if len(set(x)) == len(x) else "markers",
            line={"color": COLOURS[number % len(COLOURS)], "width": 1.4},
        )
    ends = [base.count, runs[-1].count]
    figure.add_scatter(
        x=ends,
        y=[count / base.count for count in ends],
        name="every drive as much",
        mode="lines",
        line={"color": GREY, "dash": "dot", "width": 1.2},
    )
    figure.update_xaxes(title="drives", tickvals=sorted({run.count for run in runs}))
    figure.update_yaxes(title=f"IOPS, as a multiple of {base.leg}", rangemode="tozero")
    figure.update_layout(height=340)
    headings = ["", "drives", "IOPS", "rate", f"of {base.leg}", "efficiency"]
    note = (
        "Each test's point of most requests a second. Efficiency: as a share of what each drive "
        f"does in {base.letter}, {base.leg}."
    )
    return [
        (f"Arrays of {member}", Table(headings, rows, note)),
        Chart(f"Scaling of {member}", figure),
    ]


def _best(reader: Reader) -> dict[str, tuple[float, float]]:
    """Returns IOPS and bytes a second of each test's fastest point."""
    steps = reader.table("steps").filter((pl.col("count") > 0) & (pl.col("stage") == "measure"))
    best = steps.sort("iops", descending=True).group_by("test", maintain_order=True).first()
    order = {test.name: n for n, test in enumerate(reader.result.tests)}
    rows = sorted(best.iter_rows(named=True), key=lambda row: order[row["test"]])
    return {row["test"]: (row["iops"], row["bytes_per_second"]) for row in rows}
