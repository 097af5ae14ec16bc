"""Scans of one table by index and by layout, each with a cold buffer pool.

The scans answer two questions. The first is the cost of reaching every row through a secondary
index, in an order unrelated to the rows' own, instead of in key order. The second is the cost of a
fragmented file. For it the same file is put in the table's place in two copies that differ only in
their layout (`extents.py`).

The server is restarted before each scan, and the scans of a comparison take turns.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from hemi_lab.errors import LabError
from hemi_lab.units import counted

from .extents import Layout, copy_contiguous, copy_fragmented, layout_of
from .server import MariaDb
from .settings import MEBIBYTE, BadSetting, pool_bytes
from .targets import OpenTarget, Target
from .tools import Command
from .workplace import Workplace

_T = TypeVar("_T")

_TABLE = "scan_rows"
_ROWS_PER_INSERT = 100_000
_LOG_FILE_BYTES = 96 * MEBIBYTE
_BYTES_PER_ROW = 260
# With a smaller ratio the two layouts are too similar to compare.
_LEAST_RATIO = 10

_MAKE = f"""CREATE TABLE {_TABLE} (id INT NOT NULL PRIMARY KEY, scattered BIGINT NOT NULL,
  padding CHAR(192) NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=latin1"""
_FILL = f"""INSERT INTO {_TABLE}
  SELECT seq, 1 + CONV(LEFT(MD5(CONCAT('{{seed}} ', seq)), 8), 16, 10), REPEAT(MD5(seq), 6)
  FROM seq_{{first}}_to_{{last}}"""
_INDEX = f"ALTER TABLE {_TABLE} ADD KEY scattered (scattered)"

_WHOLE_ROWS = "SELECT COUNT(*), SUM(CRC32(padding))"


@dataclass(frozen=True)
class Access:
    """A way to read the table."""

    name: str
    query: str
    index: str
    """The index the optimizer must use."""
    covering: bool = False
    """True if the index alone must suffice."""


KEY_ORDER = Access(
    "key order", f"{_WHOLE_ROWS} FROM {_TABLE} FORCE INDEX (PRIMARY) WHERE id > 0", "PRIMARY"
)
INDEX_ALONE = Access(
    "secondary index alone",
    f"SELECT COUNT(*), SUM(scattered) FROM {_TABLE} FORCE INDEX (scattered) WHERE scattered > 0",
    "scattered",
    covering=True,
)
LOOKUP = Access(
    "secondary-index lookup of every row",
    f"{_WHOLE_ROWS} FROM {_TABLE} FORCE INDEX (scattered) WHERE scattered > 0",
    "scattered",
)


@dataclass(frozen=True)
class ScanSettings:
    """The size of the table and the number of scans."""

    rows: int = 2_000_000
    """Rows of about 260 bytes."""
    repeats: int = 3
    """Number of times each scan is made, in turns."""
    pool_share: float = 1 / 20
    piece_bytes: int = 64 << 10
    """Size of the fragments."""
    seed: int = 1

    def __post_init__(self) -> None:
        """Raises `BadSetting` if a value is not allowed."""
        if not 10_000 <= self.rows < 2**31:
            raise BadSetting("rows", self.rows, "give 10000 or more, below 2^31")
        if not 1 <= self.repeats <= 1000:
            raise BadSetting("repeats", self.repeats, "give 1 to 1000")
        if not 0 < self.pool_share <= 2:
            raise BadSetting("pool_share", self.pool_share, "above 0, at most 2 (of the data)")
        if self.piece_bytes % 4096 or not 4096 <= self.piece_bytes <= 1 << 30:
            raise BadSetting(
                "piece_bytes", self.piece_bytes, "give a multiple of 4096, at most 1 GiB"
            )

    def expected_bytes(self) -> int:
        """Returns the approximate size of the table's file."""
        return self.rows * _BYTES_PER_ROW


@dataclass(frozen=True)
class Scan:
    """One scan with a cold buffer pool."""

    comparison: str
    """`access` or `layout`."""
    subject: str
    """The access path, or the layout."""
    seconds: float
    """Time on the server's clock, from the query's start to its end."""
    rows: int
    read_bytes: int
    """Bytes that InnoDB read from its files."""
    pages_read: int
    pages_read_ahead: int


@dataclass
class ScanResult:
    """All scans."""

    settings: dict[str, Any]
    target: dict[str, Any] = field(default_factory=dict)
    server_version: str | None = None
    server_settings: dict[str, str] = field(default_factory=dict)
    data_bytes: int | None = None
    pool_bytes: int | None = None
    layouts: dict[str, Layout] = field(default_factory=dict)
    """Layouts by `contiguous` and `fragmented`."""
    explained: dict[str, str] = field(default_factory=dict)
    """The optimizer's plan, by access path."""
    scans: list[Scan] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    incomplete: str | None = None


class ScanRun:
    """One run. `result` grows meanwhile, and is valid even if `execute` is interrupted."""

    def __init__(
        self,
        settings: ScanSettings,
        target: Target,
        *,
        say: Callable[[str], object] = lambda text: None,
        on_scan: Callable[[Scan], object] = lambda scan: None,
    ) -> None:
        """Takes `say`, which gets a line for each stage, and `on_scan`, which gets each finished
        scan."""
        self._settings = settings
        self._target = target
        self._say = say
        self._on_scan = on_scan
        self.result = ScanResult(asdict(settings))

    def execute(self, place: Workplace) -> ScanResult:
        """Runs everything. On an interruption `result.incomplete` has the reason, and the error is
        raised."""
        self.result.commands = place.log.commands
        try:
            opened = self._target.open(place)
            self.result.target = opened.description
            self._run(place, opened)
            opened.close()
        except KeyboardInterrupt:
            self.result.incomplete = "interrupted"
            raise
        except Exception as error:
            self.result.incomplete = str(error) or repr(error)
            raise
        return self.result

    def _run(self, place: Workplace, opened: OpenTarget) -> None:
        # Room for the table and its two copies, one of which needs twice the room while it is made.
        needed = 5 * self._settings.expected_bytes() + 3 * _LOG_FILE_BYTES
        if (free := opened.free_bytes()) < needed:
            raise LabError(
                f"the target has {free >> 20} MiB free, but these scans need about "
                f"{needed >> 20} MiB; give more room, or fewer rows"
            )
        data = place.subdirectory(opened.directory, "data")
        log = place.subdirectory(opened.directory, "log")
        copies = place.subdirectory(opened.directory, "copies")
        server = MariaDb(place, data, log, _LOG_FILE_BYTES)
        self._say("installing MariaDB")
        server.install()
        self._fill(server)
        self._scan_by_access(server)
        self._scan_by_layout(place, server, copies)
        for directory in (data, log, copies):
            shutil.rmtree(directory)

    def _fill(self, server: MariaDb) -> None:
        settings = self._settings
        self._say(f"filling a table of {settings.rows} rows")
        server.start({"innodb_flush_log_at_trx_commit": "0", "innodb_buffer_pool_size": "256M"})
        server.query(_MAKE)
        for first in range(1, settings.rows + 1, _ROWS_PER_INSERT):
            last = min(first + _ROWS_PER_INSERT - 1, settings.rows)
            server.query(_FILL.format(seed=settings.seed, first=first, last=last))
        server.query(_INDEX)
        server.query(f"ANALYZE TABLE {_TABLE}")
        server.stop()
        self.result.data_bytes = server.table_bytes()
        self.result.pool_bytes = pool_bytes(self.result.data_bytes, settings.pool_share)

    def _scan_by_access(self, server: MariaDb) -> None:
        ways = (KEY_ORDER, INDEX_ALONE, LOOKUP)
        for number in range(self._settings.repeats):
            for access in _taking_turns(ways, number):
                self._say(f"scan by access: {access.name}")
                self._scan(server, "access", access.name, access)

    def _scan_by_layout(self, place: Workplace, server: MariaDb, copies: Path) -> None:
        self._say("copying the table's file, contiguous and in fragments")
        table = server.table_file(_TABLE)
        files = {name: copies / f"{name}.ibd" for name in ("contiguous", "fragmented")}
        copy_contiguous(table, files["contiguous"])
        copy_fragmented(table, files["fragmented"], self._settings.piece_bytes)
        layouts = {name: layout_of(place.log, file) for name, file in files.items()}
        self.result.layouts = layouts
        whole, parts = layouts["contiguous"].fragments, layouts["fragmented"].fragments
        if parts < _LEAST_RATIO * whole:
            self.result.problems.append(
                f"the file system gave {counted(parts, 'fragment')} to the fragmented file and "
                f"{whole} to the contiguous one: the layouts are hardly different"
            )
        mode = table.stat().st_mode
        for number in range(self._settings.repeats):
            for name in _taking_turns(tuple(files), number):
                self._say(f"scan by layout: {name}")
                table.unlink()
                os.link(files[name], table)
                table.chmod(mode)
                self._scan(server, "layout", name, KEY_ORDER)

    def _scan(self, server: MariaDb, comparison: str, subject: str, access: Access) -> None:
        assert self.result.pool_bytes is not None
        server.start({"innodb_buffer_pool_size": str(self.result.pool_bytes)})
        if self.result.server_version is None:
            self.result.server_version = server.version()
            self.result.server_settings = server.settings()
        self.result.explained[access.name] = _explain(server, access)
        before = server.counters()
        began, (count, check), ended = server.query(
            f"SELECT SYSDATE(6); {access.query}; SELECT SYSDATE(6)"
        )
        after = server.counters()
        server.stop()
        if int(count) != self._settings.rows:
            raise LabError(
                f"`{access.query}` found {count} rows of {self._settings.rows} (checksum {check})"
            )
        seconds = datetime.fromisoformat(ended[0]) - datetime.fromisoformat(began[0])

        def grown(name: str) -> int:
            return after[name] - before[name]

        scan = Scan(
            comparison,
            subject,
            seconds.total_seconds(),
            int(count),
            grown("innodb_data_read"),
            grown("innodb_pages_read"),
            grown("innodb_buffer_pool_read_ahead"),
        )
        self.result.scans.append(scan)
        self._on_scan(scan)


def _explain(server: MariaDb, access: Access) -> str:
    """Returns the optimizer's plan. Raises if it is not the intended one."""
    names, row = server.query(f"EXPLAIN {access.query}", names=True)
    plan = dict(zip(names, row, strict=True))
    said = ", ".join(f"{name}={plan[name]}" for name in ("type", "key", "rows", "Extra"))
    alone = "Using index" in plan["Extra"].split("; ")
    if plan["key"] != access.index or alone != access.covering:
        raise LabError(f"MariaDB reads `{access.query}` by {said}, not as meant")
    return said


def _taking_turns(subjects: tuple[_T, ...], number: int) -> tuple[_T, ...]:
    return subjects if number % 2 == 0 else subjects[::-1]
