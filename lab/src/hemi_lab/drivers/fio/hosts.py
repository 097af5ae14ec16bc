"""fio on several hosts at once: a `fio --server` on each, one client here, merged bins.

fio's own sum over clients has no bins, and percentiles of several hosts do not follow from those of
each. So each host's bins are taken from its part of the JSON and merged here."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from hemi_lab import tool
from hemi_lab.drivers.base import Ceiling, Outcome
from hemi_lab.drivers.fio import document, job, output
from hemi_lab.drivers.fio.driver import find_fio, idle
from hemi_lab.errors import LabError, ToolError, UsageError
from hemi_lab.statistics.histogram import Histogram, Moments
from hemi_lab.steps import (
    INTERVALS,
    Little,
    Operation,
    Step,
    StepResult,
    no_causes,
    no_intervals,
)
from hemi_lab.units import counted
from hemi_lab.workload import Load

PORT = 8765
"""fio's own port."""

_ENGINES = ("io_uring", "libaio", "psync")
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?::(\d{1,5}))?")


@dataclass(frozen=True)
class Host:
    """The address of a `fio --server`."""

    name: str
    port: int = PORT

    @property
    def client(self) -> str:
        """The host as fio's option."""
        return f"--client={self.name},{self.port}"


def parse_hosts(texts: Sequence[str]) -> list[Host]:
    """Parses hosts given as `name`, `name:port` or an IPv4 address, each once."""
    found = []
    for text in texts:
        match = _HOST.fullmatch(text)
        port = int(match[2] or PORT) if match else 0
        if match is None or not 0 < port < 65536:
            raise UsageError(f"host {text!r}", "Write a name or an IPv4 address, as in db1:8765.")
        found.append(Host(match[1], port))
    names = [host.name for host in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"host {name} is named twice",
                "fio names a host's logs by its name: run one server there with more threads.",
            )
    return found


class HostsDriver:
    """The same load on every host at the same time."""

    name = "fio"

    def __init__(
        self, hosts: list[Host], options: dict[str, str], capacity: int, block: int
    ) -> None:
        self._fio = find_fio()
        self.version = tool.run([self._fio, "--version"]).output.strip().removeprefix("fio-")
        self._hosts = hosts
        self._folder = tempfile.TemporaryDirectory(prefix="hemi-lab-hosts-")
        self._steps = 0
        self.notes = [
            f"the load was made by {counted(len(hosts), 'host')} at once: {_listed(hosts)}"
        ]
        self._destination = self._probed(options, capacity, block)

    @property
    def capacity(self) -> int:
        """Total size of all hosts' targets in bytes."""
        return self._destination.capacity * len(self._hosts)

    @property
    def block(self) -> int:
        """Smallest request."""
        return self._destination.block

    def purge(self) -> Outcome:
        """Does nothing, since fio's protocol has no purge."""
        return Outcome(False, "what the hosts have cannot be purged from here")

    def run(self, step: Step) -> StepResult:
        """Runs one job on each host, each with a seed of its own, and merges the results."""
        if step.load is None:
            return idle(step.seconds or 0.0)
        if not isinstance(step.load, Load):
            raise LabError(
                f"{step.test}: many hosts make closed loops only", "Run this test without --hosts."
            )
        amount = None if step.bytes is None else step.bytes // len(self._hosts)
        texts: list[str] = []
        notes: list[str] = []
        for number in range(len(self._hosts)):
            # Without this, hosts that share a target would all ask for the same blocks in turn.
            seed = step.seed + number * 0x9E3779B9
            text, notes = job.job(self._destination, step.load, seed, step.seconds, amount)
            texts.append(text)
        finished, folder, command = self._fio_run(texts)
        parts = self._parts(folder / "out.json", finished, command)
        if parts is None:
            return StepResult(
                0.0, {}, 0, 0, no_intervals(), no_causes(), command=command, interrupted=True
            )
        operations = merged(output.operations(part) for part in parts)
        seconds = max(output.seconds(part) for part in parts)
        counted = [output.issued_and_completed(part) for part in parts]
        intervals = _intervals(folder, self._hosts, parts)
        whole = operations["all"].moments
        charted = int(intervals.filter(pl.col("operation") == "all")["count"].sum())
        if charted != whole.count:
            # The fio of a host writes its log in an unknown form.
            notes.append(
                f"the hosts' logs second by second have {charted:,} requests, their results "
                f"{whole.count:,}: figures are of the results"
            )
        rate = whole.count / seconds if seconds else 0.0
        return StepResult(
            seconds=seconds,
            operations=operations,
            issued=sum(issued for issued, _ in counted),
            completed=sum(completed for _, completed in counted),
            intervals=intervals,
            causes=no_causes(),
            little=Little(float(step.load.outstanding * len(self._hosts)), rate * whole.mean),
            command=command,
            notes=notes,
            interrupted=finished.interrupted,
        )

    def ceiling(self, outstanding: int) -> Ceiling | None:
        """Returns `None`, since the limit of this machine is not that of the hosts."""
        return None

    def close(self) -> None:
        """Removes job files and logs. The servers belong to the user."""
        self._folder.cleanup()

    def _parts(
        self, path: Path, finished: tool.Finished, command: list[str]
    ) -> list[dict[str, Any]] | None:
        """Returns each host's part, in the hosts' order, or `None` if an interruption left none."""
        try:
            clients = document.parse(path.read_text())["client_stats"]
        except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
            if finished.interrupted:
                return None
            raise LabError(
                f"fio ended well, but its JSON cannot be read: {error}",
                "Try another version of fio, the same on all hosts.",
            ) from error
        known = {
            (part.get("hostname"), part.get("port")): part
            for part in clients[::-1]
            if part.get("jobname") != "All clients"
        }
        parts = []
        for host in self._hosts:
            part = known.get((host.name, host.port))
            if part is None:
                if finished.interrupted:
                    return None
                raise ToolError(
                    command,
                    f"{host.name}:{host.port} gave no result\n{finished.errors}{finished.output}",
                    "Look at its fio --server.",
                )
            if part["error"]:
                raise ToolError(
                    command, f"{host.name}: error {part['error']} in the job\n{finished.output}"
                )
            parts.append(part)
        return parts

    def _probed(self, options: dict[str, str], capacity: int, block: int) -> job.Destination:
        """Returns a destination with the best engine that works on every host.

        The probe lays out the file on hosts that lack it."""
        refused: list[ToolError] = []
        for engine in _ENGINES:
            text = "\n".join(
                [
                    "[global]",
                    *(f"{key}={value}" for key, value in options.items()),
                    f"ioengine={engine}",
                    "rw=randread",
                    f"bs={max(block, 4096)}",
                    f"size={capacity}",
                    "runtime=50ms",
                    "time_based=1",
                    "thread=1",
                    "[probe]",
                    "",
                ]
            )
            try:
                finished, folder, command = self._fio_run([text] * len(self._hosts))
                if self._parts(folder / "out.json", finished, command) is None:
                    raise tool.Interrupted("interrupted", "Nothing was measured yet.")
                return job.Destination(options, engine, capacity, block)
            except ToolError as error:
                refused.append(error)
        raise refused[0]

    def _fio_run(self, texts: list[str]) -> tuple[tool.Finished, Path, list[str]]:
        self._steps += 1
        folder = Path(self._folder.name) / str(self._steps)
        folder.mkdir()
        command = [self._fio, "--output-format=json+", "--output=out.json"]
        for number, (host, text) in enumerate(zip(self._hosts, texts, strict=True)):
            (folder / f"{number}.fio").write_text(text)
            command += [host.client, f"{number}.fio"]
        try:
            return tool.run(command, folder), folder, command
        except ToolError as error:
            error.way_out = (
                "Start fio --server on each host, the same version everywhere, and let this "
                "machine reach its port: it asks nobody for a password, so keep it on a network "
                "of your own."
            )
            raise


def _listed(hosts: list[Host]) -> str:
    return ", ".join(f"{host.name}:{host.port}" for host in hosts)


def merged(parts: Any) -> dict[str, Operation]:
    """Merges every host's operations: counts and bytes add up, bins merge."""
    known: dict[str, list[Operation]] = {}
    for part in parts:
        for kind, operation in part.items():
            known.setdefault(kind, []).append(operation)
    return {
        kind: Operation(
            Moments.merged(operation.moments for operation in operations),
            sum(operation.bytes for operation in operations),
            Histogram.merged(operation.histogram for operation in operations),
        )
        for kind, operations in known.items()
    }


def _intervals(folder: Path, hosts: list[Host], parts: list[dict[str, Any]]) -> pl.DataFrame:
    """Returns the seconds summed over all hosts. They begin together, as fio starts its clients at
    one moment."""
    frames = []
    for host, part in zip(hosts, parts, strict=True):
        own = folder / host.name
        own.mkdir()
        suffix = f".log.{host.name}"
        for log in folder.glob(f"{job.LOGS}_*{suffix}"):
            log.rename(own / f"{log.name.removesuffix(suffix)}.log")
        frames.append(
            output.intervals(own, part, from_server=True).filter(pl.col("operation") != "all")
        )
    every = pl.concat(frames)
    rows = []
    for (start, operation), group in every.group_by(
        "start_seconds", "operation", maintain_order=True
    ):
        length = float(group["length_seconds"].to_numpy().max())
        rows.append((start, length, operation, *output.together(group)))
    frame = pl.DataFrame(rows, schema=INTERVALS, orient="row")
    # Within a second all rows have one length, by which `all` is grouped.
    longest = pl.col("length_seconds").max().over("start_seconds")
    return output.with_all(frame.with_columns(longest).sort("start_seconds", "operation"))
