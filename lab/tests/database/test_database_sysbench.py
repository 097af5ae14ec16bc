"""Parses sysbench's reports, as captured from version 1.0.20."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hemi_lab.database.sysbench import (
    OutputNotUnderstood,
    Second,
    parse,
    parse_second,
    version,
)
from hemi_lab.database.tools import CommandLog

CAPTURED = Path(__file__).parent / "captured"


def captured(name: str) -> str:
    return (CAPTURED / name).read_text()


def test_a_report_with_deadlocks() -> None:
    report = parse(captured("oltp_deadlocks.txt"))
    assert report.threads == 8
    assert report.seconds == 4.0389
    assert (report.reads, report.writes, report.other) == (32396, 7993, 4168)
    assert report.queries == 44557 == report.reads + report.writes + report.other
    assert (report.transactions, report.events) == (1854, 1854)
    assert (report.ignored_errors, report.reconnects) == (460, 0)
    assert (report.latency_min_ms, report.latency_mean_ms, report.latency_max_ms) == (
        3.20,
        17.29,
        98.86,
    )
    assert (report.latency_rank, report.latency_at_rank_ms) == (99, 51.02)
    assert report.latency_sum_ms == 32063.27
    assert report.transactions_per_second == pytest.approx(458.98, abs=0.1)
    assert report.kinds == []
    assert [second.at for second in report.series] == [1, 2, 3, 4]
    assert report.series[0] == Second(
        at=1,
        threads=8,
        transactions=486.47,
        queries=11761.28,
        reads=8559.74,
        writes=2102.73,
        other=1098.81,
        latency_ms=51.02,
        errors=117.87,
        reconnects=0.0,
    )


@pytest.mark.parametrize("name", ["oltp_deadlocks.txt", "tpcc_like.txt", "point_select.txt"])
def test_the_histogram_is_whole_and_agrees_with_sysbench(name: str) -> None:
    report = parse(captured(name))
    bins = report.bins
    assert bins.total == report.events
    # In order and without overlap, so that they merge with those of other runs.
    assert (bins.high[:-1] < bins.low[1:]).all()
    # sysbench prints the middle of the same bin, with two decimals. It takes the event nearest to
    # the rank.
    event = max(1, math.floor(bins.total * report.latency_rank / 100 + 0.5))
    edge = bins.percentile(event / bins.total) * 1e3
    assert report.latency_at_rank_ms - 0.006 <= edge <= report.latency_at_rank_ms * 1.01 + 0.006
    middle = (bins.low + bins.high) / 2e6
    assert middle[0] == pytest.approx(report.latency_min_ms, rel=0.02, abs=0.006)
    assert middle[-1] == pytest.approx(report.latency_max_ms, rel=0.02, abs=0.006)


def test_a_bin_is_around_its_middle() -> None:
    text = captured("oltp_deadlocks.txt")
    head, _, rest = text.partition("Latency histogram")
    one = f"{head}       12.524 |*** 7\n{rest[rest.index('SQL statistics') :]}"
    ((low, high, count),) = parse(one).bins.bins()
    assert count == 7
    assert low < 12_524_000 < high
    assert high / low == pytest.approx(10 ** (8 / 1023), rel=1e-6)


def test_the_transactions_of_the_script_are_added_up_over_threads() -> None:
    report = parse(captured("tpcc_like.txt"))
    kinds = {kind.name: kind for kind in report.kinds}
    assert set(kinds) == {"new_order", "payment", "order_status", "delivery", "stock_level"}
    # Summed from the captured lines with awk.
    assert (kinds["new_order"].committed, kinds["new_order"].rolled_back) == (900, 8)
    assert kinds["payment"].committed == 857
    assert kinds["order_status"].committed == 83
    assert kinds["delivery"].committed == 81
    assert kinds["stock_level"].committed == 82
    for kind in report.kinds:
        assert kind.bins.total == kind.committed + kind.rolled_back
    assert sum(k.committed + k.rolled_back for k in report.kinds) == report.events == 2011
    # Bin 68 of an order status, the shortest: 2^(68/8) to 2^(69/8) microseconds.
    shortest = kinds["order_status"].bins
    assert (shortest.low[0], shortest.high[0]) == (362_039, 394_805)


def test_a_report_that_ends_early_is_refused_and_shown() -> None:
    whole = captured("oltp_deadlocks.txt")
    with pytest.raises(OutputNotUnderstood, match="latency percentile"):
        parse(whole[: whole.index("99th percentile")])
    with pytest.raises(OutputNotUnderstood, match="`reconnects`"):
        parse(whole.replace("reconnects:", "connected again:"))
    with pytest.raises(OutputNotUnderstood, match="Lost connection to server"):
        parse(captured("server_killed.txt"))


def test_only_interim_reports_are_seconds() -> None:
    assert parse_second("Threads started!") is None
    assert parse_second("[ 1s ] thds: 8") is None
    lines = captured("server_killed.txt").splitlines()
    assert [s.at for line in lines if (s := parse_second(line))] == [1, 2, 3]


def test_another_sysbench_is_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "sysbench"
    other.write_text("#!/bin/sh\necho sysbench 1.1.0-bd4b418\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(OutputNotUnderstood, match=r"1\.1\.0-bd4b418"):
        version(CommandLog())
    other.write_text("#!/bin/sh\necho 'sysbench 1.0.20'\n")
    assert version(CommandLog()) == "sysbench 1.0.20"
