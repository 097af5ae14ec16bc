"""Builds the page from runs: each test's figures, in the order a reader needs them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from hemi_lab.report import (
    axes,
    checkpoints,
    databases,
    figures,
    freezes,
    headline,
    marks,
    matrices,
    replays,
    scans,
    stalls,
    tables,
    together,
    windows,
    within,
    written,
)
from hemi_lab.report.header import header
from hemi_lab.report.page import write_page
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.results.model import Outcome, Result
from hemi_lab.results.store import Reader
from hemi_lab.units import counted, shown_count, shown_rate, shown_time


@dataclass
class Section:
    """One test on the page."""

    outcome: Outcome
    said: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)


@dataclass
class RunPage:
    """One run on the page."""

    letter: str
    result: Result
    header: list[tuple[str, str]]
    headline: Chart | None
    glance: Table
    sections: list[Section]
    commands: list[str]
    notes: list[str]


def write(readers: list[Reader], path: Path) -> None:
    """Writes the page, with the runs in the order given."""
    runs = [_run(reader, chr(ord("A") + n)) for n, reader in enumerate(readers[:26])]
    write_page(
        "page.html.j2",
        path,
        runs=runs,
        headline=headline.chart(headline.of_runs(readers), "Each test at its best, of all systems")
        if len(runs) > 1
        else None,
        together=together.parts(list(zip((run.letter for run in runs), readers, strict=False))),
    )


def _run(reader: Reader, letter: str) -> RunPage:
    result = reader.result
    steps, intervals = reader.table("steps"), reader.table("intervals")
    causes = reader.table("causes")
    sections = [_section(reader, test, steps, intervals, causes) for test in result.tests]
    notes = steps.filter(pl.col("notes") != "")["notes"].unique(maintain_order=True).to_list()
    commands = [
        f"# step {row['step']}: {row['test']}, {row['stage']}: {row['label']}\n{row['command']}"
        for row in steps.filter(pl.col("command") != "").iter_rows(named=True)
    ]
    return RunPage(
        letter,
        result,
        [*header(result, steps), ("command", shlex.join(result.command_line))],
        headline.chart(headline.of_runs([reader])),
        _glance(result, steps),
        sections,
        commands,
        [*result.notes, *notes],
    )


def _glance(result: Result, steps: pl.DataFrame) -> Table:
    """Returns a table of each test's best figure."""
    rows = []
    for test in result.tests:
        own = headline.measured(test, steps)
        if own.is_empty():
            rows.append([test.title, *["–"] * 7, _steady_said(test)])
            continue
        best = (
            own.filter(pl.col("label") == headline.best(test, own))
            .group_by("label")
            .agg(
                pl.col("iops").mean(),
                pl.col("bytes_per_second").mean(),
                pl.col("mean_seconds").mean(),
                pl.col("p50_seconds").max(),
                pl.col("p999_seconds").max(),
                pl.col("maximum_seconds").max(),
            )
            .row(0, named=True)
        )
        p50, p999 = best["p50_seconds"], best["p999_seconds"]
        rows.append(
            [
                test.title,
                best["label"],
                "–"
                if test.kind == "scans"
                else shown_count(best["iops"]) + (" tps" if test.kind == "database" else ""),
                "–" if test.kind == "database" else shown_rate(best["bytes_per_second"]),
                shown_time(best["mean_seconds"]),
                "–" if p50 is None else shown_time(p50),
                "–" if p999 is None else shown_time(p999),
                shown_time(best["maximum_seconds"]),
                _steady_said(test),
            ]
        )
    headings = ["test", "at", "IOPS", "rate", "mean", "50 %", "99.9 %", "max", "steady state"]
    return Table(
        headings,
        rows,
        "Each test's point of most requests a second; of freezes, that with the slowest request.",
    )


def _steady_said(test: Outcome) -> str:
    if not test.whole:
        return "not carried out to its end"
    if not test.tracked:
        return "not asked for"
    if all(tracked.reached for tracked in test.tracked):
        first = test.tracked[0]
        return f"rounds {first.first} to {first.last}"
    return f"NOT REACHED in {counted(len(test.tracked[0].values), 'round')}"


def _section(
    reader: Reader,
    test: Outcome,
    steps: pl.DataFrame,
    intervals: pl.DataFrame,
    causes: pl.DataFrame,
) -> Section:
    section = Section(test)
    own = steps.filter((pl.col("test") == test.name) & (pl.col("count") > 0))
    for preparation in reader.result.preparations:
        if preparation.test == test.name:
            state = "" if preparation.done else "NOT done: "
            section.said.append(f"{preparation.what}: {state}{preparation.how}")
    if test.kind == "database":
        _database(section, test, own, reader, intervals)
        return section
    if test.kind == "scans":
        section.parts += scans.parts(reader.database(test.name) or {"scans": []})
        _facts(section, test)
        return section
    if not any(p.test == test.name and p.what == "purge" for p in reader.result.preparations):
        section.said.append("purge: none; the target is as the test before left it")
    if own.is_empty():
        return section
    if test.kind == "matrix":
        section.parts += matrices.matrix(test, own, reader)
    elif test.kind == "demand-intensity":
        section.parts += matrices.demand(test, own, reader)
        _facts(section, test)
    elif test.kind == "idle-recovery":
        bursts = own.filter(pl.col("stage").is_in(["burst", "baseline"]))
        if bursts.height:
            note = "Bursts with each rest between them, and after each the load without rests."
            chart = figures.by_load(bursts, "iops", axes.count("IOPS"))
            section.parts.append(Chart("Bursts and what rests bring back", chart, note))
        _facts(section, test)
    elif test.kind == "cross-stimulus":
        chart = figures.by_load(own, "bytes_per_second", axes.rate())
        section.parts.append(Chart("One load after another", chart))
    elif test.kind == "freeze":
        _freezes(section, test, own, reader, intervals, causes)
        return section
    elif test.kind == "stalls":
        _stalls(section, test, own, reader, intervals, causes)
        return section
    elif test.kind == "checkpoints":
        _checkpoints(section, test, own, intervals)
    elif test.kind == "replay":
        section.parts += replays.parts(own, intervals, reader)
        _facts(section, test)
    measured = own.filter(pl.col("stage").is_in(["measure", "again", "baseline"]))
    if measured.height:
        _measured(section, measured, intervals, reader)
    for tracked in test.tracked:
        section.parts += windows.parts(tracked)
    window = _in_window(test, own)
    section.parts += written.consistency(own, intervals, window)
    section.parts.append(_time_chart(own, intervals, causes))
    # Rounds count in the steady window only.
    loads = measured if measured.height else own.filter(pl.col("step").is_in(window))
    if test.kind == "cross-stimulus":
        # Each of its loads has a window of its own, so all of its steps count.
        loads = own
    capacity = reader.result.target.get("bytes")
    if capacity:
        section.parts += written.parts(own, intervals, float(capacity))
    for title, table in (
        ("Energy", tables.energy(loads)),
        ("Legs", tables.legs(measured, causes)),
    ):
        if table is not None:
            section.parts.append((title, table))
    if test.kind == "cross-stimulus":
        _facts(section, test)
    return section


def _measured(
    section: Section, measured: pl.DataFrame, intervals: pl.DataFrame, reader: Reader
) -> None:
    section.parts.append(("Points", tables.points(measured, intervals)))
    sweep = measured.filter(pl.col("stage") == "measure")
    if sweep.height > 2:
        section.parts.append(
            Chart(
                "Throughput against latency",
                figures.knee(sweep),
                "Each point is one of the sweep, in order of requests in flight.",
            )
        )
        section.parts += _grid(sweep)
        numbers = sweep["step"].to_list()
        section.parts.append(
            Chart(
                "Rate, mean, standard deviation and maximum",
                figures.bars(
                    sweep,
                    [within.rate(step, intervals) for step in numbers],
                    [within.mean_latency(step, intervals) for step in numbers],
                ),
                "Lines at the ends of bars: 95 % intervals from ten batches of seconds; none "
                "below ten seconds.",
            )
        )
    shown = sweep if sweep.height <= 8 else sweep.sort("iops").gather_every(sweep.height // 6)
    parts = {row["label"]: [reader.histogram([row["step"]])] for row in shown.iter_rows(named=True)}
    section.parts.append(
        Chart(
            "Distribution of latencies",
            figures.distribution(parts),
            "Bands: 95 % intervals of the percentiles.",
        )
    )
    merged = {label: bins for label, (bins,) in parts.items() if bins.total}
    section.parts.append(("Quality of service", tables.quality(merged)))


_LEAST_GRID = 3
"""Fewest thread counts, and queue depths, of a sweep that is shown as a map."""


def _grid(sweep: pl.DataFrame) -> list[Part]:
    """Returns maps of rate and mean latency, if a sweep has all threads with all depths."""
    threads = sweep["threads"].drop_nulls().unique().sort().to_list()
    depths = sweep["queue_depth"].drop_nulls().unique().sort().to_list()
    least = min(len(threads), len(depths))
    if least < _LEAST_GRID or sweep.height < len(threads) * len(depths):
        return []
    return matrices.maps(sweep.rename({"mean_seconds": "mean"}), threads, depths)


def _in_window(test: Outcome, own: pl.DataFrame) -> list[int]:
    """Returns the steps in the window of the first tracked variable."""
    if not test.tracked or test.tracked[0].first is None:
        return []
    first, last = test.tracked[0].first, test.tracked[0].last
    rounds = own.filter(
        pl.col("stage").is_in(["precondition", "round"]) & pl.col("round").is_between(first, last)
    )
    return rounds["step"].to_list()


def _freezes(
    section: Section,
    test: Outcome,
    own: pl.DataFrame,
    reader: Reader,
    intervals: pl.DataFrame,
    causes: pl.DataFrame,
) -> None:
    """Adds the calm step, the stalls, and each freeze on an axis of its own."""
    found = reader.table("freezes").filter(pl.col("test") == test.name)
    calm = own.filter(
        ~pl.col("step").is_in(found["step"].implode()) & (pl.col("stage") == "measure")
    )
    if found.height:
        section.parts.append(("Stalls", freezes.stalls(found)))
        if found["seconds"].n_unique() > 1:
            section.parts.append(
                Chart("Longest request against the freeze", freezes.longest(found))
            )
        section.parts.append(("Latencies around each freeze", freezes.phases(found)))
    told = tables.legs(own.filter(pl.col("stage") == "measure"), causes)
    if told is not None:
        section.parts.append(("Legs", told))
    if calm.height:
        section.parts.append(("Without a freeze", tables.points(calm, intervals)))
    for freeze in found.sort("seconds", "leg").iter_rows(named=True):
        step = pl.col("step") == freeze["step"]
        figure = freezes.around(freeze, intervals.filter(step), causes.filter(step))
        section.parts.append(Chart(freeze["label"].capitalize(), figure))
    if found.height:
        section.parts[-1].note = (  # type: ignore[union-attr]
            "Shaded: while the leg did not answer. Tenths of a second; where nothing was done "
            "there is no latency."
        )


def _stalls(
    section: Section,
    test: Outcome,
    own: pl.DataFrame,
    reader: Reader,
    intervals: pl.DataFrame,
    causes: pl.DataFrame,
) -> None:
    """Adds each phase's figures, and latency over time with the phases marked."""
    found = reader.table("stalls").filter(pl.col("test") == test.name)
    if found.height:
        step = pl.col("step") == found["step"][0]
        section.parts.append(("Phases", stalls.phases(found)))
        section.parts.append(
            Chart(
                "Latency over time",
                stalls.over_time(found, intervals.filter(step), causes.filter(step)),
                "Shaded: requests of the leg stall, by the delay that stands above. By when "
                "requests were done; where nothing was done there is no latency.",
            )
        )
    told = tables.legs(own.filter(pl.col("stage") == "measure"), causes)
    if told is not None:
        section.parts.append(("Legs", told))
    _facts(section, test)


def _database(
    section: Section, test: Outcome, own: pl.DataFrame, reader: Reader, intervals: pl.DataFrame
) -> None:
    """Adds each placement's throughput and percentiles, and the database's own figures."""
    told = reader.database(test.name)
    measured = own.filter((pl.col("stage") == "measure") & ~pl.col("interrupted"))
    if measured.height:
        section.parts += [
            Chart("tps against threads", databases.against_threads(measured)),
            Chart("Latency against threads", databases.latencies(measured)),
            ("Steps", databases.points(measured, told)),
        ]
    if own.height:
        figure = databases.series(own, intervals, told)
        section.parts.append(
            Chart("Second by second", figure, "Each step, warm-up included; idle between them.")
        )
    if told is None:
        return
    section.parts.append(("The database", databases.server(told)))
    for title, table in (
        ("Consistency", databases.consistency(told)),
        ("Transactions by kind", databases.kinds(told)),
    ):
        if table is not None:
            section.parts.append((title, table))


def _checkpoints(
    section: Section, test: Outcome, own: pl.DataFrame, intervals: pl.DataFrame
) -> None:
    with_bursts = own.filter(pl.col("pattern") == "bursts")
    if with_bursts.height:
        step = intervals.filter(pl.col("step") == with_bursts["step"][0])
        section.parts.append(Chart("Reads while pages are written", checkpoints.series(step)))
    _facts(section, test)


def _facts(section: Section, test: Outcome) -> None:
    rows = [
        [name, shown_count(value) if isinstance(value, float) else value]
        for name, value in test.facts.items()
    ]
    section.parts.append(("Found", Table(["", ""], rows)))


def _time_chart(own: pl.DataFrame, intervals: pl.DataFrame, causes: pl.DataFrame) -> Chart:
    first = own["start_seconds"].min()
    begin = own.select(
        "step",
        (pl.col("start_seconds") - first).alias("begin"),
        pl.col("fills_before").alias("fills"),
    )
    at = (pl.col("begin") + pl.col("start_seconds")).alias("at")
    series = (
        intervals.filter((pl.col("operation") == "all") & (pl.col("length_seconds") >= 0.25))
        .join(begin, on="step")
        .with_columns(at)
        .sort("at")
    )
    why = causes.filter(pl.col("length_seconds") >= 0.25).join(begin, on="step").with_columns(at)
    return Chart(
        "Second by second",
        figures.time_series(series, why, marks.spans(own)),
        "Every step of the test, preconditioning included, with their names where they have "
        "room. The maximum is the slowest request of "
        "its second; σ is that of the second's requests.",
    )
