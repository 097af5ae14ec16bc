"""Runs fio: closed-loop load on an NBD export or a file, verified or measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hemi_lab.drivers.fio.document import Kind, direction, first_job

from .sandbox import Arg, Process, Sandbox

# fio's defaults lack the tail, which matters most here.
PERCENTILES = (50.0, 99.0, 99.9, 99.99)


def job_of(path: Path, process: Process | None = None) -> dict[str, Any]:
    """Returns the only job of the JSON that fio has written, which may have warnings before it.

    If there is none, the error shows what the process printed."""
    text = path.read_text() if path.exists() else ""
    try:
        return first_job(text)
    except (ValueError, LookupError) as error:
        said = process.output() if process else ""
        raise AssertionError(f"fio wrote no JSON of a job: {error}\n{text}\n{said}") from error


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
    def parse(job: dict[str, Any], kind: Kind, with_submission: bool = False) -> FioResult:
        """Returns the figures of a job's reads or writes. Latencies count from the end of the
        submission, or from its start."""
        side = direction(job, kind)
        latency = side.latency if with_submission else side.completion
        return FioResult(
            iops=side.iops,
            operations=side.issued,
            bytes=side.bytes,
            mean=latency.mean * 1e6,
            p50=latency.percentile(50) * 1e6,
            p99=latency.percentile(99) * 1e6,
            p999=latency.percentile(99.9) * 1e6,
            max=latency.maximum * 1e6,
            seconds=side.seconds,
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
