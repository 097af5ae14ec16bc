"""Drives, energy and money: plain arithmetic, each step of it in docs/lab/tco.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hemi_lab.costs.plan import CostPlan, Option
from hemi_lab.costs.power import Power

DAYS = 365
"""Of a year."""

_ROUNDING = 1e-9
"""Quotients that rounding alone lifts above a whole number are that number."""


@dataclass(frozen=True)
class Cost:
    """One option's costs."""

    option: Option
    power: Power
    drives: int
    decided_by: Literal["capacity", "IOPS"]
    for_capacity: int
    for_iops: int
    usable_bytes: float
    usable_iops: float | None
    """Of the demand's mix; `None` where the drive's is not known."""
    purchase: float
    watts_load: float
    """All drives, without cooling."""
    watts_idle: float
    kilowatt_hours: float
    """A year, cooling included."""
    energy: float
    """A year, in the currency."""
    totals: dict[int, float]
    """Purchase and energy, by years."""


def drive_requests(plan: CostPlan, option: Option) -> float:
    """Requests to drives for each of the demand's, in the mean."""
    reads = plan.demand.read_percent / 100
    return reads + (1 - reads) * option.redundancy.write_cost


def cost(plan: CostPlan, option: Option, power: Power) -> Cost:
    """Whole groups of drives, as many as capacity and IOPS both need."""
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
        {years: purchase + years * energy for years in plan.years},
    )


def _up(quotient: float) -> int:
    return max(1, math.ceil(quotient * (1 - _ROUNDING)))
