"""Runs the missing cases of a sweep, and puts all into one table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from hemi_lab.errors import LabError
from hemi_lab.parallel.base import Pool
from hemi_lab.parallel.kept import run_missing
from hemi_lab.sweeps.cases import Task
from hemi_lab.sweeps.store import Store
from hemi_lab.sweeps.task import Simulated, simulate


@dataclass
class Swept:
    """The outcome of a sweep."""

    tasks: list[Task]
    known: int
    """Number of results that existed before."""
    run: int = 0
    failed: list[Simulated] = field(default_factory=list)


Show = Callable[[int, int, Simulated | None], None]
"""Called with the number of missing tasks done, the number that were missing, and the last."""


def sweep(tasks: list[Task], store: Store, pool: Pool, show: Show) -> Swept:
    """Runs the tasks without a result. A failed task leaves the others alone. Ctrl-C keeps finished
    ones."""
    done = run_missing(simulate, tasks, store, pool, show, "simulations")
    return Swept(tasks, done.known, done.run, done.failed)


def table(tasks: list[Task], store: Store) -> pl.DataFrame:
    """Returns a sweep's cases in order: number, seed, swept values and figures."""
    keys = list(dict.fromkeys(key for task in tasks for key in task.values))
    rows: dict[str, list[Any]] = {
        "case": [task.case for task in tasks],
        "key": [task.key for task in tasks],
    }
    for key in keys:
        rows[key] = _alike([task.values.get(key) for task in tasks])
    cases = store.table("cases", tasks)
    # A swept key may have the name of a figure's column.
    taken = [column for column in cases.columns if column in rows and column != "key"]
    return (
        pl.DataFrame(rows, strict=False)
        .join(cases.drop(taken), on="key", how="inner", maintain_order="left")
        .sort("case", "seed", maintain_order=True)
    )


def _alike(values: list[Any]) -> list[Any]:
    """Returns the values in one type. Numbers stay numbers, and mixed types become text."""
    if all(isinstance(value, bool) for value in values):
        return values
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        whole = all(isinstance(value, int) for value in values)
        return values if whole else [float(value) for value in values]
    return [value if isinstance(value, str) else str(value) for value in values]


def keep_table(tasks: list[Task], store: Store) -> Path:
    """Writes the sweep's table. Its name is a hash of the tasks, which include the seeds."""
    frame = table(tasks, store)
    name = hashlib.sha256("\n".join(task.key for task in tasks).encode()).hexdigest()[:16]
    path = store.folder / "sweeps" / name / "table.parquet"
    temporary = path.with_name(".table.parquet")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(temporary, compression="zstd")
        temporary.replace(path)
    except OSError as error:
        raise LabError(f"{path}: {error}", "Make room, or give another --out.") from error
    return path
