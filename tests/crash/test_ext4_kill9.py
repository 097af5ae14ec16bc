"""One round of the crash script with either leg frozen. `make crash-ext4` runs more."""

from __future__ import annotations

import pytest
from ext4_kill9 import survive
from hemi_harness import Sandbox


@pytest.mark.parametrize("frozen", [0, 1])
def test_ext4_survives_kill_9_with_a_leg_frozen(sandbox: Sandbox, frozen: int) -> None:
    survive(sandbox, frozen, 1, print)
