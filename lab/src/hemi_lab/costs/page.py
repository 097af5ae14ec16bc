"""Costs as tables, and as one self-contained page."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go

from hemi_lab.costs.costs import Cost
from hemi_lab.costs.plan import CostPlan
from hemi_lab.report import colours
from hemi_lab.report.page import write_page
from hemi_lab.report.parts import Chart, Table
from hemi_lab.units import shown_count


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
    headings += [f"{years} years" for years in plan.years]
    note = (
        f"Energy with {plan.electricity.cooling_percent:g} % for cooling, "
        f"{plan.hours.load:g} h under load and {plan.hours.idle:g} h idle a day, at "
        f"{plan.electricity.price:g} {plan.currency} a kWh. ◂: the least. Prices do not change "
        "over the years; drives that fail, racks and people are not in it."
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
        f"a TB, {last} years",
        f"1,000 IOPS, {last} years",
    ]
    sources = "; ".join(
        f"{cost.option.name}: {cost.power.source}{' (simulated)' if cost.power.simulated else ''}"
        for cost in costs
    )
    note = f"Watts are of all drives, without cooling. Where they come from: {sources}."
    return Table(headings, rows, note)


def write(plan: CostPlan, costs: list[Cost], source: str, path: Path) -> None:
    """Writes the page."""
    demand = plan.demand
    header = [
        ("capacity", f"{demand.capacity / 1e12:,.4g} TB"),
        ("IOPS", f"{shown_count(demand.iops)}, {demand.read_percent:g} % read"),
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
            ("Costs", costs_table(plan, costs)),
            Chart("Purchase and energy", _bars(plan, costs)),
            ("Drives", drives_table(plan, costs)),
        ],
    )


def _bars(plan: CostPlan, costs: list[Cost]) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(height=140 + 50 * len(costs) * len(plan.years), barmode="stack")
    rows = [f"{cost.option.name}, {years} years" for cost in costs for years in plan.years]
    figure.add_bar(
        x=[cost.purchase for cost in costs for _ in plan.years],
        y=rows,
        name="purchase",
        orientation="h",
        marker={"color": colours.BLUE},
    )
    figure.add_bar(
        x=[cost.energy * years for cost in costs for years in plan.years],
        y=rows,
        name="energy",
        orientation="h",
        marker={"color": colours.ORANGE},
    )
    figure.update_xaxes(title=plan.currency)
    figure.update_yaxes(autorange="reversed", type="category")
    return figure
