"""Percentiles, merging and the audit of a report, against values computed by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hemi_lab.database.histogram import Bin, merge, percentile
from hemi_lab.database.results import audit
from hemi_lab.database.sysbench import Report, TransactionKind, parse
from hemi_lab.errors import LabError

CAPTURED = Path(__file__).parent / "captured"


@pytest.mark.parametrize(
    ("rank", "expected"),
    # Events 1 to 5 at 1 ms, 6 to 9 at 2 ms, 10 at 30 ms.
    [(1, 1.0), (50, 1.0), (54, 1.0), (55, 2.0), (90, 2.0), (94, 2.0), (95, 30.0), (100, 30.0)],
)
def test_a_percentile_is_the_bin_of_the_event_of_that_rank(rank: float, expected: float) -> None:
    bins = [Bin(30.0, 1), Bin(1.0, 5), Bin(2.0, 4)]
    assert percentile(bins, rank) == expected


def test_percentiles_of_nothing_and_of_nonsense() -> None:
    assert percentile([], 50) is None
    assert percentile([Bin(1.0, 0)], 50) is None
    assert percentile([Bin(1.0, 1)], 0.001) == 1.0
    for rank in (0, -1, 100.1):
        with pytest.raises(LabError, match="rank"):
            percentile([Bin(1.0, 1)], rank)


def test_merged_histograms_answer_for_all_events() -> None:
    """Merges two hosts with medians 1 and 9 ms: the joint median is neither's, nor their mean."""
    first, second = [Bin(1.0, 60), Bin(4.0, 40)], [Bin(4.0, 20), Bin(9.0, 30)]
    both = merge([first, second])
    assert both == [Bin(1.0, 60), Bin(4.0, 60), Bin(9.0, 30)]
    assert percentile(both, 50) == 4.0


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
    lost = replace(report, bins=report.bins[1:])
    assert "2010 events, the report 2011" in audit(lost, 5).problems[0]
    idle = replace(report, latency_sum_ms=report.latency_sum_ms / 2)
    assert "Little's law" in audit(idle, 5).problems[0]
    # A thread cannot be busy for longer than the run.
    many = replace(report, latency_sum_ms=report.latency_sum_ms * 1.05)
    assert "Little's law" in audit(many, 5).problems[0]
    # A last transaction of 2 s, for which seven threads wait, is no mistake.
    tail = replace(report, seconds=7.0, latency_sum_ms=8 * 5000 + 2000)
    assert audit(tail, 5).problems == []
    shifted = replace(report, bins=[Bin(b.milliseconds * 1.1, b.count) for b in report.bins])
    assert "percentile 95" in audit(shifted, 5).problems[0]
    kinds = [TransactionKind("payment", 1, 0, 0, [])]
    assert (
        "the threads tell of 1 transactions" in audit(replace(report, kinds=kinds), 5).problems[0]
    )
    nothing = replace(report, events=0, transactions=0, bins=[], kinds=[])
    assert audit(nothing, 5).problems == ["no transaction was completed"]
