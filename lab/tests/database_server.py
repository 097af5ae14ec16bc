"""A tiny load, and a private MariaDB that holds it."""

from __future__ import annotations

from hemi_lab.database.server import MariaDb
from hemi_lab.database.settings import OltpSettings
from hemi_lab.database.workloads import tables_of
from hemi_lab.database.workplace import Workplace

TINY = OltpSettings(
    warehouses=2, items=200, customers=30, load_threads=2, threads=(4,), seconds=2,
    idle_seconds=0, warm_up_seconds=0,
)  # fmt: skip


class LoadedServer:
    """MariaDB with the tiny TPC-C-like tables, and a way to restore them."""

    def __init__(self, place: Workplace, server: MariaDb) -> None:
        self.place = place
        self.server = server
        for table in tables_of(TINY):
            server.query(f"CREATE TABLE saved_{table} AS SELECT * FROM {table}")

    def restore(self) -> None:
        """Restores every table to its state after the load."""
        for table in tables_of(TINY):
            self.server.query(
                f"TRUNCATE TABLE {table}; INSERT INTO {table} SELECT * FROM saved_{table}"
            )
