"""The keys of a cost plan."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from hemi_lab.errors import UsageError
from hemi_lab.plans.load import said
from hemi_lab.units import Size
from hemi_lab.workload import Load, Strict

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Demand(Strict):
    """The demand on all drives together."""

    capacity: Annotated[Size, Field(gt=0)]
    """Usable bytes."""
    iops: NotNegative = 0.0
    read_percent: Annotated[float, Field(ge=0, le=100)] = 100.0
    """Share of reads. With redundancy a write is more than one request to the drives."""
    written_per_day: Annotated[Size | None, Field(ge=0)] = None
    """Bytes written in a day, before redundancy. They wear flash."""
    write_size: Annotated[Size | None, Field(gt=0)] = None
    """Mean bytes of a write. With `iops` it gives `written_per_day`."""

    @model_validator(mode="after")
    def _one_way(self) -> Demand:
        if self.written_per_day is not None and self.write_size is not None:
            raise ValueError("written_per_day and write_size: give one, the other follows from it")
        if self.write_size is not None and not self.iops:
            raise ValueError("write_size: without iops it does not tell what is written")
        return self


class Electricity(Strict):
    """Prices of energy."""

    price: NotNegative
    """Price of a kilowatt-hour, in the plan's currency."""
    cooling_percent: NotNegative = 50.0
    """Energy for cooling, as a percentage of the drives' own."""


class Hours(Strict):
    """Hours of a day. The drives are off for the rest of the 24."""

    load: Annotated[float, Field(ge=0, le=24)] = 8.0
    idle: Annotated[float, Field(ge=0, le=24)] = 16.0

    @model_validator(mode="after")
    def _of_a_day(self) -> Hours:
        if self.load + self.idle > 24 + 1e-9:
            raise ValueError(f"{self.load + self.idle:g} hours under load and idle; a day has 24")
        return self


class Mirror(Strict):
    """`copies` copies of everything. One copy is no redundancy."""

    kind: Literal["mirror"] = "mirror"
    copies: Annotated[int, Field(ge=1, le=8)] = 1

    @property
    def group(self) -> int:
        """Drives that are bought together."""
        return self.copies

    @property
    def data(self) -> int:
        """Drives of a group whose capacity is usable."""
        return 1

    @property
    def write_cost(self) -> float:
        """Requests to drives for each write."""
        return float(self.copies)

    @property
    def written(self) -> float:
        """Bytes written to drives for each byte."""
        return float(self.copies)


class Parity(Strict):
    """Groups of data and parity drives: RAID-5 has one parity drive, RAID-6 two."""

    kind: Literal["parity"]
    data: Annotated[int, Field(ge=2, le=64)]
    parity: Annotated[int, Field(ge=1, le=3)] = 1
    write_requests: Annotated[float | None, Field(ge=1)] = None
    """Requests for each small write. By default old data and parity are read and new ones
    written."""

    @property
    def group(self) -> int:
        """Drives that are bought together."""
        return self.data + self.parity

    @property
    def write_cost(self) -> float:
        """Requests to drives for each write: 4 for RAID-5, 6 for RAID-6."""
        return self.write_requests or 2.0 * (1 + self.parity)

    @property
    def written(self) -> float:
        """Bytes written to drives for each byte of small writes: its own and those of parity."""
        return 1.0 + self.parity


class FromRun(Strict):
    """Energy and IOPS from a simulated run's step."""

    folder: Path
    """Directory of the run, relative to the plan's."""
    test: str
    label: str


class FromPreset(Strict):
    """Energy and IOPS from a short run of a preset's model, idle and then under a load."""

    name: str
    """Name of the preset, or path of its file, relative to the plan's directory."""
    load: Load
    scale: Annotated[int | None, Field(ge=1)] = None
    """Divisor of the flash's capacity. By default 16, or less if the flash would not be as fast as
    the whole drive's."""
    precondition: Literal["none", "sequential", "steady"] = "steady"
    seconds: Annotated[float, Field(ge=0.1, le=600)] = 5.0


class Option(Strict):
    """A drive (or a small system that is bought as one) with its price, power and redundancy."""

    name: str
    price: NotNegative
    """Price of one, in the plan's currency."""
    capacity: Annotated[Size, Field(gt=0)]
    usable_percent: Annotated[float, Field(gt=0, le=100)] = 100.0
    """Usable share of the capacity. Space for over-provisioning or growth is not usable."""
    iops: Positive | None = None
    """Rate of one with the demand's mix, in steady state."""
    rated_writes: Annotated[Size | None, Field(gt=0)] = None
    """Bytes that one is rated for (TBW). Without it, it does not wear."""
    rated_amplification: Annotated[float, Field(ge=1)] = 1.0
    """Write amplification that the rating already has in it."""
    write_amplification: Annotated[float | None, Field(ge=1)] = None
    """Bytes written to flash for each byte of the load. By default as the run or model has it."""
    service_years: Positive | None = None
    """Years after which one is replaced, however little it is worn."""
    idle_watts: NotNegative | None = None
    active_watts: NotNegative | None = None
    run: FromRun | None = None
    preset: FromPreset | None = None
    redundancy: Annotated[Mirror | Parity, Field(discriminator="kind")] = Mirror()

    @model_validator(mode="after")
    def _known(self) -> Option:
        if self.run and self.preset:
            raise ValueError("run and preset: energy is from one of them")
        if not self.preset:
            if self.idle_watts is None and self.run is None:
                raise ValueError("idle_watts is missing, and there is neither run nor preset")
            if self.active_watts is None and self.run is None:
                raise ValueError("active_watts is missing, and there is neither run nor preset")
        return self


class CostPlan(Strict):
    """A cost plan: a demand, and the options to meet it."""

    title: str
    currency: str = "EUR"
    years: Annotated[tuple[Annotated[int, Field(ge=1, le=20)], ...], Field(min_length=1)] = (3, 5)
    demand: Demand
    electricity: Electricity
    hours: Hours = Hours()
    options: Annotated[list[Option], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_differ(self) -> CostPlan:
        names = [option.name for option in self.options]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"options: two are called {name!r}; give each a name of its own")
        return self


def load_plan(path: Path) -> CostPlan:
    """Loads a plan from a file."""
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", "Name a cost plan.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", "A cost plan is a TOML file.") from error
    try:
        return CostPlan.model_validate(table)
    except ValidationError as error:
        listed = "\n".join(f"{path}: {said(problem, table)}" for problem in error.errors())
        raise UsageError(listed, "docs/lab/tco.md says what a cost plan may have.") from error
