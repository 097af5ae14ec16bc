"""The task function: one part of a trace, the same on this machine and on any other."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from hemi_lab.errors import LabError
from hemi_lab.trace_analysis.parts import Tables, tables
from hemi_lab.trace_analysis.requests import digest, in_sectors, read
from hemi_lab.trace_analysis.tasks import Task, lab_version


@dataclass(frozen=True)
class Analysed:
    """The outcome of a task: its tables, or the reason why there are none."""

    task: Task
    tables: Tables = field(default_factory=dict)
    failed: str | None = None
    way_out: str = ""
    exit_code: int = 1


def analyse(task: Task) -> Analysed:
    """Reads a part. Failures are returned, since they have to survive the way back."""
    try:
        return Analysed(task, tables(in_sectors(_rows(task)), task.block))
    except LabError as error:
        return Analysed(task, failed=error.what, way_out=error.way_out, exit_code=error.exit_code)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        return Analysed(task, failed=f"{task.named}: {type(error).__name__}: {error}")


def _rows(task: Task) -> pl.DataFrame:
    machine = os.uname().nodename
    if task.version != lab_version():
        raise LabError(
            f"hemi-lab on {machine} is {lab_version()}, and the analysis was begun by "
            f"{task.version}",
            "Install the same hemi-lab and polars on every machine.",
        )
    path = Path(task.path)
    if not path.is_file():
        raise LabError(
            f"{path} is not on {machine}",
            "Give --out on a file system of all machines, or a table (hemi trace convert --to "
            "parquet) that is at the same path on all of them.",
        )
    rows = read(path, task.first, task.count)
    if digest(rows) != task.digest:
        raise LabError(
            f"{path} on {machine} has other requests than when the analysis began",
            "Let nobody write to it meanwhile, and have the same file on every machine.",
        )
    return rows
