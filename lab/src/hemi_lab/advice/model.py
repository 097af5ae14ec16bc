"""The JSON of `hemi advise`, as far as the page needs it (docs/commands/advise.md)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from hemi_lab import tool
from hemi_lab.errors import LabError, UsageError


class Distribution(BaseModel):
    """Latencies in seconds."""

    count: int
    p50: float
    p99: float
    p999: float
    p999_low: float
    p999_high: float
    max: float


class Known(BaseModel):
    """The deviation of a drive's model from a published figure."""

    preset: str
    figure: str | None
    off: float
    fitted: bool


class Deciding(BaseModel):
    """The class of requests that decided."""

    class_name: Annotated[str, Field(alias="class")]
    share: float
    above: float
    known: list[Known]


class Plain(BaseModel):
    """The plain mirror of a pair's legs."""

    latency: Distribution
    stalled_above: float
    stalled: int
    saved: int


class WhatIf(BaseModel):
    """A system under freezes of one leg."""

    leg: int
    latency: Distribution
    exposure_peak: int
    plain: Plain | None


class Wear(BaseModel):
    """The use of a leg, and what it is rated for."""

    written_a_day: float
    read_a_day: float
    write_amplification: float
    endurance: int | None
    years: float | None
    years_amplified: float | None
    of_workload: float | None
    replacements: int


class Leg(BaseModel):
    """A drive, or a stripe of drives, of a system."""

    preset: str
    drives: int
    owned: int
    price: float | None
    monthly: float | None
    date: str
    source: str
    flash_scale: int
    busy: float
    wear: Wear


class Cost(BaseModel):
    """Money over the years."""

    purchase: float
    monthly: float
    replacements: float
    drives: float
    kilowatt_hours_cooled: float
    energy: float
    total: float


class System(BaseModel):
    """A system with its figures and verdict."""

    rank: int
    name: str
    copies: int
    verdict: str
    why: list[str]
    frontier: bool
    cost: Cost
    latency: Distribution
    behind: float
    exposure_peak: int
    plain: Plain | None
    deciding: Deciding | None
    legs: list[Leg]
    what_if: WhatIf | None

    @property
    def judged(self) -> Distribution:
        """The latencies that were judged: with freezes if there are any."""
        return self.what_if.latency if self.what_if else self.latency

    @property
    def compared(self) -> Plain | None:
        """The plain mirror under the same conditions."""
        return self.what_if.plain if self.what_if else self.plain

    @property
    def lasts(self) -> float | None:
        """Years until the first leg is worn out, by the strict reading."""
        ends = [leg.wear.years_amplified for leg in self.legs]
        return min((end for end in ends if end is not None), default=None)


class Placed(BaseModel):
    """Freezes, as placed in the trace."""

    said: str


class Asked(BaseModel):
    """The request."""

    p999: float | None
    exposure: int | None
    budget: float | None
    years: float
    currency: str
    electricity: float | None
    cooling_percent: float
    have: str | None
    what_if: Placed | None
    seed: int


class Load(BaseModel):
    """The load that all systems served."""

    file: str
    requests: int
    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    duration: float
    volume: int
    classes: list[tuple[str, float]]


class LeftOut(BaseModel):
    """Something that was not considered, and the reason."""

    name: str
    why: str


class Advice(BaseModel):
    """An advice."""

    load: Load
    asked: Asked
    assumptions: list[str]
    cautions: list[str]
    systems: list[System]
    left_out: list[LeftOut]


def advice(path: Path, options: list[str]) -> Advice:
    """Returns the advice in a JSON file, or that on a trace, which `hemi advise` gives.

    `options` are those of `hemi advise`, for traces only."""
    if path.suffix == ".json":
        if options:
            raise UsageError(
                f"{path}: {' '.join(options)}: the advice is given already",
                "Give the options to hemi advise, or name a trace.",
            )
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: {error}", "Name a file of hemi advise --json.") from error
    else:
        hemi = tool.find("hemi", "HEMI", "Install hemi, or set HEMI to its path.")
        text = tool.run([hemi, "advise", os.fspath(path), "--json", *options]).output
    try:
        return Advice.model_validate(json.loads(text))
    except (json.JSONDecodeError, ValidationError, KeyError) as error:
        raise LabError(
            f"{path}: is no advice: {str(error).splitlines()[0]}",
            "Name a file of hemi advise --json of the same version.",
        ) from error
