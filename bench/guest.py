"""Waits for results of a benchmark that runs inside a user-mode kernel."""

from __future__ import annotations

import time
from pathlib import Path

from hemi_harness.sandbox import Process


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
