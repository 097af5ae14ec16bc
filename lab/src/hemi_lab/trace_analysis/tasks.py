"""Cuts traces into tasks, each identified by its requests, the way it is read, and the version."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from hemi_lab import __version__
from hemi_lab.errors import UsageError
from hemi_lab.trace_analysis.conversion import Reading, table
from hemi_lab.trace_analysis.requests import described, digest, read

PART = 1 << 19
"""Requests of a task: enough to be worth sending, few enough for many at a time."""
BLOCK = 4096

_SOURCES = "requests parts ../statistics/histogram"


@dataclass(frozen=True)
class Task:
    """A part of a trace, with everything that another machine needs except the table."""

    key: str
    """Hash of the requests, the way they are read, and the version."""
    reading: str
    """Hash of all that without the requests."""
    path: str
    """The table."""
    named: str
    """The file as the user named it."""
    first: int
    """Its first row of the table."""
    count: int
    digest: str
    """Hash of the rows."""
    block: int
    """Bytes of a block of the working set."""
    version: str
    """Version of the reading code."""

    @property
    def partition(self) -> str:
        """Directory of its results."""
        return f"reading={self.reading}"


@dataclass(frozen=True)
class Trace:
    """Files that are one stream, and its parts in order."""

    name: str
    files: list[str]
    format: str
    size: int
    """Bytes of the files."""
    lacking: list[str]
    """Clauses that say what the files are known to lack."""
    tasks: list[Task]


@functools.cache
def lab_version() -> str:
    """Returns the version of the reading code. Equal texts give equal results."""
    folder = Path(__file__).parent
    whole = hashlib.sha256(pl.__version__.encode())
    for name in _SOURCES.split():
        whole.update((folder / f"{name}.py").read_bytes())
    return f"{__version__}+{whole.hexdigest()[:16]}"


def traces(
    files: list[Path],
    reading: Reading,
    tables: Path,
    joined: bool = False,
    block: int = BLOCK,
    part: int = PART,
    show: Callable[[], None] = lambda: None,
) -> list[Trace]:
    """Returns each file as a trace, or all as one, in tasks of `part` requests.

    Tables of converted traces are kept in `tables`. Calls `show` after each file."""
    if block < 512 or block % 512:
        raise UsageError(f"--block {block}: no multiple of 512 B", "Give one, as in 4 KiB.")
    for number, file in enumerate(files):
        if any(file.resolve() == other.resolve() for other in files[:number]):
            raise UsageError(f"{file} is named twice", "Name each file once.")
    found = []
    for file in files:
        found.append(_trace(file, table(file, reading, tables), block, part))
        show()
    if joined and len(found) > 1:
        if len({trace.format for trace in found}) > 1:
            raise UsageError("--joined: the files have unlike formats", "Analyse them apart.")
        every = [task for trace in found for task in trace.tasks]
        names = [str(file) for file in files]
        name, size = f"{names[0]} and {len(names) - 1} more", sum(trace.size for trace in found)
        lacking = [what for trace in found for what in trace.lacking]
        return [Trace(name, names, found[0].format, size, lacking, every)]
    return found


def _trace(file: Path, path: Path, block: int, part: int) -> Trace:
    known = described(path, str(file))
    if not known.rows:
        raise UsageError(f"{file} has no request", "Give a trace with requests.")
    reading = _hash({"block": block, "version": lab_version()})

    def task(first: int) -> Task:
        count = min(part, known.rows - first)
        content = digest(read(path, first, count))
        key = _hash({"reading": reading, "rows": content})
        own = str(path.resolve())
        return Task(key, reading, own, str(file), first, count, content, block, lab_version())

    # Polars releases the interpreter, so threads use all cores.
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        tasks = list(threads.map(task, range(0, known.rows, part)))
    lacking = [f"{file} {what}" for what in known.lacking]
    return Trace(str(file), [str(file)], known.format, file.stat().st_size, lacking, tasks)


def _hash(meant: object) -> str:
    text = json.dumps(meant, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
