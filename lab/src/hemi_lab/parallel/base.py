"""The interface of a pool. Another scheduler is one more class with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from hemi_lab.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")

KINDS = ("local", "ray")


class Pool(Protocol):
    """Runs a function over tasks and yields results as they come, in any order.

    The function and its tasks are sent to other processes. So the function is a module's own, and
    it returns its errors instead of raising them."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yields results in order of completion. Closing the iterator, or Ctrl-C, ends running
        tasks."""


def pool(on: str, jobs: int | None, address: str | None = None) -> Pool:
    """Returns the pool of that name. It runs `jobs` tasks at a time, by default one for each
    core."""
    if on == "local":
        from hemi_lab.parallel.local import LocalPool

        if address is not None:
            raise UsageError(
                f"--address {address}: local processes have no address", "Give --on ray with it."
            )
        return LocalPool(jobs)
    if on == "ray":
        from hemi_lab.parallel.ray import RayPool

        return RayPool(jobs, address)
    raise UsageError(f"--on {on}: there is no such pool", f"There are {' and '.join(KINDS)}.")
