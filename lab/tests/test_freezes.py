"""A freeze on a volume that the lab creates, serves and removes, with real hemi and fio."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hemi_lab.plans.model import Plan
from hemi_lab.results.store import Reader
from hemi_lab.runner import Order, run
from hemi_lab.targets.parse import parse

PLAN = Plan.model_validate(
    {
        "name": "short",
        "title": "short",
        "source": "a test",
        "tests": [
            {
                "kind": "freeze",
                "name": "writes",
                "title": "writes",
                "purge": False,
                "load": {"read_percent": 0, "sizes": "4 KiB", "queue_depth": 4},
                "freezes": ["5 s"],
                "legs": [1],
                "calm": "1 s",
                "before": "3 s",
                "after": "1 s",
            }
        ],
    }
)


@pytest.mark.skipif("HEMI" not in os.environ, reason="HEMI names no hemi binary")
@pytest.mark.parametrize("policy", ["first", pytest.param("all", marks=pytest.mark.long)])
def test_a_plain_mirror_waits_for_the_leg(tmp_path: Path, policy: str) -> None:
    # A path longer than that of a unix socket may be.
    legs = tmp_path / ("legs" * 30)
    legs.mkdir()
    file = tmp_path / "pair.toml"
    file.write_text(f'size = "16 MiB"\nfolder = "{legs}"\n[[legs]]\n[[legs]]\n')
    ended = run(
        Order(PLAN, "", parse(f"setup:{file},policy={policy}"), tmp_path / "runs"),
        lambda step, found: None,
    )
    assert ended.error is None
    (freeze,) = Reader(ended.folder).table("freezes").iter_rows(named=True)
    assert freeze["leg"] == 1
    # The freeze is far longer than any pause of a busy machine, and load only makes it longer.
    assert freeze["ended_seconds"] - freeze["began_seconds"] >= 5
    assert freeze["before_count"] > 0
    if policy == "all":
        # Nothing is done before the thaw. It may begin a little after it was requested.
        assert freeze["longest_request_seconds"] > 2.5
        assert freeze["backlog_peak_bytes"] == 0
    else:
        assert freeze["during_count"] > 0
    # Nothing is left over.
    assert list(legs.iterdir()) == []
