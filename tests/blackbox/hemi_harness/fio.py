"""Runs fio: closed-loop load on an NBD export or a file, verified or measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .sandbox import Arg, Process, Sandbox

# fio's defaults lack the tail, which matters most here.
PERCENTILES = (50.0, 99.0, 99.9, 99.99)


def percentile(latency: dict[str, Any], rank: float) -> float:
    """Returns a percentile of fio's `clat_ns` in nanoseconds, or 0 if fio does not report it.

    fio reports the middle of a bucket, which may lie beyond the exact minimum or maximum."""
    found = float(latency.get("percentile", {}).get(f"{rank:.6f}", 0))
    return min(max(found, float(latency["min"])), float(latency["max"])) if found else 0.0


def job_of(path: Path, process: Process | None = None) -> dict[str, Any]:
    """Returns the only job of the JSON that fio has written, which may have warnings before it.

    If there is none, the error shows what the process printed."""
    text = path.read_text() if path.exists() else ""
    start = text.find("{")
    if start < 0:
        said = process.output() if process else ""
        raise AssertionError(f"fio wrote no JSON:\n{text}\n{said}")
    job: dict[str, Any] = json.loads(text[start:])["jobs"][0]
    return job


@dataclass(frozen=True)
class FioResult:
    """One direction (reads or writes) of a run. Times are in microseconds."""

    iops: float
    operations: int
    bytes: int
    mean: float
    p50: float
    p99: float
    p999: float
    max: float
    seconds: float
    errors: int
    cpu_user: float
    cpu_system: float

    @staticmethod
    def parse(job: dict[str, Any], direction: str) -> FioResult:
        side = job[direction]
        latency = side["clat_ns"]
        return FioResult(
            iops=float(side["iops"]),
            operations=int(side["total_ios"]),
            bytes=int(side["io_bytes"]),
            mean=float(latency["mean"]) / 1000,
            p50=percentile(latency, 50) / 1000,
            p99=percentile(latency, 99) / 1000,
            p999=percentile(latency, 99.9) / 1000,
            max=float(latency["max"]) / 1000,
            seconds=float(side["runtime"]) / 1000,
            errors=int(job["error"]),
            cpu_user=float(job["usr_cpu"]),
            cpu_system=float(job["sys_cpu"]),
        )


class Fio:
    """A fio run. `target` is an NBD URI or the path of a file or device.

    Options are fio's own, as keywords: `rw="randwrite"`, `iodepth=16`.
    """

    def __init__(self, sandbox: Sandbox, target: str | Path, **options: Arg) -> None:
        self._json = sandbox.path("fio.json")
        argv: list[Arg] = [
            "fio",
            "--name=load",
            "--output-format=json",
            f"--output={self._json}",
            f"--percentile_list={':'.join(f'{p:g}' for p in PERCENTILES)}",
            # Keep files of a job (verify states) out of the source tree.
            f"--aux-path={sandbox.dir}",
        ]
        if isinstance(target, str) and target.startswith("nbd"):
            argv += ["--ioengine=nbd", f"--uri={target}"]
        else:
            argv += ["--ioengine=io_uring", "--direct=1", f"--filename={target}"]
        argv += [f"--{name}={value}" for name, value in options.items()]
        self._argv = argv
        self._process: Process = sandbox.start(*argv, name="fio")

    @property
    def process(self) -> Process:
        return self._process

    def wait(self, timeout: float = 300) -> dict[str, Any]:
        """Waits for the end and returns the job's part of fio's JSON. Raises if fio failed."""
        code = self._process.wait(timeout)
        job = self.job()
        if code != 0 or job["error"] != 0:
            raise AssertionError(
                f"`{' '.join(self._process.argv)}` exited {code}, error {job['error']}:\n"
                f"{self._process.output()}\n{self._json.read_text()[:2000]}"
            )
        return job

    def job(self) -> dict[str, Any]:
        """Returns the job's part of the JSON of a run that has ended, failed or not."""
        return job_of(self._json, self._process)

    def reads(self, timeout: float = 300) -> FioResult:
        return FioResult.parse(self.wait(timeout), "read")

    def writes(self, timeout: float = 300) -> FioResult:
        return FioResult.parse(self.wait(timeout), "write")
