"""A user-mode Linux kernel on the host's own files."""

from __future__ import annotations

import os
from pathlib import Path

_TREE = Path(__file__).parents[3]
KERNEL = Path(os.environ.get("CARGO_TARGET_DIR", _TREE / "target")) / "kernel" / "linux"
"""The kernel of `make user-mode-kernel`, which has every driver built in."""
MISSING = "the user-mode kernel (`make user-mode-kernel`)"
"""The kernel's name where it has not been built."""


def kernel_arguments(memory: str) -> list[str]:
    """Returns arguments for a kernel with this memory, the host's root, and our output as console.

    The kernel passes unknown arguments to init as environment variables.
    """
    return [
        f"mem={memory}",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "rw",
        "con=null",
        "con0=null,fd:1",
        "quiet",
    ]
