"""Tasks whose results are kept: what is missing is run, and nothing that is done is lost."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import polars as pl

from hemi_lab.errors import LabError, UsageError
from hemi_lab.parallel.base import Pool
from hemi_lab.tool import Interrupted


class Keyed(Protocol):
    """A task. Equal keys are equal results."""

    @property
    def key(self) -> str:
        """The name of its files."""

    @property
    def partition(self) -> str:
        """The folder of its files, as in `spec=HASH`."""


T = TypeVar("T", bound=Keyed)
Schema = Mapping[str, "type[pl.DataType] | pl.DataType"]
"""Columns of a table."""


class Outcome(Protocol):
    """What became of a task: its tables, or why there are none."""

    @property
    def task(self) -> Any:
        """The task."""

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """By name."""

    @property
    def failed(self) -> str | None:
        """Why there are none."""


R = TypeVar("R", bound=Outcome)


class Store(Generic[T]):
    """A folder of results: `TABLE/PARTITION/KEY.parquet`.

    The tables of a result are written in the order given. Where the last is, it is whole."""

    def __init__(self, folder: Path, schemas: Mapping[str, Schema]) -> None:
        self.folder = folder
        self._schemas = schemas
        self._last = list(schemas)[-1]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"{folder}: {error.strerror}", "Give another --out.") from error

    def path(self, table: str, task: T) -> Path:
        """Where a task's part of a table is, or will be."""
        return self.folder / table / task.partition / f"{task.key}.parquet"

    def has(self, task: T) -> bool:
        """Whether its result is there."""
        return self.path(self._last, task).exists()

    def add(self, task: T, tables: Mapping[str, pl.DataFrame]) -> None:
        """Keeps a result. One that is there already stays: it is the same."""
        for name in self._schemas:
            write_once(self.path(name, task), tables[name])

    def part(self, name: str, task: T) -> pl.DataFrame:
        """One table of one result."""
        path = self.path(name, task)
        try:
            return pl.read_parquet(path, hive_partitioning=False)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UsageError(
                f"{path}: {error}",
                f"Remove the file of that name in {self._last}/: it is run anew.",
            ) from error

    def table(self, name: str, tasks: Iterable[T]) -> pl.DataFrame:
        """A table of these tasks, in their order; tasks without a result are left out."""
        once = {task.key: task for task in tasks}.values()
        frames = [self.part(name, task) for task in once if self.has(task)]
        return pl.concat(frames) if frames else pl.DataFrame(schema=self._schemas[name])


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
                return  # Another run has it too: equal keys are equal results.
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise LabError(
            f"{path}: {error}", "Make room, or give another --out: what is done is kept."
        ) from error


@dataclass
class Done(Generic[R]):
    """What came of running the missing."""

    known: int
    """Results that were there before."""
    run: int = 0
    failed: list[R] = field(default_factory=list)


def run_missing(
    function: Callable[[T], R],
    tasks: Sequence[T],
    store: Store[T],
    pool: Pool,
    show: Callable[[int, int, R | None], None],
    named: str,
) -> Done[R]:
    """Runs what has no result yet. One that fails leaves the others alone; Ctrl-C leaves what
    is done. `show` is told how many of the missing are done, of how many, and the last."""
    every = {task.key: task for task in tasks}
    missing = [task for task in every.values() if not store.has(task)]
    done = Done[R](len(every) - len(missing))
    show(0, len(missing), None)
    if not missing:
        return done
    results = pool.run(function, missing)
    try:
        with closing(results):  # type: ignore[type-var]
            for number, result in enumerate(results, 1):
                if result.failed is None:
                    store.add(result.task, result.tables)
                    done.run += 1
                else:
                    done.failed.append(result)
                show(number, len(missing), result)
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: {done.run} of {len(missing)} {named} were done",
            "The same command again runs the others.",
        ) from None
    return done
