"""The task function: one simulation, the same on this machine and on any other."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from hemi_lab import tool
from hemi_lab.drivers.simulated import INSTALL
from hemi_lab.errors import LabError
from hemi_lab.sweeps.cases import Attached, Task, build
from hemi_lab.sweeps.tables import tables

_DEEP = Path("a/b/c/d")
"""The spec's place in its temporary directory. Names with up to four `..` stay inside."""


@dataclass(frozen=True)
class Simulated:
    """The outcome of a task: its tables, or the reason why there are none."""

    task: Task
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    failed: str | None = None
    way_out: str = ""


def simulate(task: Task) -> Simulated:
    """Runs a task. Failures are returned, since they have to survive the way back."""
    try:
        return Simulated(task, tables(_report(task), task))
    except LabError as error:
        return Simulated(task, failed=error.what, way_out=error.way_out)
    except (OSError, ValueError, KeyError) as error:
        return Simulated(task, failed=f"{type(error).__name__}: {error}")


def _report(task: Task) -> dict[str, object]:
    hemi = _hemi(task)
    with tempfile.TemporaryDirectory(prefix="hemi-lab-sweep-") as name:
        folder = Path(name) / _DEEP
        folder.mkdir(parents=True)
        spec = folder / "spec.toml"
        spec.write_text(task.spec_text)
        for item in task.attached:
            _put(item, folder, Path(name))
        # Run there, so that messages name the spec without a temporary directory.
        command = [hemi, "sim", "run", spec.name, "--case", str(task.case)]
        command += ["--seed", str(task.seed), "--jobs", "1", "--json", "report.json"]
        if task.snapshots is not None:
            command += ["--snapshots", task.snapshots]
        if tool.run(command, folder).interrupted:
            raise KeyboardInterrupt
        reports: list[dict[str, object]] = json.loads((folder / "report.json").read_text())
    return reports[0]


def _hemi(task: Task) -> str:
    """Returns this machine's simulator, which has to be the one in the key."""
    own = task.version.hemi
    if not Path(own).is_file():
        own = tool.find("hemi", "HEMI", INSTALL)
    found = build(own)
    if found != task.version.build:
        raise LabError(
            f"{own} on {os.uname().nodename} is another build of hemi ({found}) than the sweep's "
            f"({task.version.build})",
            "Install the same binary on every machine, or name it there with HEMI.",
        )
    return own


def _put(item: Attached, folder: Path, root: Path) -> None:
    if Path(item.name).is_absolute():
        if not Path(item.name).is_file():
            raise LabError(
                f"{item.name} is not on {os.uname().nodename}",
                "Name it from the spec's directory, or put it on a file system of all machines.",
            )
        return
    path = Path(os.path.normpath(folder / item.name))
    if not path.is_relative_to(root):
        raise LabError(f"{item.name} is too far from the spec", "Put it beside the spec.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if item.content is not None:
        path.write_bytes(item.content)
    elif Path(item.path).is_file():
        path.symlink_to(item.path)
    else:
        raise LabError(
            f"{item.path} is not on {os.uname().nodename}, and too large to be sent there",
            "Put it on a file system of all machines.",
        )
