"""The task function: one part of a trace, the same on this machine and on any other."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from hemi_lab import tool
from hemi_lab.drivers.simulated import INSTALL
from hemi_lab.errors import LabError
from hemi_lab.sweeps.cases import build
from hemi_lab.trace_analysis import recording
from hemi_lab.trace_analysis.parts import Tables, tables
from hemi_lab.trace_analysis.reading import Readable, Text, decompressed, pieces, said
from hemi_lab.trace_analysis.requests import BadLineError
from hemi_lab.trace_analysis.seams import merged_gradually
from hemi_lab.trace_analysis.tasks import Task, lab_version

PIECE = 16 << 20
"""Bytes of text in memory at a time if a file is one task."""


@dataclass(frozen=True)
class Analysed:
    """The outcome of a task: its tables, or the reason why there are none."""

    task: Task
    tables: Tables = field(default_factory=dict)
    failed: str | None = None
    way_out: str = ""
    exit_code: int = 1


def analyse(task: Task) -> Analysed:
    """Reads a part. Failures are returned, since they have to survive the way back."""
    try:
        _same_version(task)
        return Analysed(task, merged_gradually(_tables(task)))
    except LabError as error:
        return Analysed(task, failed=error.what, way_out=error.way_out, exit_code=error.exit_code)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        return Analysed(task, failed=f"{task.named}: {type(error).__name__}: {error}")


def _same_version(task: Task) -> None:
    if not task.version.startswith(lab_version()):
        raise LabError(
            f"hemi-lab on {os.uname().nodename} is {lab_version()}, and the analysis was begun by "
            f"{task.version}",
            "Install the same hemi-lab on every machine.",
        )


def _tables(task: Task) -> Iterator[Tables]:
    for requests in _requests(task):
        yield tables(requests, task.block)


def _requests(task: Task) -> Iterator[pl.DataFrame]:
    path = Path(task.path)
    if not path.is_file():
        raise LabError(
            f"{path} is not on {os.uname().nodename}",
            "Put it on a file system of all machines, at the same path.",
        )
    if task.hemi is not None:
        _unchanged(task, path)
        yield from recording.read(_hemi(task), path, PIECE)
        return
    text = Text(task.format, task.iolog_version)
    if task.compressed is not None:
        _unchanged(task, path)
        with decompressed(path, task.compressed) as stream:
            for piece in pieces(stream, PIECE, task.named):
                if text.ended:
                    break
                yield _read(task, text, piece.text, piece.first_line)
        return
    if task.end - task.start > 2 * PIECE:
        # A file that is one task, or one of very long parts.
        _unchanged(task, path)
        with path.open("rb") as stream:
            stream.seek(task.start)
            for piece in pieces(_Limited(stream, task.end - task.start), PIECE, task.named):
                yield _read(task, text, piece.text, piece.first_line)
        return
    with path.open("rb") as stream:
        stream.seek(task.start)
        content = stream.read(task.end - task.start)
    if hashlib.sha256(content).hexdigest() != task.digest:
        raise _changed(task)
    yield _read(task, text, content, 0)


class _Limited:
    """The next `left` bytes of a stream."""

    def __init__(self, stream: Readable, left: int) -> None:
        self._stream = stream
        self._left = left

    def read(self, size: int) -> bytes:
        """Reads as from a stream."""
        content = self._stream.read(min(size, self._left))
        self._left -= len(content)
        return content


def _read(task: Task, text: Text, content: bytes, lines_before: int) -> pl.DataFrame:
    try:
        return text.read(content)
    except BadLineError as error:
        raise said(error, task.named, lines_before + _lines_before(task)) from error


def _lines_before(task: Task) -> int:
    """Returns the number of lines before a part. Called only to report an error in it."""
    count, left = 0, task.start
    with Path(task.path).open("rb") as stream:
        while left > 0 and (content := stream.read(min(PIECE, left))):
            count += content.count(b"\n")
            left -= len(content)
    return count


def _unchanged(task: Task, path: Path) -> None:
    whole = hashlib.sha256()
    left = task.end - task.start
    with path.open("rb") as stream:
        stream.seek(task.start)
        while left > 0 and (content := stream.read(min(1 << 20, left))):
            whole.update(content)
            left -= len(content)
    if whole.hexdigest() != task.digest:
        raise _changed(task)


def _changed(task: Task) -> LabError:
    return LabError(
        f"{task.path} on {os.uname().nodename} has other bytes than when the analysis began",
        "Let nobody write to it meanwhile, and have the same file on every machine.",
    )


def _hemi(task: Task) -> str:
    """Returns this machine's hemi, which has to be the one in the key."""
    own = str(task.hemi)
    if not Path(own).is_file():
        own = tool.find("hemi", "HEMI", INSTALL)
    if not task.version.endswith(build(own)):
        raise LabError(
            f"{own} on {os.uname().nodename} is another build of hemi than the analysis's",
            "Install the same binary on every machine, or name it there with HEMI.",
        )
    return own
