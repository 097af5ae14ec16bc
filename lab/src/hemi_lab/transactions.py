"""What is asked of a database on the target: transactions of so many threads, or a scan."""

from __future__ import annotations

from typing import ClassVar

from hemi_lab.database.settings import Workload
from hemi_lab.workload import Strict, Zone


class DatabaseLoad(Strict):
    """Threads, each in a transaction at any time. What the server makes of it for the storage is
    not known beforehand, hence no share of reads, no size and no span."""

    zones: ClassVar[tuple[Zone, ...]] = ()
    pattern: ClassVar[str] = "transactions"
    read_percent: ClassVar[float | None] = None
    queue_depth: ClassVar[int | None] = None
    span_percent: ClassVar[float | None] = None

    workload: Workload
    placement: str
    """Data and log: `A/B`."""
    threads: int

    def mean_size(self) -> float | None:
        """Of a transaction's requests there is none."""
        return None

    def writes(self) -> bool:
        """Every load of a database does."""
        return True

    def shown(self) -> str:
        """`A/B, 8 threads`."""
        return f"{self.placement}, {self.threads} threads"


class ScanLoad(Strict):
    """One reading of a whole table, by one connection."""

    zones: ClassVar[tuple[Zone, ...]] = ()
    pattern: ClassVar[str] = "scan"
    read_percent: ClassVar[float | None] = None
    threads: ClassVar[int | None] = 1
    queue_depth: ClassVar[int | None] = None
    span_percent: ClassVar[float | None] = None

    comparison: str
    """`access` or `layout`."""
    subject: str
    """The way of access, or the layout."""

    def mean_size(self) -> float | None:
        """Of a scan's requests there is none."""
        return None

    def writes(self) -> bool:
        """The table has to be made."""
        return True

    def shown(self) -> str:
        """`access: key order`."""
        return f"{self.comparison}: {self.subject}"


OfDatabase = DatabaseLoad | ScanLoad
"""What only a database can be asked."""
