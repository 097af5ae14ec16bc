"""An NBD export."""

from __future__ import annotations

import importlib
import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from hemi_lab import tool
from hemi_lab.drivers.base import Driver, Outcome
from hemi_lab.drivers.fio.driver import CauseWatch, FioDriver, find_fio
from hemi_lab.drivers.fio.job import Destination
from hemi_lab.drivers.load.driver import find_load
from hemi_lab.errors import LabError, UsageError
from hemi_lab.faults import Faults
from hemi_lab.targets import safety
from hemi_lab.targets.base import Description, Hazards, Needs, check_size, refuse_freezes

SCHEMES = ("nbd://", "nbd+unix://", "nbds://", "nbds+unix://")
"""Schemes of an export's URI."""

_FILES = {"tls-certificates", "tls-psk-file"}
"""Parameters of a URI that name files."""

_INSTALL = "Install libnbd's tools (Debian: apt-get install libnbd-bin)."


def export_facts(uri: str) -> dict[str, Any]:
    """Returns the facts that `nbdinfo` reports of an export."""
    command = [tool.find("nbdinfo", "HEMI_LAB_NBDINFO", _INSTALL), "--json", uri]
    exports = json.loads(tool.run(command).output)["exports"]
    facts: dict[str, Any] = exports[0]
    return facts


class NbdTarget:
    """An export, named by its URI. fio's own NBD client makes the load."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.path = text

    def describe(self) -> Description:
        """Returns the size and flags of the export."""
        facts = export_facts(self.path)
        check_size(self.text, int(facts["export-size"]))
        return Description(
            self.text,
            "nbd",
            bytes=int(facts["export-size"]),
            logical_block_bytes=_block(facts),
            write_cache="flush" if facts.get("can_flush") else "no flush command",
            rotational=bool(facts.get("is_rotational")),
        )

    def hazards(self) -> Hazards:
        """Returns a hazard if it holds data. Other clients of the export cannot be seen."""
        return export_hazards(self.path)

    def check(self, needs: Needs) -> None:
        """Raises if an engine is missing or cannot write the export."""
        refuse_freezes(self.text, needs)
        check_export(self.path, needs)

    def open(self, seed: int) -> Driver:
        """Opens it with fio's nbd engine."""
        return export_driver(self.path)


def _libnbd() -> Any:
    """Returns libnbd's Python module, or `None` if it is not installed."""
    try:
        return importlib.import_module("nbd")
    except ImportError:
        return None


def _connected(nbd: Any, uri: str) -> Any:
    handle = nbd.NBD()
    # The URI may name certificates and keys. It comes from the user who started this.
    handle.set_uri_allow_local_file(True)
    handle.connect_uri(uri)
    return handle


def export_hazards(uri: str) -> Hazards:
    """Reads through libnbd and returns a hazard if the export holds data."""
    nbd = _libnbd()
    if nbd is None:
        return Hazards(holds=["it could not be looked at (no libnbd for Python)"])
    try:
        handle = _connected(nbd, uri)
        return Hazards(
            holds=safety.content(
                lambda offset, length: bytes(handle.pread(length, offset)), handle.get_size()
            )
        )
    except nbd.Error as error:
        raise LabError(f"{uri}: {error}", "Look whether it is served there.") from error


def export_driver(
    uri: str, watch: CauseWatch | None = None, faults: Faults | None = None
) -> FioDriver:
    """Returns a fio driver for an export."""
    facts = check_export(uri, Needs())
    options = {"uri": uri}
    destination = Destination(options, "nbd", int(facts["export-size"]), _block(facts))
    return FioDriver(destination, lambda: _trim(uri, facts), watch, faults=faults)


def check_export(uri: str, needs: Needs) -> dict[str, Any]:
    """Raises if the engines are missing or cannot write the export. Returns its facts."""
    find_fio()
    if needs.timed:
        find_load()
    named = {key for key, _ in parse_qsl(urlsplit(uri).query)} & _FILES
    if named:
        # fio does not let libnbd open files that a URI names.
        raise UsageError(
            f"{uri}: fio takes no {' and no '.join(sorted(named))} from a URI",
            "Put ca-cert.pem, client-cert.pem and client-key.pem where libnbd looks by itself, "
            "/etc/pki/libnbd for root and ~/.pki/libnbd for others, and leave that out of the "
            "URI.",
        )
    facts = export_facts(uri)
    if facts.get("is_read_only"):
        raise LabError(f"{uri} is read-only", "Serve it so that it can be written.")
    return facts


def _block(facts: dict[str, Any]) -> int:
    return max(512, int(facts.get("block_minimum") or facts.get("block_size_minimum") or 512))


def _trim(uri: str, facts: dict[str, Any]) -> Outcome:
    if not facts.get("can_trim"):
        return Outcome(False, "the export takes no trim")
    nbd = _libnbd()
    if nbd is None:
        return Outcome(False, "no libnbd for Python to trim with")
    try:
        handle = _connected(nbd, uri)
        size, chunk = int(handle.get_size()), 16 << 20
        for offset in range(0, size, chunk):
            handle.trim(min(chunk, size - offset), offset)
        handle.flush()
    except nbd.Error as error:
        return Outcome(False, f"trim failed: {error}")
    return Outcome(True, "the whole export trimmed; what its server does with that is its affair")
