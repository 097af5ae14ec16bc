"""A user-mode Linux kernel on the host's own files."""

from __future__ import annotations


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
