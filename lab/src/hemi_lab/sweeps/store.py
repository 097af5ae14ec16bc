"""Results as partitioned Parquet, each written once and whole.

    OUT/cases/spec=HASH/KEY.parquet         one row, the figures
    OUT/latencies/spec=HASH/KEY.parquet     bins by operation
    OUT/legs/spec=HASH/KEY.parquet          what each leg did
    OUT/intervals/spec=HASH/KEY.parquet     second by second
    OUT/sweeps/HASH/table.parquet           a sweep's cases with their swept values and figures

The file in `cases` is the last of a result: where it is, the result is whole."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import polars as pl

from hemi_lab.errors import LabError, UsageError
from hemi_lab.sweeps.cases import Task
from hemi_lab.sweeps.tables import TABLES

_ORDER = ("latencies", "legs", "intervals", "cases")
"""In which a result's files are written."""


class Store:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"{folder}: {error.strerror}", "Give another --out.") from error

    def path(self, table: str, task: Task) -> Path:
        """Where a task's part of a table is, or will be."""
        return self.folder / table / f"spec={task.spec_hash}" / f"{task.key}.parquet"

    def has(self, task: Task) -> bool:
        """Whether its result is there."""
        return self.path("cases", task).exists()

    def add(self, task: Task, tables: dict[str, pl.DataFrame]) -> None:
        """Keeps a result. One that is there already stays: it is the same."""
        for name in _ORDER:
            write_once(self.path(name, task), tables[name])

    def table(self, name: str, tasks: list[Task]) -> pl.DataFrame:
        """A table of these tasks, in their order; tasks without a result are left out."""
        frames = []
        for task in {task.key: task for task in tasks}.values():
            if self.has(task):
                path = self.path(name, task)
                try:
                    frames.append(pl.read_parquet(path, hive_partitioning=False))
                except (pl.exceptions.PolarsError, OSError) as error:
                    raise UsageError(
                        f"{path}: {error}",
                        "Remove the file of that name in cases/: it is run anew.",
                    ) from error
        return pl.concat(frames) if frames else pl.DataFrame(schema=TABLES[name])


def write_once(path: Path, frame: pl.DataFrame) -> None:
    """Writes a file that is whole or not there, and never over another."""
    temporary = path.parent / f".{uuid.uuid4().hex}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            frame.write_parquet(temporary, compression="zstd")
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return  # Another sweep has it too: equal keys are equal results.
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise LabError(
            f"{path}: {error}", "Make room, or give another --out: what is done is kept."
        ) from error
