"""Results on a disk that becomes full: saved data stays, and the error is reported."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from fakes import FakeDriver, FakeTarget
from hemi_lab.errors import LabError
from hemi_lab.plans.load import parse
from hemi_lab.results.model import Found
from hemi_lab.results.store import Reader
from hemi_lab.runner import Order, run
from hemi_lab.steps import Step

PLAN = """
name = "own"
title = "Own"
source = "mine"
[[tests]]
name = "writes"
title = "Writes"
kind = "sweep"
load = { read_percent = 0, sizes = "4 KiB" }
points = [[1, 1], [4, 32]]
time = "1 s"
"""


def test_a_result_whose_tables_have_no_room_is_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = pl.DataFrame.write_parquet
    full = False

    def write(frame: pl.DataFrame, file: Path, compression: str) -> None:
        if full and file.name == ".intervals.parquet":
            # The result of polars on a full disk: half a file, and no OSError.
            file.write_bytes(b"PAR1")
            raise pl.exceptions.ComputeError("No space left on device (os error 28)")
        plain(frame, file, compression=compression)  # type: ignore[arg-type]

    def show(step: Step, found: Found | None) -> None:
        nonlocal full
        full = full or (found is not None and found.step == 2)

    monkeypatch.setattr(pl.DataFrame, "write_parquet", write)
    order = Order(parse(PLAN, "own.toml"), PLAN, FakeTarget(FakeDriver()), tmp_path / "out")
    with pytest.raises(LabError, match="No space left") as failed:
        run(order, show)
    assert "--out" in failed.value.way_out
    (folder,) = (tmp_path / "out").iterdir()
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
    kept = Reader(folder)
    assert kept.result.status == "partial"
    assert "No space left" in (kept.result.why_partial or "")
    for name in ("steps", "intervals", "histograms"):
        kept.table(name)
