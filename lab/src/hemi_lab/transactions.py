"""Loads on a database: transactions of several threads, or a scan."""

from __future__ import annotations

from typing import ClassVar

from hemi_lab.database.settings import Workload
from hemi_lab.units import counted
from hemi_lab.workload import Strict, Zone


class DatabaseLoad(Strict):
    """Threads that each always run a transaction.

    The server's requests to the storage are not known beforehand, so there is no share of reads, no
    size and no span."""

    zones: ClassVar[tuple[Zone, ...]] = ()
    pattern: ClassVar[str] = "transactions"
    read_percent: ClassVar[float | None] = None
    queue_depth: ClassVar[int | None] = None
    span_percent: ClassVar[float | None] = None

    workload: Workload
    placement: str
    """Placement of data and log, as `A/B`."""
    threads: int

    def mean_size(self) -> float | None:
        """Returns `None`: a transaction has no single request size."""
        return None

    def writes(self) -> bool:
        """Returns true: every load of a database writes."""
        return True

    def shown(self) -> str:
        """Returns a text such as `A/B, 8 threads`."""
        return f"{self.placement}, {counted(self.threads, 'thread')}"


class ScanLoad(Strict):
    """One scan of a whole table, on one connection."""

    zones: ClassVar[tuple[Zone, ...]] = ()
    pattern: ClassVar[str] = "scan"
    read_percent: ClassVar[float | None] = None
    threads: ClassVar[int | None] = 1
    queue_depth: ClassVar[int | None] = None
    span_percent: ClassVar[float | None] = None

    comparison: str
    """`access` or `layout`."""
    subject: str
    """The access path, or the layout."""

    def mean_size(self) -> float | None:
        """Returns `None`: a scan has no single request size."""
        return None

    def writes(self) -> bool:
        """Returns true: the table has to be created."""
        return True

    def shown(self) -> str:
        """Returns a text such as `access: key order`."""
        return f"{self.comparison}: {self.subject}"


OfDatabase = DatabaseLoad | ScanLoad
"""The loads that only a database can run."""
