"""A file or device on several hosts. A `fio --server` on each makes the load."""

from __future__ import annotations

from pathlib import Path

from hemi_lab.drivers.base import Driver
from hemi_lab.drivers.fio.driver import find_fio
from hemi_lab.drivers.fio.hosts import HostsDriver, parse_hosts
from hemi_lab.drivers.fio.job import file_name
from hemi_lab.errors import UsageError
from hemi_lab.targets.base import Description, Hazards, Needs, check_size, refuse_freezes

_BLOCK = 4096
"""Logical block in bytes. The hosts' own are not known here, and this suits all of them."""


class HostsTarget:
    """The same path on every host, or one that they share."""

    def __init__(self, text: str, path: str, size: int | None, hosts: list[str]) -> None:
        self.text = text
        self.path = path
        self._size = size
        self._hosts = parse_hosts(hosts)
        if not path.startswith("/"):
            raise UsageError(
                f"target {text!r}: {path} is no whole path",
                "Hosts have working directories of their own.",
            )

    def _bytes(self) -> int:
        if self._size is None:
            raise UsageError(
                f"target {self.text!r}: its size on the hosts is not known here",
                f"Say how much is used: {self.path},size=1GiB",
            )
        check_size(self.text, self._size)
        return self._size

    def describe(self) -> Description:
        """Describes the target without contacting the hosts."""
        names = [f"{host.name}:{host.port}" for host in self._hosts]
        return Description(
            self.text,
            "hosts",
            bytes=self._bytes() * len(names),
            model=f"{self.path} on {', '.join(names)}",
            logical_block_bytes=_BLOCK,
        )

    def hazards(self) -> Hazards:
        """Returns a hazard always: the hosts' data cannot be checked from here, so `--wipe` must
        name it."""
        names = ", ".join(host.name for host in self._hosts)
        return Hazards(holds=[f"what it holds on {names} cannot be seen from here"])

    def check(self, needs: Needs) -> None:
        """Raises if the engine is missing here. Opening contacts the hosts."""
        refuse_freezes(self.text, needs)
        if needs.timed:
            raise UsageError(
                f"target {self.text!r}: hosts take no load with times of its own",
                "Run this plan on one machine, without --hosts.",
            )
        find_fio()
        self._bytes()

    def open(self, seed: int) -> Driver:
        """Opens fio's client for all hosts."""
        options = {"filename": file_name(Path(self.path)), "direct": "1"}
        size = self._bytes() - self._bytes() % _BLOCK
        return HostsDriver(self._hosts, options, size, _BLOCK)
