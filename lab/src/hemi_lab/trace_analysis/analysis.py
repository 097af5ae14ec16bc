"""Reads a trace's missing parts, and merges its parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from hemi_lab.errors import LabError, UsageError
from hemi_lab.parallel import kept
from hemi_lab.parallel.base import Pool
from hemi_lab.parallel.kept import Done, run_missing
from hemi_lab.trace_analysis.parts import SCHEMAS, SHAPES, Tables, added
from hemi_lab.trace_analysis.seams import Seams
from hemi_lab.trace_analysis.task import Analysed, analyse
from hemi_lab.trace_analysis.tasks import Task, Trace

_MOST_SAID = 5
"""Largest number of failed parts that are reported one by one."""

Show = Callable[[int, int, Analysed | None], None]


class Store(kept.Store[Task]):
    """A directory of parts: `parts/TABLE/reading=HASH/KEY.parquet`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "parts", SCHEMAS)


def read_missing(traces: list[Trace], store: Store, pool: Pool, show: Show) -> Done[Analysed]:
    """Reads the parts that have no result yet.

    If parts cannot be read, the others are kept and the error names the failed ones."""
    tasks = [task for trace in traces for task in trace.tasks]
    done = run_missing(analyse, tasks, store, pool, show, "parts")
    if done.failed:
        ordered = sorted(done.failed, key=lambda failed: (failed.task.path, failed.task.first))
        first = ordered[0]
        said = [str(failed.failed) for failed in ordered[:_MOST_SAID]]
        if len(ordered) > _MOST_SAID:
            said.append(f"… and {len(ordered) - _MOST_SAID} other parts")
        kind = UsageError if first.exit_code == UsageError.exit_code else LabError
        raise kind("\n".join(said), first.way_out)
    return done


def whole(trace: Trace, store: Store) -> Tables:
    """Merges all parts of a trace, in their order."""
    seams = Seams()
    for task in trace.tasks:
        seams.add(store.part("edges", task))
    seams.end()
    found: Tables = {"edges": seams.edges()}
    for name in SHAPES:
        paths = [store.path(name, task) for task in trace.tasks]
        try:
            rows = [pl.scan_parquet(path, hive_partitioning=False) for path in paths]
            merged = added(name, pl.concat([*rows, seams.found(name)]))
            found[name] = merged.collect(engine="streaming")
        except (pl.exceptions.PolarsError, OSError) as error:
            raise LabError(
                f"a part of {trace.name} in {store.folder} cannot be read: {error}",
                "Remove that directory: its parts are read again.",
            ) from error
    if not found["operations"]["requests"].sum():
        raise UsageError(f"{trace.name} has no request", "Check the format.")
    return found
