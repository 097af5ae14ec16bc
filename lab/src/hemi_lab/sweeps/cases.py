"""The cases of a spec as tasks, each identified by its spec, seed and version."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hemi_lab import tool
from hemi_lab.drivers.simulated import INSTALL
from hemi_lab.errors import UsageError

_MOST_CARRIED = 8 << 20
"""Largest file that goes with a task, in bytes. Larger ones must exist on the task's machine."""


@dataclass(frozen=True)
class Version:
    """The simulator's version and the hash of its binary."""

    hemi: str
    number: str
    build: str

    @property
    def text(self) -> str:
        """A text such as `0.2.0+0123456789abcdef`. Equal texts give equal results."""
        return f"{self.number}+{self.build}"

    @staticmethod
    def present() -> Version:
        """Returns the version of the hemi on this machine."""
        hemi = tool.find("hemi", "HEMI", INSTALL)
        said = tool.run([hemi, "--version"]).output.strip().removeprefix("hemi ")
        return Version(hemi, said, build(hemi))


def build(hemi: str) -> str:
    """Returns 16 hexadecimal digits of a binary's hash."""
    with Path(hemi).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@dataclass(frozen=True)
class Attached:
    """A file that a spec names, such as a preset or a trace."""

    name: str
    """Name in the spec, relative to the spec's directory."""
    digest: str
    content: bytes | None
    """`None` if it is too large to go with the task."""
    path: str
    """Path on the machine that made the task."""


@dataclass(frozen=True)
class Task:
    """One simulation, with everything that another machine needs."""

    key: str
    """Hash of the case's spec, its seed and the version."""
    spec_hash: str
    """Hash of the case's spec alone."""
    case: int
    seed: int
    values: dict[str, Any]
    """The swept values, by dotted key."""
    spec_text: str
    version: Version
    attached: list[Attached] = field(default_factory=list)
    snapshots: str | None = None
    """A directory of preconditioned flash, on the machine that runs the task."""

    @property
    def partition(self) -> str:
        """Directory of its results."""
        return f"spec={self.spec_hash}"


def tasks(spec: Path, seeds: list[int], snapshots: Path | None = None) -> list[Task]:
    """Returns every case of a spec, with each of the seeds if there are any."""
    try:
        text = spec.read_text()
        table = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{spec}: {error.strerror}", "Name a file of hemi sim run.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{spec}: {error}", "It has to be TOML.") from error
    version = Version.present()
    listed = _listed(version.hemi, spec)
    files = {item.name: item for item in _attached(table, spec.parent, "")}
    found = []
    for case in listed:
        meant = _case(table, case["values"])
        named = {item.name: item.digest for item in files.values()}
        spec_hash = _hash({"spec": meant, "files": named})
        for seed in seeds or [case["seed"]]:
            key = _hash({"spec": spec_hash, "seed": seed, "version": version.text})
            found.append(
                Task(
                    key,
                    spec_hash,
                    case["case"],
                    seed,
                    case["values"],
                    text,
                    version,
                    list(files.values()),
                    str(snapshots.resolve()) if snapshots else None,
                )
            )
    return found


def _listed(hemi: str, spec: Path) -> list[dict[str, Any]]:
    command = [hemi, "sim", "run", str(spec), "--list", "--json"]
    listed: list[dict[str, Any]] = json.loads(tool.run(command).output)
    return listed


def _case(table: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Returns a case as the spec with its values, without keys that change nothing."""
    meant: dict[str, Any] = json.loads(json.dumps(table, default=str))
    for key in ("sweep", "title", "seed"):
        meant.pop(key, None)
    for key, value in values.items():
        *sections, last = key.split(".")
        if not sections and last in ("title", "seed"):
            continue
        inner = meant
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return meant


def _attached(value: Any, folder: Path, place: str) -> Iterator[Attached]:
    """Yields the files that a spec names, and those that they name in turn."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _attached(inner, folder, place)
    elif isinstance(value, list):
        for inner in value:
            yield from _attached(inner, folder, place)
    elif isinstance(value, str) and 0 < len(value) < 4096 and "\n" not in value:
        path = folder / value
        try:
            if not path.is_file():
                return
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            small = path.stat().st_size <= _MOST_CARRIED
            content = path.read_bytes() if small else None
        except (OSError, ValueError):
            return
        name = value if Path(value).is_absolute() else str(Path(place) / value)
        yield Attached(name, digest, content, str(path.resolve()))
        if path.suffix == ".toml" and content is not None:
            try:
                inner = tomllib.loads(content.decode())
            except (tomllib.TOMLDecodeError, UnicodeDecodeError):
                return
            yield from _attached(inner, path.parent, str(Path(name).parent))


def _hash(meant: Any) -> str:
    text = json.dumps(meant, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
