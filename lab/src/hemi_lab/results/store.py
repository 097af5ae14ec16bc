"""Writes a run while it goes on, and reads it again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, ValidationError

from hemi_lab.errors import LabError, UsageError
from hemi_lab.results.model import VERSION, Found, Freeze, Result, Round, Stall
from hemi_lab.statistics.histogram import SCHEMA as BINS
from hemi_lab.statistics.histogram import Histogram
from hemi_lab.steps import CAUSES, INTERVALS, StepResult

_STEP = {"step": pl.Int64}

STEPS = {
    "step": pl.Int64,
    "test": pl.String,
    "stage": pl.String,
    "label": pl.String,
    "round": pl.Int64,
    "read_percent": pl.Float64,
    "size_bytes": pl.Float64,
    "pattern": pl.String,
    "threads": pl.Int64,
    "queue_depth": pl.Int64,
    "span_percent": pl.Float64,
    "start_seconds": pl.Float64,
    "length_seconds": pl.Float64,
    "count": pl.Int64,
    "bytes": pl.Int64,
    "iops": pl.Float64,
    "bytes_per_second": pl.Float64,
    "mean_seconds": pl.Float64,
    "standard_deviation_seconds": pl.Float64,
    "p50_seconds": pl.Float64,
    "p95_seconds": pl.Float64,
    "p99_seconds": pl.Float64,
    "p999_seconds": pl.Float64,
    "p9999_seconds": pl.Float64,
    "p99999_seconds": pl.Float64,
    "maximum_seconds": pl.Float64,
    "issued": pl.Int64,
    "completed": pl.Int64,
    "in_system": pl.Float64,
    "rate_by_stay": pl.Float64,
    "lateness_p50_seconds": pl.Float64,
    "lateness_p99_seconds": pl.Float64,
    "cpu_seconds": pl.Float64,
    "energy_joules": pl.Float64,
    "fills_before": pl.Float64,
    "written_bytes": pl.Int64,
    "seed": pl.Int64,
    "command": pl.String,
    "notes": pl.String,
    "interrupted": pl.Boolean,
}
ROUNDS = {
    "test": pl.String,
    "tracked": pl.String,
    "unit": pl.String,
    "round": pl.Int64,
    "value": pl.Float64,
    "in_window": pl.Boolean,
    "fitted": pl.Float64,
}
_TYPES = {int: pl.Int64, int | None: pl.Int64, str: pl.String}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return {
        name: _TYPES.get(field.annotation, pl.Float64) for name, field in model.model_fields.items()
    }


FREEZES = _schema(Freeze)
STALLS = _schema(Stall)
HISTOGRAMS = {**_STEP, "operation": pl.String, **BINS}
TABLES = {
    "steps": STEPS,
    "rounds": ROUNDS,
    "freezes": FREEZES,
    "stalls": STALLS,
    "intervals": {**_STEP, **INTERVALS},
    "histograms": HISTOGRAMS,
    "causes": {**_STEP, **CAUSES},
}
"""The tables and their columns. The column `step` joins them."""

HEADER = "result.json"

DATABASE = "database.json"
"""File of a run's database figures by test, besides the steps."""

_EVERY_SECONDS = 10.0


class Writer:
    """Keeps a run's directory valid at every moment, by replacing each file as a whole."""

    def __init__(self, folder: Path, result: Result) -> None:
        self.folder = folder
        self.result = result
        self._frames: dict[str, list[pl.DataFrame]] = {name: [] for name in TABLES}
        self._freezes: list[Freeze] = []
        self._databases: dict[str, dict[str, Any]] = {}
        self._saved = -_EVERY_SECONDS
        try:
            folder.mkdir(parents=True, exist_ok=False)
        except OSError as error:
            raise LabError(f"{folder}: {error.strerror}", "Give another --out.") from error
        self.save()

    def add(self, found: Found, result: StepResult, keep_histogram: bool) -> None:
        """Adds a finished step."""
        row = found.model_dump()
        self._frames["steps"].append(pl.DataFrame([row], schema=STEPS))
        number = pl.lit(found.step, dtype=pl.Int64).alias("step")
        for name, frame in (("intervals", result.intervals), ("causes", result.causes)):
            self._frames[name].append(
                frame.select(number, *TABLES[name].keys() - {"step"}).select(*TABLES[name])
            )
        if keep_histogram:
            for kind, operation in result.operations.items():
                if kind != "all":  # The sum of the others.
                    bins = operation.histogram.frame()
                    label = pl.lit(kind).alias("operation")
                    self._frames["histograms"].append(bins.select(number, label, *BINS))
        if time.monotonic() - self._saved > _EVERY_SECONDS:
            self.save()

    def add_rounds(self, rounds: list[Round]) -> None:
        """Adds the rounds of a tracked variable."""
        rows = [round_.model_dump() for round_ in rounds]
        self._frames["rounds"].append(pl.DataFrame(rows, schema=ROUNDS))

    def add_freeze(self, freeze: Freeze) -> None:
        """Adds a freeze of a leg."""
        self._freezes.append(freeze)
        self._frames["freezes"].append(pl.DataFrame([freeze.model_dump()], schema=FREEZES))

    def add_stalls(self, stalls: list[Stall]) -> None:
        """Adds the phases of a schedule and its total."""
        rows = [stall.model_dump() for stall in stalls]
        self._frames["stalls"].append(pl.DataFrame(rows, schema=STALLS))

    def add_database(self, test: str, told: dict[str, Any]) -> None:
        """Adds or replaces a test's database figures."""
        self._databases[test] = told

    def freezes(self, test: str) -> list[Freeze]:
        """Returns the freezes of a test so far."""
        return [freeze for freeze in self._freezes if freeze.test == test]

    def table(self, name: str) -> pl.DataFrame:
        """Returns a table as it is so far."""
        frames = self._frames[name]
        if len(frames) > 1:
            self._frames[name] = frames = [pl.concat(frames)]
        return frames[0] if frames else pl.DataFrame(schema=TABLES[name])

    def save(self) -> None:
        """Writes everything."""
        for name in TABLES:
            with self._replacing(f"{name}.parquet") as temporary:
                self.table(name).write_parquet(temporary, compression="zstd")
        if self._databases:
            self._replace(DATABASE, json.dumps(self._databases, indent=1) + "\n")
        self.save_header()
        self._saved = time.monotonic()

    def save_header(self) -> None:
        """Writes the small files alone. They may fit where the tables do not."""
        self._replace(HEADER, self.result.model_dump_json(indent=2) + "\n")

    def _replace(self, name: str, text: str) -> None:
        with self._replacing(name) as temporary, temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _replacing(self, name: str) -> Iterator[Path]:
        """Yields a temporary file that replaces the old one, or is removed on failure."""
        temporary = self.folder / f".{name}"
        try:
            yield temporary
            temporary.replace(self.folder / name)
        except (OSError, pl.exceptions.PolarsError) as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise LabError(
                f"{self.folder / name} cannot be written: {error}",
                "Make room, or give another --out.",
            ) from error


class Reader:
    """Reads a run's directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tables: dict[str, pl.DataFrame] = {}
        path = folder / HEADER
        try:
            self.result = Result.model_validate_json(path.read_text())
        except OSError as error:
            raise UsageError(
                f"{path}: {error.strerror}", "Name the directory of a run; hemi-lab run makes one."
            ) from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise UsageError(f"{path}: {where}: {first['msg']}", "It is no result.") from error
        if self.result.version > VERSION:
            raise UsageError(
                f"{path}: version = {self.result.version}: this hemi-lab knows up to {VERSION}",
                "Take a newer hemi-lab.",
            )

    def table(self, name: str) -> pl.DataFrame:
        """Returns a table, empty if the run has none. Reads it once."""
        if name not in self._tables:
            self._tables[name] = self._read(name)
        return self._tables[name]

    def _read(self, name: str) -> pl.DataFrame:
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            return pl.DataFrame(schema=TABLES[name])
        try:
            return pl.read_parquet(path)
        except pl.exceptions.PolarsError as error:
            raise UsageError(f"{path}: {error}", "It is no Parquet file.") from error

    def database(self, test: str) -> dict[str, Any] | None:
        """Returns a test's database figures, or `None` for tests of other kinds."""
        path = self.folder / DATABASE
        if not path.exists():
            return None
        try:
            told: dict[str, dict[str, Any]] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error}", "It is no result of hemi-lab.") from error
        return told.get(test)

    def histogram(self, steps: list[int], operation: str = "all") -> Histogram:
        """Merges the bins of some steps, each cut at its own maximum."""
        frame = self.table("histograms").filter(pl.col("step").is_in(steps))
        if operation != "all":
            frame = frame.filter(pl.col("operation") == operation)
        known = self.table("steps").filter(pl.col("step").is_in(steps))
        return Histogram.merged(
            Histogram.from_frame(frame.filter(pl.col("step") == step)).cut(maximum)
            for step, maximum in known.select("step", "maximum_seconds").iter_rows()
        )
