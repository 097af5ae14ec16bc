"""Joins the parts of a trace, with everything that was cut at a seam."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from hemi_lab.statistics.histogram import fio_index
from hemi_lab.trace_analysis.parts import BACKWARDS, EDGES, SCHEMAS, SHAPES, Tables, added
from hemi_lab.trace_analysis.requests import SECTOR


@dataclass(frozen=True)
class Run:
    """Requests of one kind, each beginning where the last ended, in sectors."""

    operation: str
    start: int
    end: int
    requests: int

    def joined(self, other: Run) -> Run | None:
        """Returns it joined with the run after it, or `None` if that does not continue it."""
        if self.end != other.start or self.operation != other.operation:
            return None
        return replace(self, end=other.end, requests=self.requests + other.requests)


@dataclass(frozen=True)
class Edge:
    """A volume's data that may continue in the parts before and after."""

    volume: str | None
    first_ns: int
    last_ns: int
    runs: int
    head: Run | None
    tail: Run | None
    """The same as the head if there is one run."""

    @staticmethod
    def of(row: dict[str, Any]) -> Edge:
        """Builds an edge from a row of the table."""
        head, tail = (
            Run(*(row[f"{side}_{name}"] for name in Run.__dataclass_fields__))
            if row["runs"]
            else None
            for side in ("head", "tail")
        )
        return Edge(row["volume"], row["first_ns"], row["last_ns"], row["runs"], head, tail)

    def row(self) -> dict[str, object]:
        """Returns the edge as a row of the table."""
        sides = {
            f"{side}_{name}": getattr(run, name) if run else None
            for side, run in (("head", self.head), ("tail", self.tail))
            for name in Run.__dataclass_fields__
        }
        first = {name: getattr(self, name) for name in ("volume", "first_ns", "last_ns", "runs")}
        return {**first, **sides}


class Seams:
    """Joins edges part by part, in the order of the trace."""

    def __init__(self) -> None:
        self._edges: dict[str | None, Edge] = {}
        self._gaps: list[dict[str, object]] = []
        self._runs: list[dict[str, object]] = []

    def add(self, edges: pl.DataFrame) -> None:
        """Adds the edges of the next part."""
        for row in edges.iter_rows(named=True):
            after = Edge.of(row)
            before = self._edges.get(after.volume)
            self._edges[after.volume] = after if before is None else self._join(before, after)

    def _join(self, before: Edge, after: Edge) -> Edge:
        gap = after.first_ns - before.last_ns
        number = fio_index(min(gap, (1 << 62) - 1)) if gap >= 0 else BACKWARDS
        self._gaps.append({"volume": before.volume, "bin": number, "count": 1})
        whole = replace(before, last_ns=after.last_ns)
        if before.tail is None or before.head is None:
            return replace(whole, runs=after.runs, head=after.head, tail=after.tail)
        if after.head is None or after.tail is None:
            return whole
        joined = before.tail.joined(after.head)
        runs = before.runs + after.runs - (joined is not None)
        head, tail = before.head, after.tail
        # A run at neither end has finished.
        if joined is not None:
            head = joined if before.runs == 1 else head
            tail = joined if after.runs == 1 else tail
            inner = [joined] if before.runs > 1 and after.runs > 1 else []
        else:
            inner = [before.tail] if before.runs > 1 else []
            inner += [after.head] if after.runs > 1 else []
        for run in inner:
            self._over(before.volume, run)
        return replace(whole, runs=runs, head=head, tail=tail)

    def _over(self, volume: str | None, run: Run) -> None:
        self._runs.append(
            {
                "volume": volume,
                "operation": run.operation,
                "requests": run.requests,
                "runs": 1,
                "bytes": (run.end - run.start) * SECTOR,
            }
        )

    def end(self) -> None:
        """Ends the trace, which finishes the runs at the ends."""
        for volume, edge in self._edges.items():
            for run in (edge.head, edge.tail if edge.runs > 1 else None):
                if run is not None:
                    self._over(volume, run)
            self._edges[volume] = replace(edge, runs=0, head=None, tail=None)

    def edges(self) -> pl.DataFrame:
        """Returns the edges of all parts together."""
        rows = [edge.row() for edge in self._edges.values()]
        return pl.DataFrame(rows, schema=EDGES).sort("volume")

    def found(self, name: str) -> pl.LazyFrame:
        """Returns the rows of a table that the seams add."""
        rows = {"gaps": self._gaps, "runs": self._runs}.get(name, [])
        return pl.DataFrame(rows, schema=SCHEMAS[name]).lazy()


def merged(parts: Iterable[Tables], last: bool = False) -> Tables:
    """Merges parts in the order of the trace. With `last`, nothing comes after them."""
    known = list(parts)
    seams = Seams()
    for part in known:
        seams.add(part["edges"])
    if last:
        seams.end()
    done: Tables = {"edges": seams.edges()}
    for name in SHAPES:
        rows = pl.concat([part[name].lazy() for part in known] + [seams.found(name)])
        done[name] = added(name, rows).collect()
    return done
