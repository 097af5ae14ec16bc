"""Stores results as partitioned Parquet, each file written once and whole.

    OUT/cases/spec=HASH/KEY.parquet         one row, the figures
    OUT/latencies/spec=HASH/KEY.parquet     bins by operation
    OUT/legs/spec=HASH/KEY.parquet          what each leg did
    OUT/intervals/spec=HASH/KEY.parquet     second by second
    OUT/sweeps/HASH/table.parquet           a sweep's cases with their swept values and figures

The file in `cases` is the last of a result. If it exists, the result is whole."""

from __future__ import annotations

from pathlib import Path

from hemi_lab.parallel import kept
from hemi_lab.sweeps.cases import Task
from hemi_lab.sweeps.tables import TABLES

_ORDER = ("latencies", "legs", "intervals", "cases")
"""The order in which a result's files are written."""


class Store(kept.Store[Task]):
    """A directory of results."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {name: TABLES[name] for name in _ORDER})
