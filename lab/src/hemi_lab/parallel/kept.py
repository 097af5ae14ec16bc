"""Runs the tasks whose results are missing, and stores each result when it is done."""

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
    """A task. Equal keys have equal results."""

    @property
    def key(self) -> str:
        """Name of its files."""

    @property
    def partition(self) -> str:
        """Directory of its files, such as `spec=HASH`."""


T = TypeVar("T", bound=Keyed)
Schema = Mapping[str, "type[pl.DataType] | pl.DataType"]
"""Columns of a table."""


class Outcome(Protocol):
    """Outcome of a task: its tables, or the reason why there are none."""

    @property
    def task(self) -> Any:
        """The task."""

    @property
    def tables(self) -> Mapping[str, pl.DataFrame]:
        """Tables by name."""

    @property
    def failed(self) -> str | None:
        """The reason why there are none."""


R = TypeVar("R", bound=Outcome)


class Store(Generic[T]):
    """A directory of results: `TABLE/PARTITION/KEY.parquet`.

    The tables of a result are written in the order given. If the last exists, the result is
    whole."""

    def __init__(self, folder: Path, schemas: Mapping[str, Schema]) -> None:
        self.folder = folder
        self._schemas = schemas
        self._last = list(schemas)[-1]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(f"{folder}: {error.strerror}", "Give another --out.") from error

    def path(self, table: str, task: T) -> Path:
        """Returns the path of a task's part of a table, written or not."""
        return self.folder / table / task.partition / f"{task.key}.parquet"

    def has(self, task: T) -> bool:
        """Returns true if the task has a result."""
        return self.path(self._last, task).exists()

    def add(self, task: T, tables: Mapping[str, pl.DataFrame]) -> None:
        """Stores a result. An existing one stays, since it is the same."""
        for name in self._schemas:
            write_once(self.path(name, task), tables[name])

    def part(self, name: str, task: T) -> pl.DataFrame:
        """Reads one table of one result."""
        path = self.path(name, task)
        try:
            return pl.read_parquet(path, hive_partitioning=False)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise UsageError(
                f"{path}: {error}",
                f"Remove the file of that name in {self._last}/: it is run anew.",
            ) from error

    def table(self, name: str, tasks: Iterable[T]) -> pl.DataFrame:
        """Returns a table of these tasks, in their order. Tasks without a result are left out."""
        once = {task.key: task for task in tasks}.values()
        frames = [self.part(name, task) for task in once if self.has(task)]
        return pl.concat(frames) if frames else pl.DataFrame(schema=self._schemas[name])


def write_once(path: Path, frame: pl.DataFrame) -> None:
    """Writes a file that is whole or absent, and never over another."""
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
                return  # Another run made it too, and equal keys have equal results.
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise LabError(
            f"{path}: {error}", "Make room, or give another --out: what is done is kept."
        ) from error


@dataclass
class Done(Generic[R]):
    """The outcome of `run_missing`."""

    known: int
    """Number of results that existed before."""
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
    """Runs the tasks that have no result yet.

    A failed task leaves the others alone, and Ctrl-C keeps finished results. `show` gets the number
    of missing tasks that are done, the number that were missing, and the last result."""
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
