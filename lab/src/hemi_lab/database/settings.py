"""The settings of an OLTP run, and their checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from hemi_lab.errors import LabError

Workload = Literal["tpcc", "oltp_read_write"]
Place = Literal["A", "B"]
Checks = Literal["all", "basic", "none"]
Distribution = Literal["uniform", "special", "gaussian", "pareto"]

STANDARD_THREADS = (8, 16, 24, 32, 48, 64, 96, 128)
STANDARD_SECONDS = 300
STANDARD_IDLE_SECONDS = 30
STANDARD_WARM_UP_SECONDS = 60
STANDARD_POOL_SHARE = 1 / 20
TPCC_ITEMS = 100_000
TPCC_CUSTOMERS = 3_000

MEBIBYTE = 1 << 20
# InnoDB's own minimum with 16 KiB pages is 5 MiB. Below 8 MiB many threads run out of pages.
SMALLEST_POOL = 8 * MEBIBYTE

# The lab sets these. Other values would reach beyond the run, or make its result untrue.
_RESERVED_OPTIONS = {
    "bind_address",
    "datadir",
    "innodb_buffer_pool_size",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "innodb_undo_directory",
    "log_error",
    "pid_file",
    "port",
    "skip_networking",
    "socket",
    "tmpdir",
    "user",
}


class BadSetting(LabError):
    """A setting that is not allowed, with its name, its value and the allowed ones."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        """Takes the allowed values as a text."""
        super().__init__(f"{name} = {value!r} cannot be used: {allowed}")


@dataclass(frozen=True)
class Placement:
    """The targets of the tables and of the redo log."""

    data: Place
    log: Place

    def __str__(self) -> str:
        """Returns a text such as `A/B`: data on A, log on B."""
        return f"{self.data}/{self.log}"


def placement(text: str) -> Placement:
    """Returns the placement of a text such as `A/B`."""
    found = re.fullmatch(r"([AB])/([AB])", text)
    if found is None:
        raise BadSetting("placement", text, "A/A, A/B, B/A or B/B (data/log)")
    names: dict[str, Place] = {"A": "A", "B": "B"}
    return Placement(names[found[1]], names[found[2]])


@dataclass(frozen=True)
class OltpSettings:
    """One OLTP run: a load at rising thread counts, for each placement of data and log."""

    workload: Workload = "tpcc"
    threads: tuple[int, ...] = STANDARD_THREADS
    seconds: int = STANDARD_SECONDS
    """Length of each step."""
    idle_seconds: int = STANDARD_IDLE_SECONDS
    """Rest between steps."""
    warm_up_seconds: int = STANDARD_WARM_UP_SECONDS
    """Load before the first step, at its thread count. It is in the result, but in no figure of
    it."""
    placements: tuple[Placement, ...] = (Placement("A", "A"),)
    seed: int = 1
    """sysbench's seed. Not 0, which would mean the time."""
    pool_share: float = STANDARD_POOL_SHARE
    """Buffer pool as a share of the data, at least 8 MiB."""

    warehouses: int = 10
    """TPC-C-like: warehouses of about 100 MB."""
    items: int = TPCC_ITEMS
    customers: int = TPCC_CUSTOMERS
    checks: Checks = "all"
    """Consistency conditions of the TPC-C-like load: all, 1 to 4, or none."""

    tables: int = 8
    """OLTP read/write: tables, with `rows` rows of about 230 bytes each."""
    rows: int = 1_000_000
    distribution: Distribution = "uniform"
    """OLTP read/write: distribution of the chosen rows. sysbench's default, special, mostly asks
    for a hundredth of the rows, which a small buffer pool already holds."""

    log_file_bytes: int = 96 * MEBIBYTE
    """Size of the redo log (MariaDB's default)."""
    load_pool_bytes: int = 256 * MEBIBYTE
    """Buffer pool while rows are loaded."""
    load_threads: int = 4
    server_options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """More options of MariaDB during the measurement, by their names with underscores."""

    def __post_init__(self) -> None:
        """Raises `BadSetting` if a value is not allowed."""
        _choice("workload", self.workload, get_args(Workload))
        _choice("checks", self.checks, get_args(Checks))
        _choice("distribution", self.distribution, get_args(Distribution))
        if not self.threads:
            raise BadSetting("threads", self.threads, "give at least one thread count")
        for count in self.threads:
            _within("threads", count, 1, 4096)
        _within("seconds", self.seconds, 1, 7 * 86_400)
        _within("idle_seconds", self.idle_seconds, 0, 86_400)
        _within("warm_up_seconds", self.warm_up_seconds, 0, 86_400)
        _within("seed", self.seed, 1, 2**31 - 1)
        _within("warehouses", self.warehouses, 1, 1_000_000)
        _within("items", self.items, 100, TPCC_ITEMS)
        _within("customers", self.customers, 10, TPCC_CUSTOMERS)
        _within("tables", self.tables, 1, 10_000)
        _within("rows", self.rows, 1, 2**31 - 1)
        _within("log_file_bytes", self.log_file_bytes, 4 * MEBIBYTE, 1 << 40)
        _within("load_pool_bytes", self.load_pool_bytes, SMALLEST_POOL, 1 << 44)
        _within("load_threads", self.load_threads, 1, 1024)
        if not 0 < self.pool_share <= 2:
            raise BadSetting("pool_share", self.pool_share, "above 0, at most 2 (of the data)")
        if not self.placements:
            raise BadSetting("placements", self.placements, "give at least one, such as A/A")
        check_server_options(self.server_options)

    def expected_bytes(self) -> int:
        """Returns the approximate size of the tables after the load."""
        if self.workload == "oltp_read_write":
            return 12 * MEBIBYTE + self.tables * self.rows * 240
        a_warehouse = self.items * 400 + self.customers * 10 * 1900
        return 12 * MEBIBYTE + self.items * 120 + self.warehouses * a_warehouse

    def planned_seconds(self) -> int:
        """Returns the seconds of warm-ups, steps and rests. Loads and checks come on top."""
        rests = len(self.threads) - (0 if self.warm_up_seconds else 1)
        one = self.warm_up_seconds + len(self.threads) * self.seconds + rests * self.idle_seconds
        return len(self.placements) * one

    def deviations(self) -> list[str]:
        """Returns the deviations of this run from the plan's standard."""
        said = []
        if self.threads != STANDARD_THREADS:
            said.append(f"threads {_listed(self.threads)} instead of {_listed(STANDARD_THREADS)}")
        if self.seconds != STANDARD_SECONDS:
            said.append(f"steps of {self.seconds} s instead of {STANDARD_SECONDS} s")
        if self.idle_seconds != STANDARD_IDLE_SECONDS and len(self.threads) > 1:
            said.append(
                f"{self.idle_seconds} s idle between steps instead of {STANDARD_IDLE_SECONDS} s"
            )
        if self.warm_up_seconds != STANDARD_WARM_UP_SECONDS:
            said.append(
                f"{self.warm_up_seconds} s of warm-up instead of {STANDARD_WARM_UP_SECONDS} s"
            )
        if abs(self.pool_share - STANDARD_POOL_SHARE) > 1e-9:
            said.append(f"buffer pool {self.pool_share:g} of the data instead of 1/20")
        if self.workload == "tpcc" and self.items != TPCC_ITEMS:
            said.append(f"{self.items} items instead of {TPCC_ITEMS}")
        if self.workload == "tpcc" and self.customers != TPCC_CUSTOMERS:
            said.append(f"{self.customers} customers in a district instead of {TPCC_CUSTOMERS}")
        said += [f"MariaDB with {name}={value}" for name, value in self.server_options.items()]
        return said


def pool_bytes(data_bytes: int, share: float) -> int:
    """Returns the buffer pool for `data_bytes` of data, in whole mebibytes and at least 8."""
    return max(SMALLEST_POOL, round(data_bytes * share / MEBIBYTE) * MEBIBYTE)


def check_server_options(options: Mapping[str, str]) -> None:
    """Raises `BadSetting` for options that the lab sets itself, or that are no options."""
    for name, value in options.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise BadSetting("server_options", name, "option names are lower case with underscores")
        if name in _RESERVED_OPTIONS:
            raise BadSetting("server_options", name, "this option is set by the lab itself")
        if "\n" in value:
            raise BadSetting(f"server_options.{name}", value, "a value is one line")


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(n) for n in numbers)


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadSetting(name, value, f"give a whole number from {low} to {high}")


def _choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadSetting(name, value, f"give one of {', '.join(allowed)}")
