"""A hemi volume: its NBD export for the load, its control socket for the causes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from hemi_lab import tool
from hemi_lab.drivers.base import Driver
from hemi_lab.drivers.simulated import INSTALL
from hemi_lab.errors import LabError, ToolError, UsageError
from hemi_lab.steps import CAUSES
from hemi_lab.targets.base import Description, Hazards, Needs, check_legs
from hemi_lab.targets.nbd import check_export, export_driver, export_hazards
from hemi_lab.targets.volume_faults import VolumeFaults
from hemi_lab.units import counted

_EVERY_SECONDS = 1.0
"""Time between two queries of the status."""

_CLOSELY_SECONDS = 0.2
"""About as often as the status changes. hemi makes one every quarter of a second."""

_LEAVE_SECONDS = 2.0
"""Longest time for which connections that have ended are still in the status."""


class VolumeTarget:
    """A served volume, named by itself or by its control socket."""

    def __init__(self, text: str, name: str, uri: str | None) -> None:
        self.text = text
        self.path = name
        self._named = ["--control", name] if "/" in name else ["--volume", name]
        self._uri = uri
        self._every = _EVERY_SECONDS

    def command(self, *arguments: str) -> str:
        """Returns the output of a `hemi` command on this volume."""
        return tool.run([self._hemi(), *arguments, *self._named]).output

    def _hemi(self) -> str:
        return tool.find("hemi", "HEMI", INSTALL)

    def status(self) -> dict[str, Any]:
        """Returns the volume's status."""
        status: dict[str, Any] = json.loads(self.command("status", "--json"))
        return status

    @contextmanager
    def closely(self) -> Iterator[None]:
        """Samples steps that begin meanwhile as often as the status changes."""
        self._every = _CLOSELY_SECONDS
        try:
            yield
        finally:
            self._every = _EVERY_SECONDS

    def export(self) -> str:
        """Returns the URI of its export."""
        if self._uri:
            return self._uri
        control = self._control()
        # The default export lies beside the control socket.
        socket = Path(control).with_suffix(".nbd")
        if control.endswith(".sock") and socket.is_socket():
            return f"nbd+unix:///?socket={socket}"
        raise UsageError(
            f"target {self.text!r}: its export is not beside its control socket, {control}",
            f"Say where it is: {self.text},nbd=nbd+unix:///?socket=PATH",
        )

    def _control(self) -> str:
        """Returns the path of its control socket."""
        if "/" in self.path:
            return self.path
        # A volume that is not served is refused here, with the way out.
        served = self.status()["id"]
        listed = json.loads(tool.run([self._hemi(), "list", "--json"]).output)
        found = (volume["control"] for volume in listed["volumes"] if volume["id"] == served)
        return str(next(found, self.path))

    def describe(self) -> Description:
        """Describes the volume and its legs from its status."""
        status = self.status()
        return Description(
            self.text,
            "volume",
            bytes=int(status["size_bytes"]),
            model=f"hemi {status['version']} volume {status['name']}",
            logical_block_bytes=int(status["block_bytes"]),
            policy=status["policy"],
            legs=[f"{leg['name']} ({leg['path']})" for leg in status["legs"]],
        )

    def hazards(self) -> Hazards:
        """Returns a hazard for connected clients and for data."""
        verb = "is" if (connected := self._connected()) == 1 else "are"
        in_use = [f"{counted(connected, 'client')} {verb} connected to it"] if connected else []
        return Hazards(in_use, export_hazards(self.export()).holds)

    def _connected(self) -> int:
        """Returns the number of clients that are connected now. The status is a little older: the
        lab's own connections, which have just ended, are still in it, and new clients are not."""
        asked, until = time.time() * 1000, time.monotonic() + _LEAVE_SECONDS
        while True:
            status = self.status()
            connected = int(status["clients"]["connections"]["open"])
            is_new = status["at_ms"] - status["age_ns"] / 1e6 >= asked
            if time.monotonic() > until or (is_new and not connected):
                return connected
            time.sleep(_CLOSELY_SECONDS)

    def check(self, needs: Needs) -> None:
        """Raises if an engine or the export is missing, or a leg the plan freezes may not be
        frozen."""
        check_export(self.export(), needs)
        if needs.freezes:
            faults = VolumeFaults(self)
            check_legs(self.text, needs, faults.legs())
            faults.check()

    def open(self, seed: int) -> Driver:
        """Opens it with fio's nbd engine, and samples the status every second."""
        return export_driver(self.export(), self._watch, VolumeFaults(self))

    @contextmanager
    def _watch(self) -> Iterator[Callable[[], pl.DataFrame]]:
        """Samples the status regularly until the step ends."""
        every = self._every
        begun = time.monotonic()
        seen: list[tuple[float, dict[str, Any]]] = [(0.0, self.status())]
        over = threading.Event()

        def ask() -> None:
            while not over.wait(every):
                try:
                    seen.append((time.monotonic() - begun, self.status()))
                except (ToolError, LabError, ValueError):
                    continue  # A missing status leaves a gap, and the load goes on.

        thread = threading.Thread(target=ask, name="status", daemon=True)
        thread.start()
        try:
            yield lambda: causes(seen)
        finally:
            over.set()
            thread.join()


def causes(seen: list[tuple[float, dict[str, Any]]]) -> pl.DataFrame:
    """Returns the changes between consecutive statuses, one row for each figure."""
    rows: list[tuple[float, float, int | None, str, float]] = []
    for (start, before), (end, after) in pairwise(seen):
        length = end - start
        exposure = after["exposure"]
        rows += [
            (start, length, None, "exposure_bytes", float(exposure["bytes"])),
            (start, length, None, "exposure_age_seconds", (exposure["age_ns"] or 0) / 1e9),
            (start, length, None, "dirty_regions", float(after["engine"]["dirty_regions"])),
        ]
        earlier = {leg["leg"]: leg for leg in before["legs"]}
        moved = {
            leg["leg"]: _grown(earlier.get(leg["leg"]), leg, "read_bytes")
            + _grown(earlier.get(leg["leg"]), leg, "written_bytes")
            for leg in after["legs"]
        }
        whole = sum(moved.values())
        for leg in after["legs"]:
            number = leg["leg"]
            figures = {
                "share": moved[number] / whole if whole else 0.0,
                "bytes_per_second": moved[number] / length,
                "backlog_bytes": float(leg["owed_bytes"] or 0),
                "freezes": _grown(earlier.get(number), leg, "freezes"),
                "frozen_seconds": _grown(earlier.get(number), leg, "frozen_ns") / 1e9,
            }
            for kind in ("read", "write"):
                figures |= _answers(kind, earlier.get(number), leg, length)
            rows += [(start, length, number, name, value) for name, value in figures.items()]
    return pl.DataFrame(rows, schema=CAUSES, orient="row")


def _answers(
    kind: str, before: dict[str, Any] | None, after: dict[str, Any], length: float
) -> dict[str, float]:
    """Returns a leg's rate of reads or writes and their mean latency, which is absent if there are
    none."""
    now = after[f"{kind}s"]["total"]
    then = before[f"{kind}s"]["total"] if before else {"count": 0, "mean_ns": 0}
    if now["count"] < then["count"]:
        then = {"count": 0, "mean_ns": 0}  # It restarted.
    count = now["count"] - then["count"]
    if not count:
        return {f"{kind}s_per_second": 0.0}
    spent = now["count"] * now["mean_ns"] - then["count"] * then["mean_ns"]
    return {f"{kind}s_per_second": count / length, f"{kind}_seconds": max(spent, 0) / count / 1e9}


def _grown(before: dict[str, Any] | None, after: dict[str, Any], key: str) -> float:
    """Returns the growth of a counter. One that restarted counts from zero."""
    now = float(after.get(key) or 0)
    then = float((before or {}).get(key) or 0)
    return now - then if now >= then else now
