"""A private MariaDB with a data directory and a socket of its own, and no port.

It is never the system's server. It lives in a workplace, which kills it if it has not been stopped.
The directories of the tables and of the redo log may lie on different targets. One file,
`mariadb.cnf`, holds all settings, and no other option file is read.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Mapping
from pathlib import Path

from hemi_lab.errors import LabError, ToolError

from .tools import Child
from .workplace import Workplace

DATABASE = "lab"
USER = "root"

# Set at every start. The pool is neither saved nor warmed, so that a restart is a cold start.
_ALWAYS = {
    "skip_networking": "ON",
    "innodb_flush_method": "O_DIRECT",
    "innodb_file_per_table": "ON",
    "innodb_buffer_pool_dump_at_shutdown": "OFF",
    "innodb_buffer_pool_load_at_startup": "OFF",
    "character_set_server": "latin1",
}
_REPORTED_PREFIXES = ("innodb_", "version")
_REPORTED = {
    "character_set_server", "datadir", "log_bin", "max_connections", "performance_schema",
    "sync_binlog", "table_open_cache", "thread_handling", "tx_isolation",
}  # fmt: skip


class MariaDb:
    """One instance, which may be stopped and started again with other settings."""

    def __init__(self, place: Workplace, data: Path, log: Path, log_file_bytes: int) -> None:
        """Takes `data` and `log`, existing empty directories for the tables and the redo log."""
        self._place = place
        self._directory = place.path("mariadb")
        self._directory.mkdir(mode=0o700)
        self._config = self._directory / "mariadb.cnf"
        self.socket = self._directory / "sql.sock"
        self.data = data
        self._fixed = {
            **_ALWAYS,
            "datadir": str(data),
            "tmpdir": str(data),
            "innodb_log_group_home_dir": str(log),
            "innodb_log_file_size": str(log_file_bytes),
            "socket": str(self.socket),
            "pid_file": str(self._directory / "pid"),
            # mariadbd refuses to run as root unless told to.
            "user": pwd.getpwuid(os.geteuid()).pw_name,
        }
        self._process: Child | None = None

    def install(self) -> None:
        """Creates the system tables and the lab's empty database."""
        self._configure({})
        self._place.log.run(
            "mariadb-install-db",
            f"--defaults-file={self._config}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            timeout=600,
        )
        self.start({})
        self.query(f"CREATE DATABASE {DATABASE}", database=None)
        self.stop()

    def start(self, settings: Mapping[str, str], timeout: float = 600) -> None:
        """Starts the server and waits until it answers."""
        assert self._process is None, "already started"
        self._configure(settings)
        process = self._place.start("mariadbd", "mariadbd", f"--defaults-file={self._config}")
        self._process = process
        process.wait_ready(self._answers, timeout)

    def stop(self, timeout: float = 1800) -> float:
        """Stops the server in order, with all pages written. Returns the seconds that took."""
        process = self._running()
        began = time.monotonic()
        process.stop(timeout)
        self._process = None
        return time.monotonic() - began

    def query(
        self,
        sql: str,
        *,
        database: str | None = DATABASE,
        names: bool = False,
        timeout: float = 24 * 3600,
    ) -> list[list[str]]:
        """Returns rows as the client prints them (a null is `NULL`).

        Raises with the server's message if a statement fails. Several statements are one session,
        and the rows of all are returned in order. With `names`, each result begins with the names
        of its columns.
        """
        self._running()
        printed = self._place.log.run(
            *self._client(),
            "--batch",
            *([] if names else ["--skip-column-names"]),
            *([f"--database={database}"] if database else []),
            f"--execute={sql}",
            timeout=timeout,
        )
        return [line.split("\t") for line in printed.splitlines()]

    def number(self, sql: str) -> int:
        """Returns the single whole number that a query gives."""
        rows = self.query(sql)
        try:
            return int(rows[0][0])
        except (IndexError, ValueError) as error:
            raise LabError(f"MariaDB answered {rows} to `{sql}`, not one whole number") from error

    def version(self) -> str:
        """Returns the server's version."""
        return self.query("SELECT VERSION()")[0][0]

    def settings(self) -> dict[str, str]:
        """Returns the server's variables that matter to a result."""
        return {
            name: value
            for name, value in self._names_and_values("SHOW GLOBAL VARIABLES")
            if name in _REPORTED or name.startswith(_REPORTED_PREFIXES)
        }

    def counters(self) -> dict[str, int]:
        """Returns InnoDB's counters since the start."""
        return {
            name: int(value)
            for name, value in self._names_and_values("SHOW GLOBAL STATUS LIKE 'Innodb_%'")
            if value.isdigit()
        }

    def _names_and_values(self, sql: str) -> list[tuple[str, str]]:
        return [(row[0].lower(), row[1] if len(row) > 1 else "") for row in self.query(sql)]

    def table_bytes(self) -> int:
        """Returns the size of the lab's table files in bytes."""
        return sum(file.stat().st_size for file in (self.data / DATABASE).glob("*.ibd"))

    def table_file(self, table: str) -> Path:
        """Returns the file of one of the lab's tables."""
        return self.data / DATABASE / f"{table}.ibd"

    def cpu_seconds(self) -> float:
        """Returns the processor seconds the server has used since its start."""
        return self._running().cpu_seconds()

    def _running(self) -> Child:
        assert self._process is not None, "the server has not been started"
        if not self._process.running:
            raise self._process.failed("has ended")
        return self._process

    def _client(self) -> list[str]:
        return ["mariadb", "--no-defaults", f"--socket={self.socket}", f"--user={USER}"]

    def _answers(self) -> bool:
        if not self.socket.exists():
            return False
        try:
            self.query("SELECT 1", database=None)
        except ToolError as error:
            # Not listening yet. `wait_ready` notices if it has ended.
            if "Can't connect" in error.message or self._process is None:
                return False
            raise
        return True

    def _configure(self, settings: Mapping[str, str]) -> None:
        lines = [f"{name} = {value}" for name, value in {**settings, **self._fixed}.items()]
        self._config.write_text("[mariadbd]\n" + "\n".join(lines) + "\n")
