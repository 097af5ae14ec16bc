"""From runs to the page: what each test found, in the order a reader needs it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import plotly.graph_objects as go
import polars as pl
from plotly.offline import get_plotlyjs

from hemi_lab import __version__
from hemi_lab.errors import LabError
from hemi_lab.report import checkpoints, databases, figures, freezes, tables
from hemi_lab.report.tables import Table
from hemi_lab.results.model import Outcome, Result, Tracked
from hemi_lab.results.store import Reader
from hemi_lab.statistics.histogram import Histogram
from hemi_lab.units import shown_count, shown_rate, shown_size, shown_time


@dataclass
class Chart:
    """A chart with its heading and what stands under it."""

    title: str
    figure: go.Figure
    note: str = ""

    @property
    def json(self) -> str:
        """For a script element: no `</` may end it."""
        return str(self.figure.to_json()).replace("</", "<\\/")


@dataclass
class Section:
    """One test."""

    outcome: Outcome
    said: list[str] = field(default_factory=list)
    parts: list[Chart | tuple[str, Table]] = field(default_factory=list)


@dataclass
class RunPage:
    """One run."""

    letter: str
    result: Result
    header: list[tuple[str, str]]
    glance: Table
    sections: list[Section]
    commands: list[str]
    notes: list[str]


def write(readers: list[Reader], path: Path) -> None:
    """Writes the page. Runs stand in it in the order given."""
    runs = [_run(reader, chr(ord("A") + n)) for n, reader in enumerate(readers[:26])]
    steps = [(reader.result, reader.table("steps")) for reader in readers]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hemi_lab", "report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    folder = resources.files("hemi_lab.report")
    page = environment.get_template("page.html.j2").render(
        runs=runs,
        run_to_run=tables.run_to_run(steps) if len(runs) > 1 else None,
        style=(folder / "style.css").read_text(),
        script=(folder / "charts.js").read_text(),
        plotly=get_plotlyjs(),
        lab_version=__version__,
        is_chart=lambda part: isinstance(part, Chart),
        json=json,
    )
    try:
        path.write_text(page)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}", "Give another --out.") from error


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
        [*tables.header(result), ("command", shlex.join(result.command_line))],
        _glance(result, steps),
        sections,
        commands,
        [*result.notes, *notes],
    )


def _glance(result: Result, steps: pl.DataFrame) -> Table:
    """The best figure of each test, a line each."""
    rows = []
    for test in result.tests:
        own = steps.filter(
            (pl.col("test") == test.name)
            & pl.col("stage").is_in(["measure", "round", "baseline"])
            & (pl.col("count") > 0)
        )
        if test.kind == "database":
            # One that was broken off has no latencies.
            own = own.filter(~pl.col("interrupted"))
        if own.is_empty():
            rows.append([test.title, "–", "–", "–", "–", "–", "–", _steady_said(test)])
            continue
        if test.tracked and "round" in own["stage"].to_list() and test.tracked[0].first:
            last = own.filter(pl.col("round") >= test.tracked[0].first)
            own = last if last.height else own
        # Of freezes the worst, of all else the point of most requests.
        worst = test.kind == "freeze"
        # Rounds of one label belong together; the label of most requests stands for the test.
        best = (
            own.group_by("label", maintain_order=True)
            .agg(
                pl.col("iops").mean(),
                pl.col("bytes_per_second").mean(),
                pl.col("mean_seconds").mean(),
                pl.col("standard_deviation_seconds").mean(),
                pl.col("p999_seconds").max(),
                pl.col("maximum_seconds").max(),
            )
            .sort("maximum_seconds" if worst else "iops", descending=True)
            .row(0, named=True)
        )
        p999 = best["p999_seconds"]
        rows.append(
            [
                test.title,
                best["label"],
                shown_count(best["iops"]) + (" tps" if test.kind == "database" else ""),
                "–" if test.kind == "database" else shown_rate(best["bytes_per_second"]),
                shown_time(best["mean_seconds"]),
                "–" if p999 is None else shown_time(p999),
                shown_time(best["maximum_seconds"]),
                _steady_said(test),
            ]
        )
    headings = ["test", "at", "IOPS", "rate", "mean", "99.9 %", "max", "steady state"]
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
    return f"NOT REACHED in {len(test.tracked[0].values)} rounds"


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
    if not any(p.test == test.name and p.what == "purge" for p in reader.result.preparations):
        section.said.append("purge: none; the target is as the test before left it")
    if own.is_empty():
        return section
    if test.kind == "matrix":
        _matrix(section, test, own, reader)
    elif test.kind == "demand-intensity":
        _demand(section, test, own, reader)
    elif test.kind == "saturation":
        points = own.with_columns((pl.col("fills_before")).alias("fills"))
        section.parts.append(Chart("Write saturation", figures.against_fills(points)))
    elif test.kind == "idle-recovery":
        _facts(section, test)
    elif test.kind == "freeze":
        _freezes(section, test, own, reader, intervals, causes)
        return section
    elif test.kind == "checkpoints":
        _checkpoints(section, test, own, intervals)
    elif test.kind == "replay":
        _facts(section, test)
    measured = own.filter(pl.col("stage").is_in(["measure", "again", "baseline"]))
    if measured.height:
        _measured(section, measured, intervals, reader)
    for tracked in test.tracked:
        _window(section, tracked)
    section.parts.append(_time_chart(own, intervals, causes))
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
                "Each point is one of the sweep, in order of requests under way.",
            )
        )
        section.parts.append(Chart("Rate, mean and standard deviation", figures.bars(sweep)))
    shown = sweep if sweep.height <= 8 else sweep.sort("iops").gather_every(sweep.height // 6)
    parts = {row["label"]: [reader.histogram([row["step"]])] for row in shown.iter_rows(named=True)}
    section.parts.append(Chart("Distribution of latencies", figures.distribution(parts)))


def _window(section: Section, tracked: Tracked) -> None:
    if len(tracked.values) < 2:
        return
    if tracked.reached:
        said = f"Steady in rounds {tracked.first} to {tracked.last}"
    else:
        said = f"Steady state NOT REACHED in {len(tracked.values)} rounds"
    if tracked.mean is not None and tracked.range_share is not None:
        said += (
            f": mean {_amount(tracked.mean)} {tracked.unit}, range {tracked.range_share:.1%} of it "
            f"(at most 20 %), excursion of the fitted line {tracked.excursion_share:.1%} (at most "
            f"10 %), slope {_amount(tracked.slope)} a round."
        )
    if tracked.left_in_round:
        said += f" Left again: the window from round {tracked.left_in_round} is not steady."
    section.parts.append(
        Chart(f"Measurement window: {tracked.label}", figures.window(tracked), said)
    )


def _amount(value: float | None) -> str:
    """Four digits, and never as a power of ten where a reader can count."""
    value = value or 0.0
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _freezes(
    section: Section,
    test: Outcome,
    own: pl.DataFrame,
    reader: Reader,
    intervals: pl.DataFrame,
    causes: pl.DataFrame,
) -> None:
    """The calm step, the stalls, and each freeze on its own axis."""
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


def _database(
    section: Section, test: Outcome, own: pl.DataFrame, reader: Reader, intervals: pl.DataFrame
) -> None:
    """Throughput and percentiles of each placement, and what the database says of itself."""
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


def _in_window(test: Outcome, rounds: pl.DataFrame) -> pl.DataFrame:
    first = test.tracked[0].first if test.tracked else None
    return rounds.filter(pl.col("round") >= first) if first else rounds


def _merged(rounds: pl.DataFrame, reader: Reader) -> pl.DataFrame:
    """Cells of a matrix over their rounds: rates as means, percentiles of merged bins."""
    rows = []
    for (label,), part in rounds.group_by(["label"], maintain_order=True):
        bins = reader.histogram(part["step"].to_list())
        most = part["maximum_seconds"].max()

        def percentile(q: float, bins: Histogram = bins, most: Any = most) -> float | None:
            return min(bins.percentile(q), most) if bins.total * (1 - q) >= 1 else None

        count = int(part["count"].sum())
        weighted = float((part["mean_seconds"] * part["count"]).sum())
        rows.append(
            {
                "label": label,
                "read_percent": part["read_percent"][0],
                "size_bytes": part["size_bytes"][0],
                "threads": part["threads"][0],
                "queue_depth": part["queue_depth"][0],
                "iops": part["iops"].mean(),
                "bytes_per_second": part["bytes_per_second"].mean(),
                "mean": weighted / count,
                "p50": percentile(0.5),
                "p99": percentile(0.99),
                "p999": percentile(0.999),
                "p9999": percentile(0.9999),
                "p99999": percentile(0.99999),
                "maximum": most,
            }
        )
    return pl.DataFrame(rows, infer_schema_length=None)


def _matrix(section: Section, test: Outcome, own: pl.DataFrame, reader: Reader) -> None:
    rounds = own.filter(pl.col("stage") == "round")
    window = _in_window(test, rounds)
    table = _merged(window, reader)
    shares = table["read_percent"].unique().sort(descending=True).to_list()
    sizes = table["size_bytes"].unique().sort(descending=True).to_list()
    if len(shares) > 1 and len(sizes) > 1:
        for title, column, factor in (("IOPS", "iops", 1.0), ("Mean latency, ms", "mean", 1e3)):
            known = {
                (row["size_bytes"], row["read_percent"]): row[column] * factor
                for row in table.iter_rows(named=True)
            }
            values = [[known.get((size, share)) for share in shares] for size in sizes]
            rows = [shown_size(size) for size in sizes]
            columns = [f"{share:g} % read" for share in shares]
            section.parts.append(Chart(title, figures.heat(rows, columns, values)))
        section.parts.append(Chart("IOPS against size", figures.matrix_lines(table)))
    section.parts.append(("Cells", tables.cells(table)))
    section.parts.append(Chart("Convergence", figures.convergence(rounds)))
    tracked = [tracked.label for tracked in test.tracked]
    parts = {
        label: [
            reader.histogram([step])
            for step in window.filter(pl.col("label") == label)["step"].to_list()
        ]
        for label in tracked
    }
    section.parts.append(
        Chart(
            "Distribution of latencies",
            figures.distribution(parts),
            "Bands: from the lowest to the highest of the window's rounds; lines: all merged.",
        )
    )


def _demand(section: Section, test: Outcome, own: pl.DataFrame, reader: Reader) -> None:
    table = _merged(_in_window(test, own.filter(pl.col("stage") == "round")), reader)
    threads = table["threads"].unique().sort().to_list()
    depths = table["queue_depth"].unique().sort().to_list()
    for title, column, factor in (("IOPS", "iops", 1.0), ("Mean latency, ms", "mean", 1e3)):
        known = {
            (row["threads"], row["queue_depth"]): row[column] * factor
            for row in table.iter_rows(named=True)
        }
        values = [[known.get((t, q)) for q in depths] for t in threads]
        rows, columns = [f"{t} threads" for t in threads], [f"{q} deep" for q in depths]
        section.parts.append(Chart(title, figures.heat(rows, columns, values)))
    points = table.rename(
        {"mean": "mean_seconds", "p99": "p99_seconds", "maximum": "maximum_seconds"}
    )
    section.parts.append(Chart("Throughput against latency", figures.knee(points)))
    _facts(section, test)


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
        figures.time_series(series, why),
        "Every step of the test, preconditioning included. The maximum is the slowest request of "
        "its second; σ is that of the second's requests.",
    )
