"""A few rounds of the block-device tests in a user-mode kernel, if `make kernel-test` has built
one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hemi_harness.hemi import HEMI

TREE = Path(__file__).parent.parent.parent
KERNEL = Path(os.environ.get("CARGO_TARGET_DIR", TREE / "target")) / "kernel" / "linux"


@pytest.mark.skipif(not KERNEL.exists(), reason="no user-mode kernel: `make kernel-test` builds it")
def test_volumes_as_block_devices() -> None:
    done = subprocess.run(
        [sys.executable, TREE / "tests/kernel/run.py", "--kernel", KERNEL, "--rounds", "3"],
        env={**os.environ, "HEMI": str(HEMI), "PYTHONPATH": str(TREE / "tests/blackbox")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
