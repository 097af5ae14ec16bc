"""A short form of the suite of hostile clients, with bounds for a busy machine."""

from __future__ import annotations

import pytest
import suite
from attacks import ATTACKS
from hemi_harness import Sandbox

# Bound for a machine that runs other tests as well. A starved client takes far longer.
PATIENCE_MS = 1000


@pytest.mark.parametrize("attack", ATTACKS)
def test_nobody_starves_beside_hostile_clients(sandbox: Sandbox, attack: str) -> None:
    target = suite.volume(sandbox)
    with suite.attacked(sandbox, target, attack, 16):
        figures = suite.victim(sandbox, target, 3)
    assert figures.p99 < PATIENCE_MS, figures
    assert target.status()["phase"] == "serving"


@pytest.mark.parametrize("attack", ["slow-readers", "slow-writers"])
def test_small_requests_pass_where_buffers_are_scarce(sandbox: Sandbox, attack: str) -> None:
    target = suite.volume(sandbox, "--set", "buffer_budget=16MiB")
    with suite.attacked(sandbox, target, attack, 16):
        figures = suite.victim(sandbox, target, 3)
    assert figures.max < PATIENCE_MS, figures
