"""A comparison as text and as one self-contained page."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go

from hemi_lab.comparison.figures import BASES, Compared, Figure
from hemi_lab.comparison.sides import Side
from hemi_lab.report import figures
from hemi_lab.report.build import Chart
from hemi_lab.report.page import write_page
from hemi_lab.report.tables import Table
from hemi_lab.statistics.confidence import LEVEL
from hemi_lab.units import shown_count, shown_rate, shown_time

_COLOURS = {True: figures.GREEN, False: "#c2464a", None: figures.GREY}


def shown(figure: Figure, value: float | None) -> str:
    """A figure's value."""
    if value is None:
        return "–"
    by_kind = {"rate": shown_count, "bytes": shown_rate, "time": shown_time}
    return by_kind[figure.kind](value)


def share(value: float | None) -> str:
    """`+12.3 %`."""
    if value is None or value != value:
        return "–"
    return f"{100 * value:+.1f} %" if abs(value) < 9.995 else f"× {value + 1:.3g}"


def row(figure: Figure) -> list[str]:
    """A line of the table."""
    return [
        figure.name,
        shown(figure, figure.a),
        shown(figure, figure.b),
        share(figure.difference),
        "–" if figure.low != figure.low else f"{share(figure.low)} to {share(figure.high)}",
        figure.said(),
    ]


def headings(letter: str) -> list[str]:
    """Of these lines."""
    return ["", "A", letter, f"{letter} against A", "95 % interval", ""]


def summary(found: list[Compared]) -> str:
    """How many figures differ, and how many would by chance."""
    every = [figure for compared in found for figure in compared.figures]
    asked = [figure for figure in every if figure.verdict != "unknown"]
    differ = sum(figure.better is not None for figure in asked)
    noise = len(asked) - differ
    return (
        f"{differ} of {len(asked)} figures differ, {noise} are inside the noise, and of "
        f"{len(every) - len(asked)} it is not known. Where nothing differed, about "
        f"{len(asked) * (1 - LEVEL):.1f} would still seem to: judge by several figures that agree."
    )


def warnings(sides: list[Side]) -> list[str]:
    """What a reader has to know of the runs."""
    said = []
    for side in sides:
        for reader in side.readers:
            named = f"{side.letter}, run {reader.result.repeat} ({reader.folder.name})"
            if reader.result.partial:
                said.append(f"{named}: partial: {reader.result.why_partial or 'not ended'}")
            for check in reader.result.failed_checks():
                said.append(f"{named}: audit failed: {check.name}: {check.said}")
    plans = {reader.result.plan_text for side in sides for reader in side.readers}
    if len(plans) > 1:
        said.append("the runs are of different plans: points of one name may be other loads")
    scales = {reader.result.time_scale for side in sides for reader in side.readers}
    if len(scales) > 1:
        said.append("the runs' times were scaled differently")
    if len({side.simulated for side in sides}) > 1:
        said.append("measured and simulated runs are compared: the model's error is in it")
    if not _interleaved(sides):
        said.append(
            "the sides' runs were not made in turns: what changed on the machine between them "
            "counts as a difference of the targets"
        )
    return said


def _interleaved(sides: list[Side]) -> bool:
    """Whether no side's runs came one after another while others waited."""
    if all(side.simulated for side in sides):
        return True
    made = sorted((reader.result.started, side.letter) for side in sides for reader in side.readers)
    letters = [letter for _, letter in made]
    rounds = [letters[n : n + len(sides)] for n in range(0, len(letters), len(sides))]
    return all(len(set(turn)) == len(sides) for turn in rounds)


def write(sides: list[Side], found: dict[str, list[Compared]], path: Path) -> None:
    """The page."""
    sections = []
    for letter, compareds in found.items():
        other = next(side for side in sides if side.letter == letter)
        parts: list[Chart | tuple[str, Table]] = [
            Chart(
                f"{letter} against A",
                _forest(compareds),
                "Points: ratios; lines: 95 % intervals. Green is better, red worse, grey "
                "inside the noise.",
            )
        ]
        for compared in compareds:
            test, label = compared.point
            runs = f"{compared.rounds[0]} and {compared.rounds[1]} runs; {BASES[compared.basis]}."
            rows = [row(figure) for figure in compared.figures]
            title = f"{sides[0].titles.get(test, test)}: {label}"
            parts.append((title, Table(headings(letter), rows, runs)))
            distributions = {
                f"A: {sides[0].name}": [run.histogram for run in sides[0].points[compared.point]],
                f"{letter}: {other.name}": [run.histogram for run in other.points[compared.point]],
            }
            parts.append(
                Chart(
                    "Distribution of latencies",
                    figures.distribution(distributions),
                    "Lines: all runs merged from their bins; bands: from the lowest to the highest "
                    "of the runs.",
                )
            )
        sections.append((f"{letter}: {other.name}", summary(compareds), parts))
    write_page(
        "compare.html.j2",
        path,
        sides=sides,
        sections=sections,
        warnings=warnings(sides),
        simulated=any(side.simulated for side in sides),
    )


def _forest(compareds: list[Compared]) -> go.Figure:
    rows = [
        (f"{compared.point[1]}, {figure.name}" if len(compareds) > 1 else figure.name, figure)
        for compared in compareds
        for figure in compared.figures
        if figure.difference is not None and figure.name in ("IOPS", "mean", "99 %", "99.9 %")
    ]
    figure = go.Figure()
    figure.update_layout(height=120 + 22 * max(4, len(rows)), showlegend=False)
    for name, item in rows:
        assert item.difference is not None
        known = item.low == item.low
        error = {
            "type": "data",
            "symmetric": False,
            "array": [item.high - item.difference if known else 0],
            "arrayminus": [item.difference - item.low if known else 0],
        }
        figure.add_scatter(
            x=[1 + item.difference],
            y=[name],
            error_x=error,
            mode="markers",
            marker={"size": 9, "color": _COLOURS[item.better]},
            hovertext=item.said(),
        )
    figure.add_vline(x=1, line={"color": figures.GREY, "width": 1, "dash": "dot"})
    figure.update_xaxes(title="as a multiple of A", type="log")
    figure.update_yaxes(autorange="reversed", type="category")
    return figure
