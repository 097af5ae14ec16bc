"""Traces as tables: hemi reads every format (`hemi trace convert`), and the lab only its tables."""

from __future__ import annotations

import hashlib
import json
import subprocess
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from hemi_lab import tool
from hemi_lab.drivers.simulated import INSTALL
from hemi_lab.errors import LabError, ToolError, UsageError
from hemi_lab.sweeps.cases import build
from hemi_lab.tool import Interrupted

_TABLE_MAGIC = b"PAR1"
_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
"""Programs that decompress a file, by its first bytes."""


@dataclass(frozen=True)
class Reading:
    """The way to read traces, as far as it was said: options of `hemi trace convert`."""

    format: str | None = None
    time_unit: str | None = None
    event: str | None = None

    @property
    def options(self) -> list[str]:
        """Returns them as words of a command line."""
        names = {"--from": self.format, "--time-unit": self.time_unit, "--event": self.event}
        return [word for name, value in names.items() if value for word in (name, value)]


def table(file: Path, reading: Reading, folder: Path) -> Path:
    """Returns a trace's table: the file itself, or one that `folder` keeps for its content."""
    try:
        with file.open("rb") as stream:
            begin = stream.read(8)
            stream.seek(0)
            content = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "Name a trace.") from error
    if begin.startswith(_TABLE_MAGIC):
        return file
    hemi = tool.find("hemi", "HEMI", INSTALL)
    meant = json.dumps([content, asdict(reading), build(hemi)])
    kept = folder / f"{hashlib.sha256(meant.encode()).hexdigest()[:32]}.parquet"
    if not kept.exists():
        temporary = folder / f".{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _convert(hemi, file, begin, reading, temporary)
            temporary.replace(kept)
        except OSError as error:
            raise LabError(f"{kept}: {error.strerror}", "Give another --out.") from error
        finally:
            temporary.unlink(missing_ok=True)
    return kept


def _convert(hemi: str, file: Path, begin: bytes, reading: Reading, into: Path) -> None:
    program = next((name for magic, name in _COMPRESSED.items() if begin.startswith(magic)), None)
    source = "-" if program else str(file)
    command = [hemi, "trace", "convert", source, str(into), "--to", "parquet", *reading.options]
    if program is None:
        _run(command, file, subprocess.DEVNULL)
        return
    variable, way_out = f"HEMI_LAB_{program.upper()}", f"Install {program}, or decompress it."
    unpack = [tool.find(program, variable, way_out), "-dc"]
    with tool.start([*unpack, str(file)]) as unpacked:
        failed = None
        try:
            _run(command, file, unpacked.stdout)
        except LabError as error:
            failed = error
        assert unpacked.stdout is not None and unpacked.stderr is not None
        unpacked.stdout.close()
        said = unpacked.stderr.read().decode(errors="replace").strip()
    # A negative status is a signal: the trace ended before the file.
    if unpacked.returncode > 0:
        raise LabError(said, "The compressed file is damaged or cut: get it again.")
    if failed is not None:
        raise failed


def _run(command: list[str], file: Path, stdin: tool.Stream) -> None:
    try:
        if tool.run(command, stdin=stdin).interrupted:
            raise Interrupted(f"{file}: interrupted", "The same command again reads it anew.")
    except ToolError as error:
        if error.code != UsageError.exit_code:
            raise
        what, _, way_out = error.message.partition("\nhint: ")
        what = what.removeprefix("error: ").replace("standard input", str(file))
        raise UsageError(what, way_out.strip().replace("--from", "--format")) from error
