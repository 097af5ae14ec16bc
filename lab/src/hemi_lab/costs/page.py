"""Costs as tables, and as one self-contained page."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go

from hemi_lab.costs.costs import Cost
from hemi_lab.costs.plan import CostPlan
from hemi_lab.costs.wear import written_per_day
from hemi_lab.report import colours
from hemi_lab.report.page import write_page
from hemi_lab.report.parts import Chart, Table
from hemi_lab.units import counted, shown_count


def money(value: float, currency: str) -> str:
    """Returns a text such as `12,345.60 EUR`, without cents from 100,000."""
    return f"{value:,.0f} {currency}" if value >= 100_000 else f"{value:,.2f} {currency}"


def costs_table(plan: CostPlan, costs: list[Cost]) -> Table:
    """Returns the table of purchases and costs."""
    least = {years: min(cost.totals[years] for cost in costs) for years in plan.years}
    rows = [
        [
            cost.option.name,
            str(cost.drives),
            cost.decided_by,
            money(cost.purchase, plan.currency),
            f"{cost.kilowatt_hours:,.1f}",
            money(cost.energy, plan.currency),
            *(
                money(cost.totals[years], plan.currency)
                + (" ◂" if cost.totals[years] == least[years] and len(costs) > 1 else "")
                for years in plan.years
            ),
        ]
        for cost in costs
    ]
    headings = ["", "drives", "for", "purchase", "kWh a year", "energy a year"]
    headings += [counted(years, "year") for years in plan.years]
    note = (
        f"Energy with {plan.electricity.cooling_percent:g} % for cooling, "
        f"{plan.hours.load:g} h under load and {plan.hours.idle:g} h idle a day, at "
        f"{plan.electricity.price:g} {plan.currency} a kWh. ◂: the least. Prices do not change "
        "over the years, also of drives that replace worn ones; drives that fail before, racks and "
        "people are not in it."
    )
    return Table(headings, rows, note)


def drives_table(plan: CostPlan, costs: list[Cost]) -> Table:
    """Returns the table of drives: the reason for their number, and their capacity and IOPS."""
    last = max(plan.years)
    rows = []
    for cost in costs:
        terabytes = cost.usable_bytes / 1e12
        rows.append(
            [
                cost.option.name,
                str(cost.for_capacity),
                str(cost.for_iops) if cost.for_iops else "–",
                f"{terabytes:,.4g} TB",
                "–" if cost.usable_iops is None else shown_count(cost.usable_iops),
                f"{cost.watts_load:,.4g} W",
                f"{cost.watts_idle:,.4g} W",
                money(cost.totals[last] / terabytes, plan.currency),
                "–"
                if not cost.usable_iops
                else money(cost.totals[last] / cost.usable_iops * 1000, plan.currency),
            ]
        )
    headings = [
        "",
        "for capacity",
        "for IOPS",
        "usable",
        "IOPS",
        "under load",
        "idle",
        f"a TB, {counted(last, 'year')}",
        f"1,000 IOPS, {counted(last, 'year')}",
    ]
    sources = "; ".join(
        f"{cost.option.name}: {cost.power.source}{' (simulated)' if cost.power.simulated else ''}"
        for cost in costs
    )
    note = f"Watts are of all drives, without cooling. Where they come from: {sources}."
    return Table(headings, rows, note)


def wear_table(plan: CostPlan, costs: list[Cost]) -> Table | None:
    """Returns the table of wear, or `None` if it is not known what is written."""
    rows = []
    for cost in costs:
        worn = cost.wear
        if worn is None:
            return None
        rated = worn.rated is not None
        rows.append(
            [
                cost.option.name,
                _bytes(worn.written),
                f"{worn.amplification:.3g}" if rated else "–",
                _bytes(worn.rated) if worn.rated else "none",
                "never" if worn.years is None else _years(worn.years),
                *(
                    f"{worn.replacements(years)} × {money(cost.purchase, plan.currency)}"
                    if worn.replacements(years)
                    else "none"
                    for years in plan.years
                ),
            ]
        )
    headings = ["", "written a day", "write ampl.", "rated for", "lasts"]
    headings += [f"replaced in {counted(years, 'year')}" for years in plan.years]
    sources = "; ".join(
        f"{cost.option.name}: {cost.wear.source}"
        for cost in costs
        if cost.wear is not None and cost.wear.rated is not None
    )
    note = (
        "Written a day: to each drive, with redundancy, spread evenly. Times the write "
        "amplification it counts against the rating."
    )
    return Table(headings, rows, f"{note} Where that comes from: {sources}." if sources else note)


def _bytes(size: float) -> str:
    """Returns a text such as `1.6 TB`, in decimal units, as drives are rated."""
    for unit, factor in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if size >= factor:
            return f"{size / factor:,.4g} {unit}"
    return f"{size / 1e6:,.4g} MB"


def _years(years: float) -> str:
    return f"{years:.1f} years" if years < 1000 else "over 1,000 years"


def write(plan: CostPlan, costs: list[Cost], source: str, path: Path) -> None:
    """Writes the page."""
    demand = plan.demand
    written = written_per_day(plan)
    header = [
        ("capacity", f"{demand.capacity / 1e12:,.4g} TB"),
        ("IOPS", f"{shown_count(demand.iops)}, {demand.read_percent:g} % read"),
        ("written", "not given" if written is None else f"{_bytes(written)} a day"),
        ("electricity", f"{plan.electricity.price:g} {plan.currency} a kWh"),
        ("cooling", f"{plan.electricity.cooling_percent:g} % of the drives' energy"),
        ("hours", f"{plan.hours.load:g} under load, {plan.hours.idle:g} idle a day"),
    ]
    write_page(
        "tco.html.j2",
        path,
        plan=plan,
        header=header,
        source=source,
        simulated=any(cost.power.simulated for cost in costs),
        parts=[
            Chart("Purchase, replacements and energy", _bars(plan, costs)),
            ("Costs", costs_table(plan, costs)),
            *([("Wear", worn)] if (worn := wear_table(plan, costs)) is not None else []),
            ("Drives", drives_table(plan, costs)),
        ],
    )


def _bars(plan: CostPlan, costs: list[Cost]) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(height=140 + 50 * len(costs) * len(plan.years), barmode="stack")
    rows = [
        f"{cost.option.name}, {counted(years, 'year')}" for cost in costs for years in plan.years
    ]
    figure.add_bar(
        x=[cost.purchase for cost in costs for _ in plan.years],
        y=rows,
        name="purchase",
        orientation="h",
        marker={"color": colours.BLUE},
    )
    replaced = [cost.replaced[years] for cost in costs for years in plan.years]
    if any(replaced):
        figure.add_bar(
            x=replaced,
            y=rows,
            name="replacements",
            orientation="h",
            marker={"color": colours.RED},
        )
    figure.add_bar(
        x=[cost.energy * years for cost in costs for years in plan.years],
        y=rows,
        name="energy",
        orientation="h",
        marker={"color": colours.ORANGE},
    )
    totals = [cost.totals[years] for cost in costs for years in plan.years]
    figure.add_scatter(
        x=totals,
        y=rows,
        text=[f" {money(total, plan.currency)}" for total in totals],
        mode="text",
        textposition="middle right",
        showlegend=False,
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.update_xaxes(range=[0, 1.25 * max(totals)])
    figure.update_xaxes(title=plan.currency)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    return figure
