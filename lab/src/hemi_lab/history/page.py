"""A history as tables, and as one self-contained page."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hemi_lab.history.series import Point, Series
from hemi_lab.report import axes, headline
from hemi_lab.report.colours import BLUE, GREEN, RED
from hemi_lab.report.page import write_page
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.statistics.changes import LEAST, Change
from hemi_lab.units import counted, shown_time, signed

_RANKS = ((0.5, "50 %"), (0.99, "99 %"), (0.999, "99.9 %"))

NOTE = (
    "Step: from this run on the level differs from the one before, by its geometric mean and its "
    f"95 % interval, widened for the choice of the place; below {LEAST:.0%} it is none. ± 95 % is "
    "of the run alone, without what differs from run to run."
)


def table(one: Series) -> Table:
    """Returns a row for each run, with the steps where they are."""
    _, shown, _ = headline.SHOWN[one.kind]
    rates = {change.at: change for change in one.of_rate}
    slow = {change.at: change for change in one.of_p99}
    rows = []
    for number, point in enumerate(one.points):
        bar = point.bar
        within = (bar.high - bar.low) / 2 / bar.value if bar.value else math.nan
        rows.append(
            [
                f"{point.reader.result.started:%Y-%m-%d %H:%M}",
                shown(bar.value),
                "–" if math.isnan(within) else f"{within:.1%}",
                _step(rates.get(number), more_is_better=one.kind != "longest"),
                *(_ranked(bar, quantile) for quantile, _ in _RANKS),
                shown_time(point.maximum),
                _step(slow.get(number), more_is_better=False),
                "; ".join(point.notes),
            ]
        )
    title, _, _ = headline.SHOWN[one.kind]
    headings = [
        "",
        title,
        "± 95 %",
        "step",
        *(name for _, name in _RANKS),
        "max",
        "step of 99 %",
        "",
    ]
    return Table(headings, rows, NOTE)


def _ranked(bar: headline.Bar, quantile: float) -> str:
    known = bar.percentiles.get(quantile)
    return "–" if known is None else shown_time(known.value)


def _step(change: Change | None, more_is_better: bool) -> str:
    if change is None:
        return ""
    found = change.found
    word = "better" if (found.difference > 0) == more_is_better else "worse"
    return f"{word}: {_share(found.difference)}\n{_share(found.low)} to {_share(found.high)}"


def _share(value: float) -> str:
    return signed(f"{100 * value:+.1f} %")


def said(one: Series) -> str:
    """Returns the outcome in a sentence."""
    if len(one.points) < 4:
        return f"{counted(len(one.points), 'run')}: steps are told from four on."
    steps = len(one.of_rate) + len(one.of_p99)
    if not steps:
        runs = counted(len(one.points), "run")
        return f"{runs}, and no step: they differ by their own scatter alone."
    return f"{counted(len(one.points), 'run')}, {counted(steps, 'step')}."


def chart(one: Series) -> Chart:
    """Returns the figure over the runs, with intervals, levels and steps."""
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.07, row_heights=[1.0, 1.0]
    )
    title, _, axis = headline.SHOWN[one.kind]
    x = list(range(1, len(one.points) + 1))
    values = [point.bar.value for point in one.points]
    names = [f"{point.reader.result.started:%Y-%m-%d %H:%M}" for point in one.points]
    figure.add_scatter(
        x=x,
        y=values,
        name=title,
        mode="markers",
        marker={"size": 8, "color": [_colour(point) for point in one.points]},
        error_y=headline.errors([(p.bar.value, p.bar.low, p.bar.high) for p in one.points]),
        text=names,
        hovertemplate="%{text}: %{y}<extra></extra>",
        row=1,
        col=1,
    )
    _levels(figure, values, one.of_rate, BLUE, 1, one.kind != "longest")
    for quantile, name, colour, symbol in headline.RANKS:
        ranked = [point.bar.percentiles.get(quantile) for point in one.points]
        known = [(n, one_) for n, one_ in zip(x, ranked, strict=True) if one_ is not None]
        if not known:
            continue
        figure.add_scatter(
            x=[n for n, _ in known],
            y=[one_.value for _, one_ in known],
            error_y=headline.errors([(r.value, r.low, r.high) for _, r in known]),
            name=f"{name} of latency",
            mode="markers",
            marker={"size": 7, "color": colour, "symbol": symbol},
            row=2,
            col=1,
        )
        if quantile == 0.99 and len(known) == len(x):
            _levels(figure, [one_.value for _, one_ in known], one.of_p99, colour, 2, False)
    every = max(1, math.ceil(len(x) / 8))
    figure.update_yaxes(**{**axis, "title": title}, row=1, col=1)
    figure.update_yaxes(**axes.seconds("latency"), row=2, col=1)
    figure.update_xaxes(range=[0.5, len(x) + 0.5], tickvals=x[::every], ticktext=names[::every])
    figure.update_layout(height=440, showlegend=True, hovermode="closest")
    note = (
        "Points: runs, with their 95 % intervals; red: a failed audit or a partial run. Lines: "
        "levels; dotted: steps."
    )
    return Chart(one.name, figure, note)


def _colour(point: Point) -> str:
    result = point.reader.result
    return RED if result.partial or result.failed_checks() else BLUE


def _levels(
    figure: go.Figure,
    values: list[float],
    steps: list[Change],
    colour: str,
    row: int,
    more_is_better: bool,
) -> None:
    """Adds the geometric mean of each level, and a line at each step."""
    ends = [0, *(change.at for change in steps), len(values)]
    for begin, end in pairwise(ends):
        level = math.exp(sum(math.log(v) for v in values[begin:end] if v > 0) / (end - begin))
        figure.add_scatter(
            x=[begin + 0.6, end + 0.4],
            y=[level, level],
            mode="lines",
            line={"color": colour, "width": 1.4},
            showlegend=False,
            hoverinfo="skip",
            row=row,
            col=1,
        )
    for change in steps:
        colour_of = GREEN if (change.found.difference > 0) == more_is_better else RED
        figure.add_vline(
            x=change.at + 0.5,
            line={"color": colour_of, "dash": "dot", "width": 1.4},
            row=row,
            col=1,
        )
        figure.add_annotation(
            text=_share(change.found.difference),
            x=change.at + 0.5,
            y=1,
            xref="x" if row == 1 else "x2",
            yref="y domain" if row == 1 else "y2 domain",
            xanchor="left",
            yanchor="top",
            showarrow=False,
            font={"size": 11, "color": colour_of},
        )


def write(found: list[Series], path: Path) -> None:
    """Writes the page, with a section for each target and plan."""
    sections: dict[tuple[str, str], list[Part]] = {}
    for one in found:
        parts = sections.setdefault((one.target, one.plan), [])
        parts += [chart(one), (said(one), table(one))]
    readers = [point.reader for one in found for point in one.points]
    write_page(
        "history.html.j2",
        path,
        title="History: " + ", ".join(dict.fromkeys(one.target for one in found)),
        sections=[(f"{target}: {plan}", parts) for (target, plan), parts in sections.items()],
        simulated=any(reader.result.simulated for reader in readers),
        first=min(reader.result.started for reader in readers),
        last=max(reader.result.started for reader in readers),
        readers={reader.folder: reader for reader in readers}.values(),
    )
