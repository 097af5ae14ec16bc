"""Single requests, by hand: in intervals, and around a fault."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hemi_lab import requests
from hemi_lab.drivers.fio.records import records
from hemi_lab.methods.checkpoints import during_bursts
from hemi_lab.methods.freeze import drain
from hemi_lab.report.freezes import filled
from hemi_lab.steps import INTERVALS, RECORDS

# Ten a second of 10 ms each. One that begins at 1.0 s waits for the thaw at 2.0 s.
_STEADY = [("write", 4096, n / 10, n / 10 + 0.01) for n in range(10)]
_STALLED = [("write", 4096, 1.0, 2.0)]
_LATER = [("read", 8192, 2.1 + n / 10, 2.1 + n / 10 + 0.02) for n in range(10)]


def known(rows: list[tuple[str, int, float, float]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=RECORDS, orient="row")


def test_a_request_belongs_to_the_fault_it_lived_through() -> None:
    seen = requests.around(known(_STEADY + _STALLED + _LATER), 1.05, 2.0)
    assert [seen.phases[name].count for name in requests.PHASES] == [10, 1, 10]
    assert seen.longest_request == pytest.approx(1.0)
    # From the last one done before the fault (0.91 s) to the first one after it.
    assert seen.longest_silence == pytest.approx(2.0 - 0.91)
    assert seen.phases["during"].maximum == pytest.approx(1.0)
    assert seen.phases["before"].maximum == pytest.approx(0.01)
    assert seen.phases["before"].iops == pytest.approx(10 / 1.05)


def test_a_fault_nobody_feels() -> None:
    rows = [("read", 512, n / 100, n / 100 + 0.001) for n in range(300)]
    seen = requests.around(known(rows), 1.0, 2.0)
    assert seen.longest_request == pytest.approx(0.001)
    assert seen.longest_silence == pytest.approx(0.01)
    assert seen.phases["during"].iops == pytest.approx(100, abs=1)


def test_percentiles_are_exact_and_absent_where_too_few_were_made() -> None:
    rows = [("read", 512, 0.0, n / 1000) for n in range(1, 101)]
    phase = requests.around(known(rows), 5.0, 6.0).phases["before"]
    assert phase.p50 == pytest.approx(0.050)
    assert phase.p99 == pytest.approx(0.099)
    assert phase.p999 is None
    assert phase.maximum == pytest.approx(0.1)


def test_intervals_count_requests_when_they_are_done() -> None:
    found = requests.intervals(known(_STEADY + _STALLED + _LATER), 1.0)
    assert dict(found.schema) == INTERVALS
    whole = found.filter(pl.col("operation") == "all")
    assert whole["start_seconds"].to_list() == [0.0, 2.0, 3.0]
    assert whole["count"].to_list() == [10, 10, 1]
    assert whole["bytes"].sum() == 11 * 4096 + 10 * 8192
    second = found.filter((pl.col("start_seconds") == 2.0) & (pl.col("operation") == "write"))
    assert second["maximum_seconds"].to_list() == [pytest.approx(1.0)]
    # A second of silence is a rate of zero on the page, not a line drawn over it.
    assert filled(found)["count"].to_list() == [10, 0, 10]


def test_no_request_is_no_interval() -> None:
    assert requests.intervals(known([]), 1.0).is_empty()


def test_fios_log_of_single_requests(tmp_path: Path) -> None:
    # Milliseconds since 1970, nanoseconds, direction, size, offset, priority.
    (tmp_path / "hemi_lat.1.log").write_text(
        "1700000000500, 400000000, 1, 4096, 0, 0\n1700000001000, 1000000, 0, 8192, 0, 0\n"
    )
    (tmp_path / "hemi_lat.2.log").write_text("")
    found, began = records(tmp_path)
    assert began == pytest.approx(1_700_000_000.1)
    assert found["operation"].to_list() == ["write", "read"]
    assert found["start_seconds"].to_list() == [0.0, pytest.approx(0.899, abs=1e-6)]
    assert found["end_seconds"].to_list() == [pytest.approx(0.4), pytest.approx(0.9)]


def backlog(*values: float) -> pl.DataFrame:
    return pl.DataFrame({"at": [float(n) for n in range(len(values))], "value": list(values)})


@pytest.mark.parametrize(
    ("series", "took"),
    [
        # Frozen from 1.5 to 3.5, sampled every second.
        (backlog(0, 0, 50, 90, 40, 0, 0), 1.5),
        # It owed 10 before, and drains to that.
        (backlog(0, 10, 50, 90, 40, 10, 10), 1.5),
        # A plain mirror owes nothing.
        (backlog(0, 0, 0, 0, 0, 0, 0), 0.0),
        # Later debt does not come from the freeze.
        (backlog(0, 0, 50, 90, 40, 0, 20), 1.5),
        # The step was over before.
        (backlog(0, 0, 50, 90, 40, 30, 20), None),
        (backlog(0, 0, 50), None),
    ],
)
def test_drained_is_when_it_owes_no_more_than_before(
    series: pl.DataFrame, took: float | None
) -> None:
    found = drain(series, 1.5, 3.5)
    assert found == (None if took is None else pytest.approx(took))


def test_reads_during_bursts_are_told_from_the_others() -> None:
    rows = [
        (0.0, 1.0, "read", 100, 0, 0.001, 0.002, 0.0),
        (1.0, 1.0, "read", 20, 0, 0.050, 0.400, 0.0),
        (1.0, 1.0, "write", 500, 0, 0.1, 0.2, 0.0),
        (2.0, 1.0, "read", 300, 0, 0.002, 0.003, 0.0),
    ]
    facts = during_bursts(pl.DataFrame(rows, schema=INTERVALS, orient="row"))
    assert facts["reads during bursts: IOPS"] == pytest.approx(20)
    assert facts["reads during bursts: slowest, ms"] == pytest.approx(400)
    assert facts["reads between: IOPS"] == pytest.approx(200)
    assert facts["reads between: mean, ms"] == pytest.approx((100 * 1 + 300 * 2) / 400)
