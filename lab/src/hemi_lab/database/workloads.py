"""The two loads: sysbench's OLTP read/write, and the project's own TPC-C-like script."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from .server import DATABASE, USER, MariaDb
from .settings import OltpSettings
from .sysbench import Load
from .tools import CommandLog

_LOADING_TIMEOUT = 7 * 24 * 3600
_TPCC_TABLES = (
    "warehouse", "district", "customer", "history", "new_order", "orders", "order_line", "item",
    "stock",
)  # fmt: skip


def tpcc_script() -> Path:
    """Returns the path of this package's TPC-C-like sysbench script."""
    return Path(str(resources.files(__package__) / "lua" / "tpcc.lua"))


def load_of(settings: OltpSettings, server: MariaDb) -> Load:
    """Returns the sysbench command of a workload on a server."""
    if settings.workload == "tpcc":
        script = str(tpcc_script())
        options: tuple[str, ...] = (
            f"--warehouses={settings.warehouses}",
            f"--items={settings.items}",
            f"--customers={settings.customers}",
        )
    else:
        script = "oltp_read_write"
        options = (
            f"--tables={settings.tables}",
            f"--table-size={settings.rows}",
            f"--rand-type={settings.distribution}",
        )
    return Load(script, options, str(server.socket), DATABASE, USER)


def load_rows(log: CommandLog, settings: OltpSettings, server: MariaDb) -> None:
    """Creates and fills the tables, then lets the optimizer analyze them."""
    load = load_of(settings, server)
    seed = f"--rand-seed={settings.seed}"
    threads = f"--threads={settings.load_threads}"
    if settings.workload == "tpcc":
        log.run(*load.argv("create"), timeout=600)
    log.run(*load.argv(seed, threads, "prepare"), timeout=_LOADING_TIMEOUT)
    server.query(f"ANALYZE TABLE {', '.join(tables_of(settings))}")


def tables_of(settings: OltpSettings) -> tuple[str, ...]:
    """Returns the names of a workload's tables."""
    if settings.workload == "tpcc":
        return _TPCC_TABLES
    return tuple(f"sbtest{number}" for number in range(1, settings.tables + 1))
