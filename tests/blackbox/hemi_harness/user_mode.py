"""A user-mode Linux kernel on the host's own files."""

from __future__ import annotations


def kernel_arguments(memory: str) -> list[str]:
    """Has the kernel take so much memory, the host's root as its own, and our output as console.

    It hands what it does not know to init, as environment.
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
