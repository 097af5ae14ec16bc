"""Computed parts of reports: windows, spare flash, arrays, cliffs, energy, legs, replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from fakes import CAPACITY, FakeDriver, always
from hemi_lab.report import arrays, replays, spare, tables, together, windows, written
from hemi_lab.report.header import header
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.results.model import Preparation, Tracked
from hemi_lab.results.store import HISTOGRAMS, STEPS, Reader
from hemi_lab.statistics.histogram import Histogram, fio_bin, fio_index
from hemi_lab.statistics.quantiles import percentile_interval
from hemi_lab.steps import CAUSES, INTERVALS, Operation, Step, StepResult
from hemi_lab.targets.drives import drive
from test_runner import SWEEP, carry_out


def table_of(parts: list[Part], title: str) -> dict[str, list[str]]:
    """Returns a table's rows by their first cell."""
    found = next(part[1] for part in parts if not isinstance(part, Chart) and part[0] == title)
    return {row[0]: row[1:] for row in found.rows}


def ran(tmp_path: Path, rate: float = 1000.0, plan: str = SWEEP) -> Reader:
    return Reader(carry_out(plan, FakeDriver(always(rate)), tmp_path / "runs").folder)


def on_flash(reader: Reader, alpha: float, count: int = 1, leg: str = "drive") -> Reader:
    """Returns the run as if made on a simulated drive with this much flash."""
    reader.result.simulated = True
    reader.result.target |= {
        "legs": [leg],
        "scale": 1,
        "drives": [
            {
                "alpha": alpha,
                "flash_bytes": alpha * CAPACITY,
                "count": count,
                "member": "drive" if count > 1 else None,
            }
        ],
    }
    return reader


# The window's numbers.


def test_a_window_has_its_numbers() -> None:
    tracked = Tracked(
        label="writes",
        unit="IOPS",
        values=[500, 2100, 2050, 2000, 1950, 1900],
        reached=True,
        window=5,
        first=2,
        last=6,
        mean=2000,
        slope=-50,
        intercept=2100,
        range_share=0.1,
        excursion_share=0.1,
    )
    rows = table_of(windows.parts(tracked), "Steady window: writes")
    assert rows["average"] == ["2,000 IOPS"]
    assert rows["average + 10 %"] == ["2,200 IOPS"]
    assert rows["average − 10 %"] == ["1,800 IOPS"]
    # 2,100 in round 2, 50 less in each after it.
    assert rows["best linear fit"] == ["2,200 − 50 × round, IOPS"]
    assert rows["excursion of the fit, at most 10 %"] == ["10.0%"]
    spread = tracked.model_copy(update={"range_share": 0.3, "reached": False})
    rows = table_of(windows.parts(spread), "Last window, NOT steady: writes")
    assert rows["range, at most 20 % of the average"] == ["30.0%: too much"]


# The header.


def test_the_header_gives_spare_flash_both_ways(tmp_path: Path) -> None:
    reader = on_flash(ran(tmp_path), 1.25)
    lines = dict(header(reader.result, reader.table("steps")))
    assert lines["spare flash"] == "drive: 20.0% of raw, 25.0% of capacity (alpha = 1.25)"
    assert lines["active range"] == "100 % of capacity"
    assert lines["steady state"] == "reads: rounds 1-5"
    assert lines["generator"].startswith("1,000,000 IOPS at most")
    assert lines["its processors"].startswith("0.10 of ")


def test_what_was_not_prepared_is_said(tmp_path: Path) -> None:
    reader = ran(tmp_path)
    reader.result.preparations = [
        Preparation(test=str(n), what="purge", done=False, how=f"no way {n}") for n in range(5)
    ]
    lines = dict(header(reader.result, reader.table("steps")))
    assert lines["purge"].startswith("NOT done: no way 0; ")
    assert lines["purge"].endswith("2 more, told by the tests")
    assert lines["precondition"] == "none"


# Presets.


def test_presets_tell_their_flash(tmp_path: Path) -> None:
    stock = drive("iodrive-duo-640gb", scale=4)
    assert stock is not None
    assert (stock.kind, stock.count, stock.alpha) == ("ssd", 1, 1.25)
    assert stock.flash_bytes is not None
    # 800 GB raw, less its loss, divided by its own scale and the target's.
    assert 0.97 < stock.flash_bytes / (800e9 / 16 / 4) < 1
    array = drive("x25e-4-raid5-host")
    assert array is not None
    assert (array.count, array.level, array.member) == (4, "raid5", "x25e-32gb")
    assert array.alpha == 1.25
    network = drive("gp3")
    assert network is not None
    assert network.alpha is None
    assert drive("no-such-drive") is None
    own = tmp_path / "own.toml"
    base = 'title = "Own"\nbase = "iodrive-duo-640gb"\n[parameters]\nraw_loss = 0.01\n'
    own.write_text(base + '[sources]\nraw_loss = "made up"\n')
    changed = drive(str(own), scale=4)
    assert changed is not None
    assert (changed.title, changed.alpha) == ("Own", 1.25)
    assert changed.flash_bytes == pytest.approx(0.99 * 800e9 / 16 / 4)
    assert drive("/no/such/file.toml") is None


# Spare flash.


@pytest.mark.parametrize(
    ("alpha", "amplification"), [(1.07, 7.82), (1.25, 2.693), (1.5625, 1.610), (2.0, 1.255)]
)
def test_theory_of_cleaning_oldest_first(alpha: float, amplification: float) -> None:
    """Compares with published values of the formula."""
    assert spare.first_in_first_out(alpha) == pytest.approx(amplification, rel=1e-3)


def test_more_spare_flash_is_a_curve(tmp_path: Path) -> None:
    stock = on_flash(ran(tmp_path / "stock", 1000), 1.25)
    more = on_flash(ran(tmp_path / "more", 2200), 1.5625)
    parts = spare.parts([("A", more), ("B", stock)])
    rows = table_of(parts, "Over-provisioning")
    assert list(rows) == ["B: Reads", "A: Reads"], "in order of spare"
    assert rows["B: Reads"][:2] == ["20.0%", "25.0%"]
    assert rows["A: Reads"][2:4] == ["2,200", "× 2.2"]
    assert rows["A: Reads"][6] == "1.61"
    assert not spare.parts([("A", stock)])


def test_an_active_range_is_spare_too(tmp_path: Path) -> None:
    plan = SWEEP.replace('sizes = "4 KiB" }', 'sizes = "4 KiB", span_percent = 80 }')
    whole = on_flash(ran(tmp_path / "whole"), 1.25)
    part = on_flash(ran(tmp_path / "part", plan=plan), 1.25)
    rows = table_of(spare.parts([("A", whole), ("B", part)]), "Over-provisioning")
    assert rows["B: Reads"][:2] == ["36.0%", "56.2%"]


def test_amplification_is_weighted_by_what_was_written(tmp_path: Path) -> None:
    reader, other = on_flash(ran(tmp_path / "a"), 1.25), on_flash(ran(tmp_path / "b"), 1.5)
    step = reader.table("steps").filter(pl.col("stage") == "precondition")["step"][0]
    rows = []
    for start, rate, amplification in ((0.0, 300.0, 2.0), (1.0, 100.0, 4.0)):
        rows.append((step, start, 1.0, 0, "bytes_per_second", rate))
        rows.append((step, start, 1.0, 0, "write_amplification", amplification))
    causes = pl.DataFrame(rows, schema={"step": pl.Int64, **CAUSES}, orient="row")
    causes.write_parquet(reader.folder / "causes.parquet")
    again = on_flash(Reader(reader.folder), 1.25)
    rows_ = table_of(spare.parts([("A", again), ("B", other)]), "Over-provisioning")
    assert rows_["A: Reads"][5] == "2.5"


# Arrays.


def test_arrays_are_set_beside_their_drive(tmp_path: Path) -> None:
    one = on_flash(ran(tmp_path / "one", 1000), 1.25)
    four = on_flash(ran(tmp_path / "four", 3000), 1.25, count=4, leg="four-of-it")
    rows = table_of(arrays.parts([("A", four), ("B", one)]), "Arrays of drive")
    assert rows["reads: B, drive"] == ["1", "1,000", "4.1 MB/s", "× 1", "100%"]
    assert rows["reads: A, four-of-it"] == ["4", "3,000", "12.3 MB/s", "× 3", "75%"]
    assert not arrays.parts([("A", one), ("B", one)])


# Runs together.


def test_runs_of_one_target_are_summed_up_and_others_are_not(tmp_path: Path) -> None:
    runs = [("A", ran(tmp_path / "a", 990)), ("B", ran(tmp_path / "b", 1010))]
    rows = table_of(together.parts(runs), "Run to run: fake")
    assert rows["reads, 1T/1Q: IOPS"][:2] == ["2", "1,000"]
    assert rows["reads, 1T/1Q: IOPS"][4] == "990 to 1,010"
    assert rows["reads, 2T/4Q: mean"][4] == "7.92 ms to 8.08 ms"
    charts = [part.title for part in together.parts(runs) if isinstance(part, Chart)]
    assert "reads, 2T/4Q: the runs' latencies" in charts
    runs[1][1].result.target["text"] = "another"
    titles = [part[0] for part in together.parts(runs) if not isinstance(part, Chart)]
    assert not any(title.startswith("Run to run") for title in titles)
    assert not together.parts(runs[:1])


def test_what_only_later_runs_share_is_laid_over(tmp_path: Path) -> None:
    other = ran(tmp_path / "c", plan=SWEEP.replace('name = "reads"', 'name = "others"'))
    runs = [("A", other), ("B", ran(tmp_path / "a")), ("C", ran(tmp_path / "b"))]
    charts = [part.title for part in together.parts(runs) if isinstance(part, Chart)]
    assert charts == ["reads, 1T/1Q: the runs' latencies", "reads, 2T/4Q: the runs' latencies"]


# Amount written.


def steps_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    whole = [
        {**dict.fromkeys(STEPS), "test": "t", "label": "fill", "count": 1, **row} for row in rows
    ]
    return pl.DataFrame(whole, schema=STEPS)


def writing(rates: list[float], step: int = 1) -> pl.DataFrame:
    """Returns seconds of the given MB each."""
    rows = [
        (step, float(at), 1.0, operation, 100, int(rate * 1e6), 1e-3, 2e-3, 1e-4)
        for at, rate in enumerate(rates)
        for operation in ("write", "all")
    ]
    return pl.DataFrame(rows, schema={"step": pl.Int64, **INTERVALS}, orient="row")


def test_a_cliff_is_found_where_it_is() -> None:
    steps = steps_frame([{"step": 1, "stage": "precondition", "fills_before": 0.5}])
    intervals = writing([1000.0] * 12 + [200.0] * 28)
    parts = written.parts(steps, intervals, 10e9)
    (row,) = table_of(parts, "From fresh to full").values()
    # Half a capacity was written before, then 12 GB quickly. A second of 0.2 GB shows it.
    assert row == ["1 GB/s", "200 MB/s", "−80%", "after 17.2 GB"]
    even = written.parts(steps, writing([500.0] * 20), 10e9)
    (row,) = table_of(even, "From fresh to full").values()
    assert row[2:] == ["+0%", "not seen"]


def test_reads_alone_write_nothing() -> None:
    steps = steps_frame([{"step": 1, "stage": "measure", "fills_before": 0.5}])
    intervals = writing([100.0] * 20).with_columns(pl.col("operation").replace({"write": "read"}))
    assert written.parts(steps, intervals, 1e9) == []


def test_consistency_tells_mean_by_deviation() -> None:
    steps = steps_frame(
        [
            {"step": n, "stage": "round", "round": n, "start_seconds": 10.0 * n, "fills_before": 0}
            for n in (1, 2, 3)
        ]
    )
    counts = [100, 100, 100, 90, 110] * 2
    intervals = pl.concat(
        [
            writing([1.0] * 10, n).with_columns(
                pl.Series("count", [count for count in counts for _ in range(2)])
            )
            for n in (1, 2, 3)
        ]
    )
    (chart,) = written.consistency(steps, intervals, [2, 3])
    assert isinstance(chart, Chart)
    assert "mean is 100 IOPS and their σ 6.32: the mean is 15.8 σ" in chart.note
    assert not written.consistency(steps, intervals.head(10), [1])


# Energy and legs.


def test_energy_is_of_all_steps_of_a_load() -> None:
    steps = steps_frame(
        [
            {
                "step": 1,
                "energy_joules": 10.0,
                "count": 1000,
                "bytes": 4 * 10**6,
                "length_seconds": 1.0,
            },
            {
                "step": 2,
                "energy_joules": 30.0,
                "count": 3000,
                "bytes": 12 * 10**6,
                "length_seconds": 3.0,
            },
        ]
    )
    table = tables.energy(steps)
    assert table is not None
    assert table.rows == [["fill", "10 W", "10 mJ", "100", "0.4 MB", "40 J"]]
    assert (
        tables.energy(steps.with_columns(pl.lit(None, pl.Float64).alias("energy_joules"))) is None
    )


def test_legs_are_told_with_their_shares_and_peaks() -> None:
    rows: list[tuple[int, float, float, int | None, str, float]] = []
    for start, moved in ((0.0, (300.0, 100.0)), (1.0, (0.0, 400.0))):
        rows.append((1, start, 1.0, None, "exposure_bytes", 1024.0 * (1 + start)))
        for leg in (0, 1):
            rows.append((1, start, 1.0, leg, "bytes_per_second", moved[leg]))
            rows.append((1, start, 1.0, leg, "share", moved[leg] / 400))
            rows.append((1, start, 1.0, leg, "backlog_bytes", 4096.0 * leg * start))
    causes = pl.DataFrame(rows, schema={"step": pl.Int64, **CAUSES}, orient="row")
    table = tables.legs(steps_frame([{"step": 1}]), causes)
    assert table is not None
    assert table.headings == ["", "share", "rate", "owed", "exposed"]
    assert table.rows[0] == ["fill: leg 0", "37.5%", "150 B/s", "0 B", "2 KiB"]
    assert table.rows[1] == ["fill: leg 1", "62.5%", "250 B/s", "4 KiB", "2 KiB"]
    # Means are of requests, not of seconds: 300 of 1 ms and 100 of 5 ms.
    for start, (count, seconds) in ((0.0, (300.0, 0.001)), (1.0, (100.0, 0.005))):
        rows.append((1, start, 1.0, 1, "writes_per_second", count))
        rows.append((1, start, 1.0, 1, "write_seconds", seconds))
        rows.append((1, start, 1.0, None, "dirty_regions", 3 + start))
    answered = pl.DataFrame(rows, schema={"step": pl.Int64, **CAUSES}, orient="row")
    table = tables.legs(steps_frame([{"step": 1}]), answered)
    assert table is not None
    assert table.headings == ["", "share", "rate", "writes in", "owed", "exposed", "dirty"]
    assert [row[3] for row in table.rows] == ["–", "2 ms"]
    assert [row[6] for row in table.rows] == ["4", "4"]
    one = causes.filter(pl.col("leg").is_null() | (pl.col("leg") == 0))
    assert tables.legs(steps_frame([{"step": 1}]), one) is None


# Percentiles and their intervals.


def test_a_percentile_has_the_interval_of_its_rank() -> None:
    """Compares with the published interval of the median of 100: the 40th and the 61st."""
    bins = Histogram.of((n * 10**6, n * 10**6, 1) for n in range(1, 101))
    low, high = percentile_interval(bins, 0.5)
    assert (round(1e3 * low), round(1e3 * high)) == (40, 61)
    assert percentile_interval(bins, 0.99)[1] == pytest.approx(0.1)
    with pytest.raises(ValueError, match="no requests"):
        percentile_interval(Histogram(), 0.5)


def test_quality_of_service_leaves_out_what_it_cannot_know() -> None:
    bins = Histogram.of((n * 10**6, n * 10**6, 1) for n in range(1, 101))
    table: Table = tables.quality({"reads": bins})
    assert table.rows[0][:3] == ["reads", "100", "50 ms\n40 ms to 61 ms"]
    assert table.rows[0][-1] == "–"


def test_points_and_quality_of_service_show_one_figure(tmp_path: Path) -> None:
    """Uses bins 1.6 % wide. Read off its end, the 99.99 % of a step lay above its maximum."""

    class Binned(FakeDriver):
        def run(self, step: Step) -> StepResult:
            result = super().run(step)
            bins = [fio_bin(fio_index(high)) for high in result.all.histogram.high.tolist()]
            wide = Histogram.of((*bin_, result.all.moments.count) for bin_ in bins)
            found = {
                kind: Operation(known.moments, known.bytes, wide)
                for kind, known in result.operations.items()
            }
            return replace(result, operations=found)

    reader = Reader(carry_out(SWEEP, Binned(always(5000.0)), tmp_path / "runs").folder)
    steps = reader.table("steps").filter(pl.col("stage") == "measure")
    points = tables.points(steps, reader.table("intervals"))
    bins = {row["label"]: reader.histogram([row["step"]]) for row in steps.iter_rows(named=True)}
    quality = tables.quality(bins)
    for point, row in zip(points.rows, quality.rows, strict=True):
        told = dict(zip(points.headings, point, strict=True))
        for heading, cell in list(zip(quality.headings, row, strict=True))[2:]:
            assert cell.split("\n")[0] == told.get(heading, cell.split("\n")[0])
        assert told["50 %"] == told["99.9 %"] == told["max"]


def test_bins_of_older_results_are_cut_when_they_are_read(tmp_path: Path) -> None:
    reader = ran(tmp_path)
    bins = reader.table("histograms")
    beyond = bins.with_columns((pl.col("high_ns") * 1.016).cast(pl.Int64))
    beyond.write_parquet(reader.folder / "histograms.parquet")
    again = Reader(reader.folder)
    for row in again.table("steps").filter(pl.col("stage") == "measure").iter_rows(named=True):
        assert again.histogram([row["step"]]).percentile(1) <= row["maximum_seconds"]


# Replay.


def test_a_replay_tells_reads_and_writes_apart(tmp_path: Path) -> None:
    reader = ran(tmp_path)
    kinds = {"step": pl.Int64, **INTERVALS}
    rows = [
        (1, 0.0, 1.0, "read", 300, 3 * 10**6, 1e-3, 5e-3, 0.0),
        (1, 0.0, 1.0, "write", 100, 2 * 10**6, 3e-3, 9e-3, 0.0),
        (1, 1.0, 1.0, "read", 100, 1 * 10**6, 5e-3, 8e-3, 0.0),
    ]
    bins = [(1, "read", 10**6, 10**6, 396), (1, "read", 8 * 10**6, 8 * 10**6, 4)]
    bins.append((1, "write", 3 * 10**6, 3 * 10**6, 100))
    pl.DataFrame(bins, schema=HISTOGRAMS, orient="row").write_parquet(
        reader.folder / "histograms.parquet"
    )
    steps = steps_frame(
        [
            {
                "step": 1,
                "stage": "measure",
                "label": "8 in flight",
                "length_seconds": 2.0,
                "lateness_p99_seconds": 1e-5,
            }
        ]
    )
    intervals = pl.DataFrame(rows, schema=kinds, orient="row")
    found = table_of(replays.parts(steps, intervals, Reader(reader.folder)), "Replayed")
    reads = found["8 in flight: reads"]
    assert reads == ["400", "200", "2 MB/s", "2 ms", "1 ms", "8 ms", "–", "10 µs"]
    assert found["8 in flight: writes"][2] == "1 MB/s"
