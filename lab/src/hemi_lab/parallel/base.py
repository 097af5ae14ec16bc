"""What a pool is. Another scheduler is one more class of this shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from hemi_lab.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")

KINDS = ("local", "ray")


class Pool(Protocol):
    """Runs a function over tasks and gives results as they come, in any order.

    The function and its tasks are sent to other processes: it is a module's own, and it returns
    what went wrong instead of raising it."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Results in the order in which they are done. Closing the iterator, or Ctrl-C, ends
        what is still running."""


def pool(on: str, jobs: int | None, address: str | None = None) -> Pool:
    """The pool of that name; `jobs` tasks at a time, as many as there are cores if left out."""
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
