"""Runs benchmarks inside a user-mode kernel, and waits for their results."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from hemi_harness import HEMI, Sandbox
from hemi_harness.sandbox import Process
from hemi_harness.user_mode import KERNEL, MISSING, kernel_arguments

from .settings import Settings


def missing(tools: Iterable[str]) -> list[str]:
    """Returns those of these tools that are not installed, and the kernel if it is not built."""
    lacking = [tool for tool in tools if not shutil.which(tool)]
    return lacking if KERNEL.exists() else [*lacking, MISSING]


def keys_of(rounds: int, systems: Sequence[str], cases: Sequence[str]) -> list[str]:
    """Returns the names of all runs in rounds of all systems, in their order."""
    return [
        f"{number + 1}.{system}.{case}"
        for number in range(rounds)
        for system in systems
        for case in cases
    ]


def values_of(data: dict[str, Any], system: str, case: str, key: str) -> list[float]:
    """Returns one figure of a system's runs of a case, in all rounds."""
    ending = f".{system}.{case}"
    return [run[key] for name, run in data["runs"].items() if name.endswith(ending)]


def run_in_guest(
    settings: Settings,
    data: dict[str, Any],
    *,
    memory: str,
    script: str,
    variables: dict[str, Any],
    keys: Sequence[str],
    limit: float,
    take: Callable[[str, Path, Path], dict[str, Any]],
    told: Callable[[str, dict[str, Any]], None],
) -> None:
    """Runs a script of this directory as init of a guest, and puts the figures of its runs into
    `data`.

    `variables` go to the kernel's command line, and from there to the script. `take` makes a run's
    figures from its key, its result and the directory of all results; `told` hears of them. A run
    that takes more than `limit` seconds fails.
    """
    with Sandbox(settings.directory) as box:
        guest = box.start(
            KERNEL,
            *kernel_arguments(memory),
            f"init={Path(__file__).parent / script}",
            f"OUT={box.dir}",
            f"HEMI={HEMI}",
            *(f"{name}={value}" for name, value in variables.items()),
            name="linux",
        )
        for key in keys:
            path = result_of(guest, box.dir, key, limit)
            data["runs"][key] = got = take(key, path, box.dir)
            told(key, got)
        guest.wait()
        data["kernel"] = (box.dir / "kernel").read_text().strip()


def result_of(guest: Process, directory: Path, key: str, seconds: float) -> Path:
    """Waits for the file with a result. Fails with the guest's log if it does not come in time."""
    path = directory / f"{key}.json"
    deadline = time.monotonic() + seconds
    # The file appears whole. A guest that ended may have made it just before.
    while guest.running and not path.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    if not path.exists():
        guest.terminate()
        raise AssertionError(f"no result for {key} from the guest:\n{why(directory)}")
    return path


def why(directory: Path) -> str:
    """Returns the guest's logs of its failure."""
    parts = []
    for name, length in (("failed", 500), ("guest.log", 4000), ("linux.log", 1000)):
        path = directory / name
        if path.exists():
            parts.append(f"--- {name}\n{path.read_text(errors='replace')[-length:]}")
    return "\n".join(parts)
