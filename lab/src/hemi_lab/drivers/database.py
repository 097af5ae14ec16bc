"""The driver of plans of databases: targets and programs.

The load itself comes from the database part (`methods/database.py`), which has steps of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping

from hemi_lab import database, tool
from hemi_lab.database.settings import Place
from hemi_lab.drivers.base import Ceiling, Outcome
from hemi_lab.errors import LabError
from hemi_lab.steps import Step, StepResult

_INSTALL = "Install MariaDB and sysbench (Debian: apt-get install mariadb-server sysbench)."


class DatabaseDriver:
    """MariaDB under sysbench."""

    name = "sysbench and MariaDB"

    def __init__(self, targets: Mapping[Place, database.Target], capacity: int) -> None:
        """Raises if a program is missing. `capacity` is the size of target A in bytes."""
        self.targets = dict(targets)
        self._capacity = capacity
        for program in ("mariadbd", "mariadb", "mariadb-install-db", "sysbench"):
            if shutil.which(program) is None:
                raise LabError(f"{program} is not on the PATH", _INSTALL)
        load = tool.run(["sysbench", "--version"]).output.removeprefix("sysbench ").strip()
        server = tool.run(["mariadbd", "--no-defaults", "--version"]).output
        found = re.search(r"Ver (\S+)", server)
        self.version = f"{load}, {found[1] if found else server.strip()}"

    @property
    def capacity(self) -> int:
        """Size of target A in bytes."""
        return self._capacity

    @property
    def block(self) -> int:
        """Size of a page of InnoDB."""
        return 16 << 10

    def purge(self) -> Outcome:
        """Does nothing, since every placement is loaded anew."""
        return Outcome(False, "a database's target is not purged")

    def run(self, step: Step) -> StepResult:
        """Raises. Transactions have a method of their own."""
        raise LabError(
            f"{step.test}: a database's target takes transactions only",
            "Name a file, a device or a volume for this plan.",
        )

    def ceiling(self, outstanding: int) -> Ceiling | None:
        """Returns `None`, since there is no server that does nothing."""
        return None

    def close(self) -> None:
        """Does nothing, since each test ends what it started."""
