"""Wear of flash: what the demand writes to each drive, against what the drive is rated for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hemi_lab.costs.plan import CostPlan, Option
from hemi_lab.costs.power import Power

DAYS = 365
"""Days of a year."""

_ROUNDING = 1e-9
"""Quotients that only rounding lifts above a whole number count as that number."""


@dataclass(frozen=True)
class Wear:
    """The writes to one drive of an option, and its life."""

    written: float
    """Bytes that the system writes to the drive in a day."""
    amplification: float
    """Bytes written to flash for each of them."""
    source: str
    """Origin of the amplification."""
    rated: float | None
    """Bytes the drive is rated for, or `None` if it does not wear."""
    service: float | None
    """Years after which the drive is replaced in any case."""

    @property
    def flash(self) -> float:
        """Bytes of a day that count against the rating."""
        return self.written * self.amplification

    @property
    def years(self) -> float | None:
        """Years until the drive has to be replaced, or `None` if it never has."""
        worn = self.rated / self.flash / DAYS if self.rated and self.flash else None
        known = [value for value in (worn, self.service) if value is not None]
        return min(known) if known else None

    def replacements(self, years: int) -> int:
        """Returns how often each drive is replaced within these years."""
        life = self.years
        if life is None:
            return 0
        return max(0, math.ceil(years / life * (1 - _ROUNDING)) - 1)


def written_per_day(plan: CostPlan) -> float | None:
    """Returns the bytes that the demand writes in a day, or `None` if they are not known."""
    demand = plan.demand
    if demand.written_per_day is not None:
        return float(demand.written_per_day)
    if demand.write_size is None or not demand.iops:
        return None
    writes = demand.iops * (1 - demand.read_percent / 100)
    return writes * demand.write_size * plan.hours.load * 3600


def wear(plan: CostPlan, option: Option, power: Power, drives: int) -> Wear | None:
    """Returns the wear of each drive, or `None` if it is not known what is written.

    Writes are spread over all drives evenly."""
    written = written_per_day(plan)
    if written is None:
        return None
    amplification, source = 1.0, "not known: taken as 1"
    if option.rated_writes is None:
        source = "–"
    elif option.write_amplification is not None:
        amplification, source = option.write_amplification, "given"
    elif power.write_amplification is not None:
        amplification, source = power.write_amplification, power.source
    return Wear(
        written * option.redundancy.written / drives,
        amplification / option.rated_amplification,
        source,
        None if option.rated_writes is None else float(option.rated_writes),
        option.service_years,
    )
