"""The audit of a report of sysbench, and its percentiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hemi_lab.database.results import audit, kind_percentiles, percentiles
from hemi_lab.database.sysbench import Report, TransactionKind, parse
from hemi_lab.statistics.histogram import Histogram

CAPTURED = Path(__file__).parent / "captured"


@pytest.fixture
def report() -> Report:
    return parse((CAPTURED / "tpcc_like.txt").read_text())


def test_a_true_report_passes_the_audit(report: Report) -> None:
    found = audit(report, 5)
    assert found.problems == []
    # 40083.08 ms of latency in 5.0294 s on 8 threads.
    assert found.little == pytest.approx(40.08308 / 5.0294 / 8)
    assert found.histogram_events == 2011


def test_the_audit_finds_what_does_not_fit(report: Report) -> None:
    bins = list(report.bins.bins())
    lost = replace(report, bins=Histogram.of(bins[1:]))
    assert "2010 events, the report 2011" in audit(lost, 5).problems[0]
    idle = replace(report, latency_sum_ms=report.latency_sum_ms / 2)
    assert "Little's law" in audit(idle, 5).problems[0]
    # A thread cannot be busy for longer than the run.
    many = replace(report, latency_sum_ms=report.latency_sum_ms * 1.05)
    assert "Little's law" in audit(many, 5).problems[0]
    # A last transaction of 2 s, for which seven threads wait, is no mistake.
    tail = replace(report, seconds=7.0, latency_sum_ms=8 * 5000 + 2000)
    assert audit(tail, 5).problems == []
    shifted = Histogram.of((low * 11 // 10, high * 11 // 10, count) for low, high, count in bins)
    assert "percentile 95" in audit(replace(report, bins=shifted), 5).problems[0]
    kinds = [TransactionKind("payment", 1, 0, 0, Histogram())]
    assert (
        "the threads tell of 1 transactions" in audit(replace(report, kinds=kinds), 5).problems[0]
    )
    nothing = replace(report, events=0, transactions=0, bins=Histogram(), kinds=[])
    assert audit(nothing, 5).problems == ["no transaction was completed"]


def test_percentiles_end_at_the_slowest_transaction(report: Report) -> None:
    found = percentiles(report)
    assert found[95] == pytest.approx(report.latency_at_rank_ms, rel=0.02)
    rising = [found[rank] or 0 for rank in (50, 95, 99)]
    assert rising == sorted(rising)
    short = replace(report, latency_max_ms=1.5)
    assert set(percentiles(short).values()) == {1.5}
    nothing = TransactionKind("payment", 0, 0, 0, Histogram())
    of_kind = kind_percentiles(replace(report, kinds=[nothing]))
    assert of_kind == {"payment": {50: None, 95: None, 99: None}}
