"""Advice as one self-contained page: cost against latency, a table, and the reasons."""

from __future__ import annotations

import math
from pathlib import Path

import plotly.graph_objects as go

from hemi_lab.advice.model import Advice, Deciding, Known, Leg, System
from hemi_lab.report import axes, colours
from hemi_lab.report.page import write_page
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.units import counted, shown_count, shown_size, shown_time

_COLOURS = {"meets": colours.GREEN, "close": colours.ORANGE, "misses": colours.GREY}
_SYMBOLS = {1: "circle", 2: "diamond"}
_FAR = 100.0
"""Years beyond which an end of life is no figure."""
_TOLD = 5
"""Systems whose reasons are told."""


def write(all_advice: list[Advice], path: Path) -> None:
    """Writes the page of one or several pieces of advice."""
    sections = [
        {
            "title": Path(one.load.file).name,
            "header": _header(one),
            "cautions": one.cautions,
            "parts": parts(one),
            "told": [_told(one, system) for system in one.systems[:_TOLD]],
            "assumptions": one.assumptions,
            "left_out": [(left.name, left.why) for left in one.left_out],
        }
        for one in all_advice
    ]
    title = "Which drives to buy"
    write_page("advice.html.j2", path, title=title, sections=sections)


def parts(advice: Advice) -> list[Part]:
    """Returns the charts and tables of an advice."""
    found: list[Part] = [
        Chart("Cost against latency", pareto(advice), _pareto_note(advice)),
        ("Systems", systems_table(advice)),
    ]
    if advice.asked.what_if is not None:
        found.append(Chart("What freezes change", what_if(advice), advice.asked.what_if.said))
    found.append(("Drives", drives_table(advice)))
    return found


def _pareto_note(advice: Advice) -> str:
    note = (
        f"Each mark is a system: its cost over {advice.asked.years:g} years against the 99.9th "
        "percentile of its latencies. Circles have one copy of everything, diamonds two. The line "
        "is the frontier: nothing is both cheaper and faster."
    )
    if advice.asked.what_if is not None:
        note += " Latencies are with the freezes, on the leg where they are worst."
    return note


def pareto(advice: Advice) -> go.Figure:
    """Returns the chart of cost against latency, with the frontier."""
    figure = go.Figure()
    figure.update_layout(height=520)
    front = sorted(
        (system for system in advice.systems if system.frontier), key=lambda one: one.cost.total
    )
    figure.add_scatter(
        x=[system.cost.total for system in front],
        y=[system.judged.p999 for system in front],
        mode="lines",
        line={"color": colours.BLUE, "shape": "hv", "width": 2},
        name="frontier",
        hoverinfo="skip",
    )
    for verdict, colour in _COLOURS.items():
        for copies, symbol in _SYMBOLS.items():
            own = [
                system
                for system in advice.systems
                if system.verdict == verdict and min(system.copies, 2) == copies
            ]
            if not own:
                continue
            figure.add_scatter(
                x=[system.cost.total for system in own],
                y=[system.judged.p999 for system in own],
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 9, "line": {"width": 1}},
                name=f"{verdict}, {copies} {'copy' if copies == 1 else 'copies'}",
                text=[system.name for system in own],
                hovertemplate="%{text}<br>%{x:,.0f} · %{y:.3s}s<extra></extra>",
            )
    target, budget = advice.asked.p999, advice.asked.budget
    line = {"color": colours.RED, "width": 1.5}
    if target is not None:
        name = f"target {shown_time(target)}"
        figure.add_hline(y=target, line={**line, "dash": "dot"}, name=name, showlegend=True)
    if budget is not None:
        name = f"budget {budget:,.0f} {advice.asked.currency}"
        figure.add_vline(x=budget, line={**line, "dash": "dash"}, name=name, showlegend=True)
    _label(figure, front)
    figure.update_xaxes(
        title=f"{advice.asked.currency} over {advice.asked.years:g} years", type="log"
    )
    latencies = [system.judged.p999 for system in advice.systems]
    if target is not None:
        latencies.append(target)
    room = _with_room_below(latencies)
    figure.update_yaxes(**axes.seconds("99.9th percentile"), range=room)
    return figure


def _label(figure: go.Figure, front: list[System]) -> None:
    """Names the frontier's systems. The page's script places the names where they cover nothing."""
    for system in front:
        if not (system.cost.total > 0 and system.judged.p999 > 0):
            # A logarithmic axis has no place for it.
            continue
        figure.add_annotation(
            name="frontier",
            text=system.name,
            x=math.log10(system.cost.total),
            y=math.log10(system.judged.p999),
            xanchor="right",
            yanchor="middle",
            showarrow=True,
            arrowhead=0,
            arrowwidth=0.8,
            arrowcolor=colours.BLUE,
            standoff=5,
            font={"size": 11},
        )


def _with_room_below(latencies: list[float]) -> list[float]:
    """Returns the range of a logarithmic axis with room for names under the lowest mark."""
    shown = [math.log10(latency) for latency in latencies if latency > 0] or [0.0]
    low, high = min(shown), max(shown)
    span = max(high - low, 0.5)
    return [low - 0.2 * span, high + 0.06 * span]


def what_if(advice: Advice) -> go.Figure:
    """Returns a chart of p99.9 without and with freezes, of hemi and of plain mirrors."""
    shown = [system for system in advice.systems if system.what_if][:12]
    figure = go.Figure()
    figure.update_layout(height=140 + 52 * len(shown), barmode="group")
    names = [system.name for system in shown]
    rows = [
        ("without freezes", colours.BLUE, [system.latency.max for system in shown]),
        ("with freezes", colours.GREEN, [system.judged.max for system in shown]),
        (
            "plain mirror with freezes",
            colours.GREY,
            [system.compared.latency.max if system.compared else None for system in shown],
        ),
    ]
    for name, colour, values in rows:
        figure.add_bar(x=values, y=names, name=name, orientation="h", marker={"color": colour})
    figure.update_xaxes(**axes.seconds("longest request"))
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def systems_table(advice: Advice) -> Table:
    """Returns the table of systems, best first."""
    years = f"{advice.asked.years:g} years"
    headings = ["", "buy", years, "50 %", "99 %", "99.9 %", "longest"]
    headings += ["saved", "exposed", "lasts", "kWh a year", "verdict"]
    rows = [
        [
            f"{system.rank}. {system.name}{' *' if system.frontier else ''}",
            _price(system),
            f"{system.cost.total:,.0f}",
            *(
                shown_time(latency)
                for latency in (
                    system.judged.p50,
                    system.judged.p99,
                    system.judged.p999,
                    system.judged.max,
                )
            ),
            _saved(system),
            shown_size(system.exposure_peak) if system.plain else "–",
            _years(system.lasts),
            f"{system.cost.kilowatt_hours_cooled:,.0f}",
            ", ".join([system.verdict, *system.why]),
        ]
        for system in advice.systems
    ]
    note = (
        "*: on the frontier. Saved: of the writes that a plain mirror of the same legs stalls, the "
        "share that hemi does not. Lasts: until the first drive has programmed as many bytes as "
        f"it is rated for. Energy with {advice.asked.cooling_percent:g} % for cooling."
    )
    return Table(headings, rows, note)


def drives_table(advice: Advice) -> Table:
    """Returns the table of drives: price, source, and use in their first system."""
    seen: dict[str, Leg] = {}
    for system in advice.systems:
        for leg in system.legs:
            seen.setdefault(leg.preset, leg)
    rows = [
        [
            leg.preset,
            f"{leg.price:,.2f}" if leg.price is not None else f"{leg.monthly or 0:,.2f} a month",
            leg.date,
            f"{leg.wear.endurance / leg.drives / 1e12:,.4g} TB" if leg.wear.endurance else "–",
            str(leg.flash_scale) if leg.flash_scale > 1 else "–",
            leg.source,
        ]
        for leg in seen.values()
    ]
    headings = ["", f"price, {advice.asked.currency}", "of", "rated", "flash ÷", "source"]
    return Table(headings, rows, "Flash ÷: the divisor of the flash's capacity in the model.")


def _header(advice: Advice) -> list[tuple[str, str]]:
    load, asked = advice.load, advice.asked
    header = [
        ("requests", f"{shown_count(load.requests)} in {shown_time(load.duration)}"),
        ("reads", f"{shown_count(load.reads)}, {shown_size(load.read_bytes)}"),
        ("writes", f"{shown_count(load.writes)}, {shown_size(load.written_bytes)}"),
        ("mostly", ", ".join(f"{name} {share:.0%}" for name, share in load.classes[:3])),
        ("volume", shown_size(load.volume)),
    ]
    if asked.p999 is not None:
        header.append(("target", f"p99.9 at most {shown_time(asked.p999)}"))
    if asked.budget is not None:
        header.append(("budget", f"{asked.budget:,.0f} {asked.currency}"))
    if asked.have is not None:
        header.append(("there already", asked.have))
    if asked.electricity is not None:
        header.append(("electricity", f"{asked.electricity:g} {asked.currency} a kWh"))
    header.append(("seed", str(asked.seed)))
    return header


def _told(advice: Advice, system: System) -> tuple[str, list[str]]:
    """Returns the name of a system and its reasons in sentences."""
    said = []
    if system.why:
        said.append(f"{system.verdict}: {', '.join(system.why)}.")
    if system.deciding:
        said.append(_decided(system.deciding))
    plain = system.compared
    if plain:
        said.append(
            f"A plain mirror of the two has a 99.9th percentile of "
            f"{shown_time(plain.latency.p999)}, and its longest request takes "
            f"{shown_time(plain.latency.max)}. It answers {shown_count(plain.stalled)} of "
            f"{shown_count(advice.load.writes)} writes later than "
            f"{shown_time(plain.stalled_above)}; {shown_count(plain.saved)} of those are saved."
        )
    said += [_leg(leg) for leg in system.legs]
    return f"{system.rank}. {system.name}", said


def _decided(deciding: Deciding) -> str:
    known = "; ".join(dict.fromkeys(_known(one) for one in deciding.known))
    return (
        f"Decided by {deciding.class_name}: {deciding.share:.0%} of the time above "
        f"{shown_time(deciding.above)}. Models: {known}."
    )


def _known(known: Known) -> str:
    if known.figure is None:
        return f"{known.preset} not validated for such requests"
    fitted = ", fitted" if known.fitted else ""
    return f"{known.preset} {known.off:+.0%} ({known.figure}{fitted})"


def _leg(leg: Leg) -> str:
    wear = leg.wear
    drives = "" if leg.drives == 1 else f"{leg.drives} × "
    said = (
        f"{drives}{leg.preset}: busy {leg.busy:.1%} of the time, "
        f"{shown_size(wear.written_a_day)} written a day, "
        f"amplified {wear.write_amplification:.2f} times"
    )
    if wear.years_amplified is not None:
        said += f", rated for {_years(wear.years_amplified)} of that"
    if wear.replacements:
        said += f", replaced {counted(wear.replacements, 'time')}"
    if wear.of_workload is not None:
        said += f", {wear.of_workload:.1%} of the rated workload"
    return said + "."


def _price(system: System) -> str:
    cost = system.cost
    parts = [f"{cost.purchase:,.2f}"] if cost.purchase else []
    if cost.monthly:
        parts.append(f"{cost.monthly:,.2f} a month")
    return " + ".join(parts) or "0"


def _saved(system: System) -> str:
    plain = system.compared
    if plain is None:
        return "–"
    return f"{plain.saved / plain.stalled:.0%}" if plain.stalled else "none stalled"


def _years(years: float | None) -> str:
    if years is None:
        return "–"
    return f"{years:.3g} years" if years < _FAR else f"over {_FAR:.0f} years"
