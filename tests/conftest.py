"""Fixtures: a sandbox for each test, whose logs are shown when the test fails."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hemi_harness import Sandbox
from hemi_harness.sandbox import sweep


def pytest_sessionstart() -> None:
    """Cleans up after killed runs, and lets a terminated run clean up itself."""
    sweep()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


_FAILED = pytest.StashKey[bool]()
_LOG_TAIL = 6000


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Yields a directory with processes and mounts that end with the test."""
    with Sandbox() as box:
        yield box
        if request.node.stash.get(_FAILED, False):
            for log in box.logs:
                text = log.read_text(errors="replace") if log.exists() else ""
                if text.strip():
                    print(f"--- {log.name}\n{text[-_LOG_TAIL:]}")
