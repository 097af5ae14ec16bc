"""Cuts traces into tasks, each identified by its content, the way it is read, and the version."""

from __future__ import annotations

import functools
import hashlib
import json
import mmap
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from hemi_lab import __version__, tool
from hemi_lab.drivers.simulated import INSTALL
from hemi_lab.errors import LabError, UsageError
from hemi_lab.sweeps.cases import build
from hemi_lab.trace_analysis.events import SUMMARY, iolog_version
from hemi_lab.trace_analysis.formats import NAMES, RECORDING_MAGIC, Format, format_of
from hemi_lab.trace_analysis.reading import compression

RANGE = 16 << 20
"""Bytes of text in a task: enough to be worth sending, little enough for many at a time."""
BLOCK = 4096

_FIRST_LINES = 4096
_SOURCES = (
    "formats requests columns events reading recording parts seams task ../statistics/histogram"
)


@dataclass(frozen=True)
class Task:
    """A part of a trace, with everything that another machine needs except the file."""

    key: str
    """Hash of the bytes, the way they are read, and the version."""
    reading: str
    """Hash of all that without the bytes."""
    path: str
    named: str
    """The file as the user named it."""
    start: int
    end: int
    digest: str
    """SHA-256 of the bytes from `start` to `end`."""
    format: Format
    block: int
    """Bytes of a block of the working set."""
    compressed: str | None
    iolog_version: int | None
    version: str
    """Version of the reading code, and of hemi for a recording."""
    hemi: str | None = None

    @property
    def partition(self) -> str:
        """Directory of its results."""
        return f"reading={self.reading}"


@dataclass(frozen=True)
class Trace:
    """Files that are one stream, and its parts in order."""

    name: str
    files: list[str]
    format: Format
    tasks: list[Task]


@dataclass(frozen=True)
class _Opened:
    path: Path
    format: Format
    compressed: str | None
    iolog_version: int | None

    @property
    def whole(self) -> bool:
        """True if it cannot be cut, because a part depends on those before."""
        return (
            self.format.name == "hemi"
            or self.compressed is not None
            or (self.format.name == "fio_iolog" and self.iolog_version != 3)
        )


@functools.cache
def lab_version() -> str:
    """Returns the version of the reading code. Equal texts give equal results."""
    folder = Path(__file__).parent
    whole = hashlib.sha256()
    for name in _SOURCES.split():
        whole.update((folder / f"{name}.py").read_bytes())
    return f"{__version__}+{whole.hexdigest()[:16]}"


def traces(
    files: list[Path],
    format_: str | None,
    time_unit: str | None = None,
    event: str | None = None,
    joined: bool = False,
    block: int = BLOCK,
    size: int = RANGE,
    show: Callable[[int], None] = lambda read: None,
) -> list[Trace]:
    """Returns each file as a trace, or all as one, in tasks of about `size` bytes.

    Reads all files once, and reports the bytes read to `show`."""
    if block < 512 or block % 512:
        raise UsageError(f"--block {block}: no multiple of 512 B", "Give one, as in 4 KiB.")
    if size < 1:
        raise UsageError(f"--part {size}: nothing", "Give bytes, as in 32 MiB.")
    for number, file in enumerate(files):
        if any(file.resolve() == other.resolve() for other in files[:number]):
            raise UsageError(f"{file} is named twice", "Name each file once.")
    version = lab_version()
    found = []
    for file in files:
        opened = _opened(file, format_, time_unit, event)
        tasks = _tasks(opened, file, block, size, version, show)
        found.append(Trace(str(file), [str(file)], opened.format, tasks))
    if joined and len(found) > 1:
        formats = {trace.format for trace in found}
        if len(formats) > 1:
            raise UsageError("--joined: the files have unlike formats", "Analyse them apart.")
        every = [task for trace in found for task in trace.tasks]
        names = [str(file) for file in files]
        return [Trace(f"{names[0]} and {len(names) - 1} more", names, found[0].format, every)]
    return found


def _opened(file: Path, name: str | None, time_unit: str | None, event: str | None) -> _Opened:
    try:
        with file.open("rb") as stream:
            begins = stream.read(_FIRST_LINES)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "Name a trace.") from error
    if not begins:
        raise UsageError(f"{file} is empty", "Give a trace with requests.")
    recording = begins.startswith(RECORDING_MAGIC)
    if name is None and not recording:
        raise UsageError(
            f"{file} is no recording of hemi's, and nothing says what it is",
            f"Give --format with one of {', '.join(NAMES)}.",
        )
    format_ = format_of(name or "hemi", time_unit, event)
    if (format_.name == "hemi") != recording:
        really = "is a recording of hemi's" if recording else "is no recording of hemi's"
        raise UsageError(f"{file} {really}", f"--format {format_.name} is not what it is.")
    compressed = compression(file, begins)
    version = None
    if format_.name == "fio_iolog" and compressed is None:
        lines = begins.decode(errors="replace").splitlines()
        version = iolog_version(next((line for line in lines if line.strip()), ""))
    return _Opened(file, format_, compressed, version)


def _tasks(
    opened: _Opened, file: Path, block: int, size: int, version: str, show: Callable[[int], None]
) -> list[Task]:
    hemi = None
    if opened.format.name == "hemi":
        hemi = tool.find("hemi", "HEMI", INSTALL)
        version = f"{version}, hemi {build(hemi)}"
    try:
        with file.open("rb") as stream:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                end = _end(opened, content)
                cuts = [(0, end)] if opened.whole else list(ranges(content, end, size))
                digests = _digests(content, cuts, show)
    except (OSError, ValueError) as error:
        raise LabError(f"{file}: {error}", "Give a file that can be read.") from error
    made = []
    for (start, stop), digest in zip(cuts, digests, strict=True):
        # The first part of a log has the line with its version.
        log = opened.iolog_version if start else None
        how = {
            "format": asdict(opened.format),
            "block": block,
            "compressed": opened.compressed,
            "iolog_version": log,
            "version": version,
        }
        reading = _hash(how)
        key = _hash({"reading": reading, "bytes": digest})
        task = Task(
            key,
            reading,
            str(file.resolve()),
            str(file),
            start,
            stop,
            digest,
            opened.format,
            block,
            opened.compressed,
            log,
            version,
            hemi,
        )
        made.append(task)
    return made


def _end(opened: _Opened, content: mmap.mmap) -> int:
    if opened.format.name == "blkparse" and opened.compressed is None:
        summary = SUMMARY.search(content)
        if summary is not None:
            return summary.start()
    return len(content)


def ranges(content: mmap.mmap | bytes, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of at least `size` bytes that end at lines.

    When a file grows, all but the last range stay the same."""
    start = 0
    while start < end:
        newline = content.find(b"\n", start + size - 1, end)
        stop = newline + 1 if newline >= 0 else end
        yield start, stop
        start = stop


def _digests(
    content: mmap.mmap, cuts: list[tuple[int, int]], show: Callable[[int], None]
) -> list[str]:
    """Returns the hash of each range. Hashing releases the interpreter, so threads use all
    cores."""
    with memoryview(content) as view:

        def digest(cut: tuple[int, int]) -> str:
            with view[cut[0] : cut[1]] as part:
                return hashlib.sha256(part).hexdigest()

        found = []
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            for cut, done in zip(cuts, threads.map(digest, cuts), strict=True):
                found.append(done)
                show(cut[1] - cut[0])
        return found


def _hash(meant: object) -> str:
    text = json.dumps(meant, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
