"""Drives, energy and money by plain arithmetic. docs/lab/tco.md explains each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hemi_lab.costs.plan import CostPlan, Option
from hemi_lab.costs.power import Power
from hemi_lab.costs.wear import DAYS, Wear, wear

_ROUNDING = 1e-9
"""Quotients that only rounding lifts above a whole number count as that number."""


@dataclass(frozen=True)
class Cost:
    """The costs of one option."""

    option: Option
    power: Power
    drives: int
    decided_by: Literal["capacity", "IOPS"]
    for_capacity: int
    for_iops: int
    usable_bytes: float
    usable_iops: float | None
    """Rate of the demand's mix. `None` if the drive's is not known."""
    purchase: float
    watts_load: float
    """Watts of all drives, without cooling."""
    watts_idle: float
    kilowatt_hours: float
    """Energy of a year, cooling included."""
    energy: float
    """Cost of a year's energy, in the currency."""
    wear: Wear | None
    """`None`: it is not known what is written."""
    replaced: dict[int, float]
    """Cost of the drives that replace worn ones, by years."""
    totals: dict[int, float]
    """Purchase, replacements and energy, by years."""


def drive_requests(plan: CostPlan, option: Option) -> float:
    """Returns the mean number of requests to drives for each request of the demand."""
    reads = plan.demand.read_percent / 100
    return reads + (1 - reads) * option.redundancy.write_cost


def cost(plan: CostPlan, option: Option, power: Power) -> Cost:
    """Returns the costs of whole groups of drives, enough for both capacity and IOPS."""
    redundancy = option.redundancy
    each = option.capacity * option.usable_percent / 100
    data = _up(plan.demand.capacity / each)
    for_capacity = _up(data / redundancy.data) * redundancy.group
    requests = drive_requests(plan, option)
    for_iops = 0
    if power.iops and plan.demand.iops:
        needed = _up(plan.demand.iops * requests / power.iops)
        for_iops = _up(needed / redundancy.group) * redundancy.group
    drives = max(for_capacity, for_iops)
    purchase = drives * option.price
    day = drives * (power.active_watts * plan.hours.load + power.idle_watts * plan.hours.idle)
    kilowatt_hours = day / 1000 * (1 + plan.electricity.cooling_percent / 100) * DAYS
    energy = kilowatt_hours * plan.electricity.price
    worn = wear(plan, option, power, drives)
    replaced = {
        years: purchase * worn.replacements(years) if worn is not None else 0.0
        for years in plan.years
    }
    return Cost(
        option,
        power,
        drives,
        "IOPS" if for_iops > for_capacity else "capacity",
        for_capacity,
        for_iops,
        drives // redundancy.group * redundancy.data * each,
        drives * power.iops / requests if power.iops else None,
        purchase,
        drives * power.active_watts,
        drives * power.idle_watts,
        kilowatt_hours,
        energy,
        worn,
        replaced,
        {years: purchase + replaced[years] + years * energy for years in plan.years},
    )


def _up(quotient: float) -> int:
    return max(1, math.ceil(quotient * (1 - _ROUNDING)))
