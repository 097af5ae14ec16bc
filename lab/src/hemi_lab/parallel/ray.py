"""A Ray cluster, or Ray on this machine (the extra `hemi-lab[ray]`)."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hemi_lab.errors import LabError, UsageError
from hemi_lab.parallel.base import R, T

_INSTALL = "Install it: pip install 'hemi-lab[ray]'."

_AHEAD = 4
"""Tasks in flight for each core, sent while others run."""


class RayPool:
    """A pool of Ray tasks, one core each."""

    def __init__(self, jobs: int | None, address: str | None) -> None:
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise UsageError("--on ray: Ray is not installed", _INSTALL) from error
        self._jobs = jobs
        self._address = address

    def _start(self) -> None:
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            options |= {"num_cpus": self._jobs, "include_dashboard": False, "address": "local"}
        else:
            # The cluster's machines get this very package with the tasks.
            package = importlib.import_module("hemi_lab")
            options |= {"address": self._address, "runtime_env": {"py_modules": [package]}}
        try:
            self._ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            named = self._address or "this machine"
            raise LabError(
                f"Ray on {named}: {error}", "ray status tells whether a cluster is there."
            ) from error

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yields results in order of completion. A task whose machine was lost runs again."""
        ray = self._ray
        self._start()
        under_way: list[Any] = []
        try:
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            most = self._jobs if self._jobs and self._address else _AHEAD * cores
            remote = ray.remote(num_cpus=1, max_retries=3)(function)
            remaining = iter(tasks)
            while True:
                for task in remaining:
                    under_way.append(remote.remote(task))
                    if len(under_way) >= most:
                        break
                if not under_way:
                    return
                done, under_way = ray.wait(under_way, num_returns=1)
                for reference in done:
                    yield ray.get(reference)
        except ray.exceptions.RayError as error:
            raise LabError(f"Ray: {error}", "Run it again: what is done is kept.") from error
        finally:
            for reference in under_way:
                ray.cancel(reference)
            ray.shutdown()
