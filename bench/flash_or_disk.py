"""Flash or disk for servers of published sizes: `python -m bench.flash_or_disk TRACE`.

The question is that of Narayanan and others, "Migrating Server Storage to SSDs: Analysis of
Tradeoffs" (EuroSys 2009). For each server it takes the cheapest mirror of disks and the cheapest of
flash that `hemi advise` finds for the trace, and prints the table of docs/advice.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hemi_harness import hemi

from .measure import table

# Capacities in GB: Narayanan, Donnelly, Rowstron, "Write Off-Loading", FAST 2008, table 1.
SERVERS = {
    "ts": 22,
    "hm": 39,
    "prxy": 89,
    "stg": 113,
    "wdev": 136,
    "rsrch": 277,
    "src2": 355,
    "web": 441,
    "prn": 452,
    "mds": 509,
    "src1": 555,
    "usr": 1367,
    "proj": 2094,
}
DISKS = ("hdd-20tb",)
FLASH = ("sata-dramless", "qlc", "nvme-consumer", "nvme-enterprise")
LOADED_S = 900


def cheapest(systems: list[dict[str, Any]], drives: tuple[str, ...]) -> dict[str, Any] | None:
    """Returns the cheapest system of these drives alone that meets the request."""
    own = [
        system
        for system in systems
        if all(leg["preset"] in drives for leg in system["legs"]) and system["verdict"] == "meets"
    ]
    return min(own, key=lambda system: float(system["cost"]["total"])) if own else None


def shown(system: dict[str, Any] | None) -> list[str]:
    """Returns a system's cells: name, cost, and 99.9th percentile."""
    if system is None:
        return ["none", "-", "-"]
    cost, tail = system["cost"]["total"], system["latency"]["p999"]
    return [system["name"], f"{cost:,.0f}", f"{tail * 1e3:.2f} ms"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.flash_or_disk", description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--target", help="99.9th percentile that has to be met, such as 10ms")
    parser.add_argument("--electricity", default="0.15", help="price of a kWh (default 0.15)")
    parser.add_argument("--snapshots", type=Path, default=Path("snapshots"))
    parser.add_argument("--servers", help="only these, separated by commas")
    asked = parser.parse_args()
    servers = asked.servers.split(",") if asked.servers else list(SERVERS)
    rows = []
    for server in servers:
        options: list[str | Path] = ["--all", "--copies", "2", "--electricity", asked.electricity]
        options += ["--capacity", f"{SERVERS[server]}GB", "--snapshots", asked.snapshots]
        options += ["--candidates", ",".join(DISKS + FLASH)]
        options += ["--p99.9", asked.target] if asked.target else []
        found = json.loads(hemi("advise", asked.trace, *options, "--json", timeout=LOADED_S))
        disk, flash = (cheapest(found["systems"], drives) for drives in (DISKS, FLASH))
        factor = "-"
        if disk and flash:
            factor = f"{flash['cost']['total'] / disk['cost']['total']:.2f}"
        rows.append([server, f"{SERVERS[server]:,} GB", *shown(disk), *shown(flash), factor])
        print(f"{server}: {factor}", flush=True)
    headings = ["server", "capacity", "disks", "USD", "p99.9", "flash", "USD", "p99.9", "factor"]
    print("\n".join(table(headings, rows)))


if __name__ == "__main__":
    main()
