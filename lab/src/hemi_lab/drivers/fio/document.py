"""fio's JSON: the jobs in it, and what fio says of reads, writes and flushes.

The only reader of that document, for the lab, the benchmarks and the tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["read", "write", "trim", "sync"]

NANOSECONDS = 1e9
"""Nanoseconds of a second."""


@dataclass(frozen=True)
class Latency:
    """Latencies of requests, in seconds."""

    count: int = 0
    mean: float = 0.0
    deviation: float = 0.0
    """Standard deviation."""
    minimum: float = 0.0
    maximum: float = 0.0
    percentiles: Mapping[str, float] = field(default_factory=dict)
    """Percentiles by rank, as fio writes it: `99.900000`."""
    bins: Mapping[str, int] = field(default_factory=dict)
    """Counts by the middle of fio's bins, in nanoseconds. Only json+ has them."""

    @staticmethod
    def of(part: Mapping[str, Any]) -> Latency:
        """Reads a part such as `lat_ns`."""
        return Latency(
            count=int(part.get("N", 0)),
            mean=float(part.get("mean", 0)) / NANOSECONDS,
            deviation=float(part.get("stddev", 0)) / NANOSECONDS,
            minimum=float(part.get("min", 0)) / NANOSECONDS,
            maximum=float(part.get("max", 0)) / NANOSECONDS,
            percentiles={
                rank: float(value) / NANOSECONDS
                for rank, value in part.get("percentile", {}).items()
            },
            bins=part.get("bins", {}),
        )

    def percentile(self, rank: float) -> float:
        """Returns a percentile, or 0 if fio does not report it.

        fio reports the middle of a bin, which may lie beyond the exact minimum or maximum."""
        found = self.percentiles.get(f"{rank:.6f}", 0.0)
        return min(max(found, self.minimum), self.maximum) if found else 0.0


@dataclass(frozen=True)
class Direction:
    """The requests of one kind of a job."""

    issued: int
    """Requests issued. For flushes, those completed."""
    lost: int
    """Requests that ended short or were dropped."""
    bytes: int
    iops: float
    seconds: float
    """Time in which requests were made."""
    latency: Latency
    """Latencies that count from the start of the submission (`lat`)."""
    completion: Latency
    """Latencies that count from the end of the submission (`clat`)."""


def parse(text: str) -> dict[str, Any]:
    """Parses the JSON object in fio's output, which may have warnings before it."""
    begin = text.find("{")
    if begin < 0:
        raise ValueError("no JSON in fio's output")
    parsed: dict[str, Any] = json.JSONDecoder().raw_decode(text[begin:])[0]
    return parsed


def first_job(text: str) -> dict[str, Any]:
    """Returns the first job of fio's output: the only one, or the group's if it is reported so.

    Raises `ValueError`, `KeyError` or `IndexError` if there is none."""
    job: dict[str, Any] = parse(text)["jobs"][0]
    return job


def direction(job: Mapping[str, Any], kind: Kind) -> Direction:
    """Returns the requests of one kind. All figures are 0 of a kind that the job did not have."""
    part: Mapping[str, Any] = job.get(kind, {})
    latency = Latency.of(part.get("lat_ns", {}))
    return Direction(
        issued=int(part.get("total_ios", 0)),
        lost=int(part.get("short_ios", 0)) + int(part.get("drop_ios", 0)),
        bytes=int(part.get("io_bytes", 0)),
        iops=float(part.get("iops", 0)),
        seconds=int(part.get("runtime", 0)) / 1000,
        latency=latency,
        completion=Latency.of(part.get("clat_ns", {})),
    )
