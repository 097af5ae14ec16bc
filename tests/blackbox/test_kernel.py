"""A few rounds of the block-device tests in a user-mode kernel, if `make kernel-test` has built
one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hemi_harness.hemi import HEMI
from hemi_harness.user_mode import KERNEL, MISSING

TREE = Path(__file__).parent.parent.parent


@pytest.mark.skipif(not KERNEL.exists(), reason=f"not built: {MISSING}")
def test_volumes_as_block_devices() -> None:
    done = subprocess.run(
        [sys.executable, TREE / "tests/kernel/run.py", "--kernel", KERNEL, "--rounds", "3"],
        env={**os.environ, "HEMI": str(HEMI), "PYTHONPATH": str(TREE / "tests/blackbox")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
