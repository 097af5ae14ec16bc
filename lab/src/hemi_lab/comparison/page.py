"""A comparison as text and as one self-contained page."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go

from hemi_lab.comparison import freezes
from hemi_lab.comparison import summary as whole
from hemi_lab.comparison.figures import BASES, Compared, Figure
from hemi_lab.comparison.shown import share, shown
from hemi_lab.comparison.sides import Side
from hemi_lab.report import axes, colours, figures, headline
from hemi_lab.report.page import write_page
from hemi_lab.report.parts import Chart, Table
from hemi_lab.statistics.confidence import LEVEL

_COLOURS = {True: colours.GREEN, False: colours.RED, None: colours.GREY}


def row(figure: Figure) -> list[str]:
    """Returns a figure's row of the table."""
    return [
        figure.name,
        shown(figure, figure.a),
        shown(figure, figure.b),
        share(figure.difference),
        "–" if figure.low != figure.low else f"{share(figure.low)} to {share(figure.high)}",
        figure.said(),
    ]


def headings(letter: str) -> list[str]:
    """Returns the headings of these rows."""
    return ["", "A", letter, f"{letter} against A", "95 % interval", ""]


def summary(found: list[Compared]) -> str:
    """Returns a text with the number of different figures, and the number expected by chance."""
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
    """Returns the caveats of the runs."""
    said = []
    for side in sides:
        for reader in side.readers:
            named = f"{side.letter}, run {reader.result.repeat} ({reader.folder.name})"
            if reader.result.partial:
                said.append(f"{named}: partial: {reader.result.why_partial or 'not ended'}")
            for check in reader.result.failed_checks():
                said.append(f"{named}: audit failed: {check.name}: {check.said}")
    for side in sides:
        said += [
            f"{side.letter} ({folder}): {freeze}: the load began only after the freeze; left out"
            for folder, freeze in side.missed
        ]
    if any(len(side.readers) == 2 for side in sides):
        said.append(
            "two runs for a side: their intervals are seven times as wide as five runs' of the "
            "same scatter, and what lies inside them may differ much: take more rounds"
        )
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
    """Returns true if the runs of all sides were made in turns."""
    if all(side.simulated for side in sides):
        return True
    made = sorted((reader.result.started, side.letter) for side in sides for reader in side.readers)
    letters = [letter for _, letter in made]
    rounds = [letters[n : n + len(sides)] for n in range(0, len(letters), len(sides))]
    return all(len(set(turn)) == len(sides) for turn in rounds)


def write(sides: list[Side], found: dict[str, list[Compared]], path: Path) -> None:
    """Writes the page."""
    sections = []
    for letter, compareds in found.items():
        other = next(side for side in sides if side.letter == letter)
        parts: list[Chart | tuple[str, Table]] = []
        around = [compared for compared in compareds if compared.freeze]
        loads = [compared for compared in compareds if not compared.freeze]
        if around:
            parts += _of_freezes(sides[0], other, around)
        if loads:
            parts.append(Chart(f"{letter} against A", _forest(loads, _OF_LOADS), _READ_IT))
        for compared in loads:
            parts += _of_load(sides[0], other, compared)
        sections.append((f"{letter}: {other.name}", summary(compareds), parts))
    write_page(
        "compare.html.j2",
        path,
        sides=sides,
        headline=headline.chart(
            [headline.System(f"{side.letter}: {side.name}", side.readers) for side in sides],
            "Each test at its best, of all sides",
        ),
        summary=whole.table(sides, found),
        sections=sections,
        warnings=warnings(sides),
        simulated=any(side.simulated for side in sides),
    )


def _table(a: Side, b: Side, compared: Compared, note: str = "") -> tuple[str, Table]:
    basis = BASES[compared.basis]
    if compared.freeze and compared.basis == "within":
        basis = "one run for a side: a freeze by itself has no interval; several rounds would tell"
    said = f"{compared.rounds[0]} and {compared.rounds[1]} runs; {basis}."
    rows = [row(figure) for figure in compared.figures]
    test = compared.point[0]
    title = f"{a.titles.get(test, test)}: {compared.label}"
    return title, Table(headings(b.letter), rows, f"{said} {note}".strip())


def _of_freezes(a: Side, b: Side, around: list[Compared]) -> list[Chart | tuple[str, Table]]:
    tests = list(dict.fromkeys(compared.point[0] for compared in around))
    parts: list[Chart | tuple[str, Table]] = [
        Chart(
            "Longest request against the freeze"
            + (f": {a.titles.get(test, test)}" if len(tests) > 1 else ""),
            freezes.longest([a, b], test),
            "A point for every run. What waits for the leg lies on the dotted line.",
        )
        for test in tests
    ]
    title = f"{b.letter} against A, around the freezes"
    parts.append(Chart(title, _forest(around, freezes.SHOWN), _READ_IT))
    parts += [
        _table(a, b, compared, freezes.NOTE if compared is around[-1] else "")
        for compared in around
    ]
    return parts


def _of_load(a: Side, b: Side, compared: Compared) -> list[Chart | tuple[str, Table]]:
    distributions = {
        f"{side.letter}: {side.name}": [run.histogram for run in side.points[compared.point]]
        for side in (a, b)
    }
    return [
        _table(a, b, compared),
        Chart(
            "Distribution of latencies",
            figures.distribution(distributions),
            "Lines: all runs merged from their bins; bands: from the lowest to the highest "
            "of the runs.",
        ),
    ]


_OF_LOADS = ("IOPS", "tps", "mean", "99 %", "99.9 %")
_READ_IT = (
    "Points: ratios; lines: 95 % intervals. Green is better, red worse, grey inside the noise."
)


def _forest(compareds: list[Compared], names: tuple[str, ...]) -> go.Figure:
    tests = len({compared.point[0] for compared in compareds})
    rows = []
    for compared in compareds:
        # Loads of two tests may have the same label.
        named = [compared.point[0]] * (tests > 1) + [compared.point[1]] * (len(compareds) > 1)
        rows += [
            (", ".join([*named, figure.name]), figure)
            for figure in compared.figures
            if figure.difference is not None and figure.name in names
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
    figure.add_vline(x=1, line={"color": colours.GREY, "width": 1, "dash": "dot"})
    figure.update_xaxes(**axes.multiple("as a multiple of A"))
    figure.update_yaxes(autorange="reversed", type="category")
    return figure
