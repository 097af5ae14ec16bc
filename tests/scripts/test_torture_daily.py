"""New seeds of the day: a find is reported loudly, and fails `make torture-daily`, not `make
test`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DAY = 20779
FIRST = 41_000_000_000_000 + DAY * 100_000
SEED = FIRST + 17

FINDS = f"""\
echo "seed {SEED}: P1/P3 broken: sector 384 read as version 0"
echo "    look closer: hemi-torture --seed {SEED} --shrink"
exit 1
"""
KEEPS = 'echo "violations 0"'
DIES = 'echo "thread panicked" >&2; kill -9 $$'


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "release").mkdir()
    return tmp_path


def plant(target: Path, does: str) -> None:
    """Puts a script in the place of the built hemi-torture. It records its arguments."""
    torture = target / "release" / "hemi-torture"
    torture.write_text(f'#!/bin/sh\necho "$@" >"{target}/called"\n{does}\n')
    torture.chmod(0o755)


def make(goal: str, target: Path) -> tuple[int, str]:
    done = subprocess.run(
        ["make", "-C", ROOT, goal, "CARGO=true", f"TARGET_DIR={target}", f"DAY={DAY}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("goal", "code"), [("torture-daily", 2), ("torture-report", 0)])
def test_a_find_is_told_with_its_seed_promise_and_command(
    target: Path, goal: str, code: int
) -> None:
    plant(target, FINDS)
    got, printed = make(goal, target)
    assert got == code, printed
    found = (target / "torture-daily.found").read_text()
    assert found in printed
    for said in (
        f"seed {SEED} broke P1/P3",
        f"{target}/release/hemi-torture --seeds {SEED}..{SEED + 1} --doublecheck",
        f"make torture-daily DAY={DAY}",
    ):
        assert said in found, found
    assert f"--seeds {FIRST}..{FIRST + 100_000}" in (target / "called").read_text()
    assert "version 0" in (target / "torture-daily.log").read_text()


@pytest.mark.parametrize(("goal", "code"), [("torture-daily", 2), ("torture-report", 0)])
def test_a_torture_that_dies_is_told_too(target: Path, goal: str, code: int) -> None:
    plant(target, DIES)
    got, printed = make(goal, target)
    assert got == code, printed
    assert "exit status 137" in printed and "thread panicked" in printed
    assert (target / "torture-daily.found").exists()


@pytest.mark.parametrize("goal", ["torture-daily", "torture-report"])
def test_a_day_without_a_find_leaves_no_report(target: Path, goal: str) -> None:
    plant(target, FINDS)
    make("torture-report", target)
    plant(target, KEEPS)
    assert make(goal, target)[0] == 0
    assert not (target / "torture-daily.found").exists()


def test_a_report_that_cannot_be_made_is_an_error(target: Path) -> None:
    got, printed = make("torture-report", target)
    assert got == 2
    assert "hemi-torture" in printed
