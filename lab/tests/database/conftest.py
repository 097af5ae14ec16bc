"""A private MariaDB for tests of the database part."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from database_server import TINY, LoadedServer
from hemi_lab.database.server import MariaDb
from hemi_lab.database.settings import MEBIBYTE
from hemi_lab.database.workloads import load_rows
from hemi_lab.database.workplace import Workplace


def _need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def mariadb_installed() -> None:
    """Skips the test if MariaDB or sysbench is missing."""
    _need("mariadbd", "mariadb", "mariadb-install-db", "sysbench")


@pytest.fixture(scope="module")
def started(
    mariadb_installed: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoadedServer]:
    """Yields a running server with the tables loaded."""
    target = tmp_path_factory.mktemp("target")
    with Workplace() as place:
        directories: list[Path] = [place.subdirectory(target, name) for name in ("data", "log")]
        server = MariaDb(place, directories[0], directories[1], 16 * MEBIBYTE)
        server.install()
        server.start({"innodb_flush_log_at_trx_commit": "0"})
        load_rows(place.log, TINY, server)
        yield LoadedServer(place, server)
        server.stop()


@pytest.fixture
def loaded(started: LoadedServer) -> Iterator[LoadedServer]:
    """Yields the same server in its state after the load, and restores it after the test."""
    yield started
    started.restore()
