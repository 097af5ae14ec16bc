"""Local processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import FrameType

from hemi_lab.errors import LabError
from hemi_lab.parallel.base import R, T


class LocalPool:
    """A pool of one process for each job."""

    def __init__(self, jobs: int | None) -> None:
        self._jobs = jobs or len(os.sched_getaffinity(0))

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yields results in order of completion."""
        # Forked children would share the locks of polars' threads, so they are spawned.
        context = multiprocessing.get_context("spawn")
        jobs = min(self._jobs, max(1, len(tasks)))
        executor = ProcessPoolExecutor(jobs, mp_context=context, initializer=_quiet)
        remaining = iter(tasks)
        under_way: set[Future[R]] = set()
        whole = False
        try:
            while True:
                # Submit a little more than can run, so that no process waits and few tasks are
                # lost.
                for task in remaining:
                    under_way.add(executor.submit(function, task))
                    if len(under_way) >= 2 * jobs:
                        break
                if not under_way:
                    whole = True
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BrokenProcessPool as error:
            raise LabError(
                "a process of the pool was killed, perhaps for want of memory",
                "Run it again with fewer --jobs: what is done is kept.",
            ) from error
        finally:
            if not whole:
                for child in multiprocessing.active_children():
                    child.terminate()
            executor.shutdown(wait=True, cancel_futures=True)


def _quiet() -> None:
    """Ignores the terminal's Ctrl-C, which is the parent's to answer.

    The parent's SIGTERM ends a task, which then ends the tool it runs."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
