"""The comparison in one table: a row for each test, and one for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hemi_lab.comparison.figures import Compared, Figure
from hemi_lab.comparison.shown import shown
from hemi_lab.comparison.sides import Side
from hemi_lab.report import headline
from hemi_lab.report.parts import Table

_RATES = ("IOPS", "tps", "scan", "longest request")
"""The figure that stands for a test's throughput. Of faults and scans it is a time."""

_LATENCIES = ("99 %", "99 % meanwhile", "mean")

_WORDS = {True: "better", False: "worse"}


def table(sides: Sequence[Side], found: dict[str, list[Compared]]) -> Table:
    """Returns the table. Each test stands with the load of its headline."""
    chart = _in_chart(sides)
    labels = {test: row.label for test, row in chart.items()}
    rows = []
    for letter, compareds in found.items():
        chosen = _chosen(compareds, labels)
        rates = [_first(compared, _names(chart, compared)) for compared in chosen]
        latencies = [_first(compared, _LATENCIES) for compared in chosen]
        for compared, rate, latency in zip(chosen, rates, latencies, strict=True):
            test = compared.point[0]
            name = f"{sides[0].titles.get(test, test)}, {compared.label}"
            rows.append([_prefixed(name, letter, found), *_cells(rate), *_cells(latency)[2:]])
        if len(chosen) > 1:
            every = [
                _prefixed("all, geometric mean", letter, found),
                "",
                "",
                *_whole(rates),
                *_whole(latencies),
            ]
            rows.append(every)
    other = next(iter(found)) if len(found) == 1 else "other"
    headings = ["", "A", other, f"{other} ÷ A", "", f"99 %, {other} ÷ A", ""]
    note = (
        "Each test at its point of most requests a second; of freezes the longest request, of "
        "scans their time. Better: more throughput or less time, by the whole 95 % interval. No "
        "difference: inside the noise. Where there is no 99th percentile, the mean stands."
    )
    return Table(headings, rows, note)


def _prefixed(name: str, letter: str, found: dict[str, list[Compared]]) -> str:
    return f"{letter}: {name}" if len(found) > 1 else name


def _in_chart(sides: Sequence[Side]) -> dict[str, headline.Row]:
    """Returns what stands for each test in the chart above the table."""
    systems = [headline.System(side.letter, side.readers) for side in sides]
    return {row.test: row for row in headline.rows(systems)}


def _names(chart: dict[str, headline.Row], compared: Compared) -> Sequence[str]:
    """Returns the names of the figures that may stand for a point, the best first."""
    row = chart.get(compared.point[0])
    return ("rate", *_RATES) if row is not None and row.kind == "bytes" else _RATES


def _chosen(compareds: list[Compared], labels: dict[str, str]) -> list[Compared]:
    """Returns one point of each test: its longest freeze, or its headline's load."""
    found: dict[str, Compared] = {}
    for compared in compareds:
        test, label = compared.point
        if compared.freeze:
            # They come in order of their length.
            found[test] = compared
        elif test not in found and label == labels.get(test, label):
            found[test] = compared
    return list(found.values())


def _first(compared: Compared, names: Sequence[str]) -> Figure | None:
    by_name = {figure.name: figure for figure in compared.figures}
    known = [by_name[name] for name in names if name in by_name and by_name[name].a is not None]
    return known[0] if known else None


def ratio(figure: Figure) -> str:
    """Returns a text such as `× 2.53`, of B by A."""
    if figure.difference is None:
        return "–"
    return f"× {1 + figure.difference:.3g}" if figure.difference < 999 else "× over 1,000"


def _cells(figure: Figure | None) -> list[str]:
    if figure is None:
        return ["–", "–", "–", "not known"]
    return [shown(figure, figure.a), shown(figure, figure.b), ratio(figure), _said(figure)]


def _said(figure: Figure) -> str:
    if figure.verdict == "unknown":
        return "not known"
    return _WORDS[figure.better] if figure.better is not None else "no difference"


def _whole(figures: Sequence[Figure | None]) -> list[str]:
    """Returns the geometric mean of the ratios of like figures, and how many are which."""
    known = [figure for figure in figures if figure is not None]
    ratios = [
        1 + figure.difference
        for figure in known
        if figure.difference is not None and figure.difference > -1
    ]
    said = [_said(figure) for figure in known]
    words = [
        f"{said.count(word)} {word}"
        for word in ("better", "worse", "no difference", "not known")
        if word in said
    ]
    if len(ratios) < len(known) or len({figure.kind == "time" for figure in known}) > 1:
        # A rate and a time have no mean ratio, nor has a figure that is zero.
        return ["–", ", ".join(words)]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    return [f"× {mean:.3g}" if ratios else "–", ", ".join(words)]
