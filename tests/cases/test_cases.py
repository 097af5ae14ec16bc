"""Cases from public bug reports of comparable systems: hemi does what is right in each.

A case is a directory with a script. It needs nothing but HEMI, the program, so that it can be
given to whoever reports the like."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hemi_harness.hemi import HEMI

CASES = sorted(path.parent for path in Path(__file__).parent.glob("*/run.sh"))
MISSING = 77
LIMIT = 200.0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_case_has_the_right_outcome(case: Path) -> None:
    environment = os.environ | {"HEMI": str(Path(HEMI).absolute())}
    done = subprocess.run(
        [case / "run.sh"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    if done.returncode == MISSING:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout
