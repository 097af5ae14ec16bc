"""What is asked of a database on the target: transactions of so many threads."""

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
