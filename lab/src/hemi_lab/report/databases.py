"""Charts and tables of databases: tps by second and by threads, percentiles, consistency."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from hemi_lab.report import axes
from hemi_lab.report.colours import BLUE, COLOURS, GREEN, ORANGE
from hemi_lab.report.parts import Table
from hemi_lab.units import counted, shown_count, shown_size, shown_time

_RANKS = (
    ("p50_seconds", "50 %", GREEN),
    ("p95_seconds", "95 %", BLUE),
    ("p99_seconds", "99 %", ORANGE),
)
_DASHES = ("solid", "dash", "dot", "dashdot")


def placed(steps: pl.DataFrame) -> pl.DataFrame:
    """Returns the steps with a column of their placement, the beginning of their label."""
    return steps.with_columns(pl.col("label").str.split(",").list.first().alias("placement"))


def series(steps: pl.DataFrame, intervals: pl.DataFrame, told: dict[str, Any] | None) -> go.Figure:
    """Returns a chart of each second's transactions and 95th percentile, on the test's own
    clock."""
    known = [
        step
        for placement in (told or {}).get("placements", [])
        for step in placement["steps"]
        if step["series"]
    ]
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.06)
    first = float(steps["start_seconds"].min() or 0.0)  # type: ignore[arg-type]
    for number, step in enumerate(steps.sort("step").iter_rows(named=True)):
        own = intervals.filter(pl.col("step") == step["step"]).sort("start_seconds")
        begin = step["start_seconds"] - first
        at = (own["start_seconds"] + own["length_seconds"] + begin).to_list()
        colour = COLOURS[number % len(COLOURS)]
        name = step["label"] + (" (warm-up)" if step["stage"] == "warm-up" else "")
        shown = {
            "name": name,
            "legendgroup": name,
            "line": {"color": colour, "width": 1.2},
            "mode": "lines",
        }
        rates = (own["count"] / own["length_seconds"]).to_list()
        figure.add_scatter(x=at, y=rates, row=1, col=1, **shown)
        # The database's own steps come in the same order.
        if len(known) == steps.height:
            seconds = known[number]["series"]
            x = [begin + second["at"] for second in seconds]
            y = [second["latency_ms"] / 1e3 or None for second in seconds]
            figure.add_scatter(x=x, y=y, row=2, col=1, showlegend=False, **shown)
    figure.update_yaxes(**axes.count("tps"), row=1, col=1)
    figure.update_yaxes(**axes.seconds("95 % latency"), row=2, col=1)
    figure.update_xaxes(title="seconds since the test's first step", row=2, col=1)
    # Each line shows its name when pointed at.
    figure.update_layout(height=440, showlegend=steps.height <= 10)
    return figure


def against_threads(measured: pl.DataFrame) -> go.Figure:
    """Returns a chart of throughput against threads, with a line for each placement."""
    figure = go.Figure()
    for number, (name, part) in enumerate(_by_placement(measured)):
        figure.add_scatter(
            x=part["threads"].to_list(),
            y=part["iops"].to_list(),
            name=name,
            mode="lines+markers",
            line={"color": COLOURS[number % len(COLOURS)], "width": 1.6},
        )
    figure.update_xaxes(title="threads", rangemode="tozero")
    figure.update_yaxes(**axes.count("tps"))
    figure.update_layout(height=340, showlegend=True)
    return figure


def latencies(measured: pl.DataFrame) -> go.Figure:
    """Returns a chart of three percentiles against threads. Placements differ in their dashes."""
    figure = go.Figure()
    for number, (name, part) in enumerate(_by_placement(measured)):
        for column, rank, colour in _RANKS:
            figure.add_scatter(
                x=part["threads"].to_list(),
                y=part[column].to_list(),
                name=f"{name}, {rank}",
                mode="lines+markers",
                line={"color": colour, "dash": _DASHES[number % len(_DASHES)], "width": 1.5},
            )
    figure.update_xaxes(title="threads", rangemode="tozero")
    figure.update_yaxes(**axes.seconds("latency"))
    figure.update_layout(height=360)
    return figure


def _by_placement(measured: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    groups = placed(measured).group_by(["placement"], maintain_order=True)
    return [(str(name), part.sort("threads")) for (name,), part in groups]


def points(measured: pl.DataFrame, told: dict[str, Any] | None) -> Table:
    """Returns a row for each placement and thread count."""
    errors = {
        f"{placement['placement']}, {counted(step['threads'], 'thread')}": step["report"]
        for placement in (told or {}).get("placements", [])
        for step in placement["steps"]
        if step["report"] is not None and not step["warm_up"]
    }
    rows = []
    for step in measured.iter_rows(named=True):
        report = errors.get(step["label"])
        ranks = (step[column] for column, _, _ in _RANKS)
        rows.append(
            [
                step["label"],
                shown_count(step["iops"]),
                *("–" if rank is None else shown_time(rank) for rank in ranks),
                shown_time(step["maximum_seconds"]),
                "–" if report is None else f"{report['ignored_errors']:,}",
                "–" if report is None else f"{report['reconnects']:,}",
            ]
        )
    return Table(
        ["data/log, threads", "tps", "50 %", "95 %", "99 %", "max", "done again", "reconnects"],
        rows,
        "Percentiles are the upper edges of sysbench's bins, which are 1.8 % wide. Done again: "
        "transactions that the database gave up for a deadlock or a lock wait.",
    )


def kinds(told: dict[str, Any]) -> Table | None:
    """Returns the percentiles of each TPC-C-like transaction, or `None` for other loads."""
    rows = []
    for placement in told["placements"]:
        for step in placement["steps"]:
            if step["warm_up"] or step["report"] is None:
                continue
            for kind in step["report"]["kinds"]:
                known = step["kind_percentiles_ms"][kind["name"]]
                ranks = (known[rank] for rank in ("50", "95", "99"))
                rows.append(
                    [
                        f"{placement['placement']}, {counted(step['threads'], 'thread')}",
                        kind["name"].replace("_", " "),
                        f"{kind['committed']:,}",
                        *("–" if rank is None else shown_time(rank / 1e3) for rank in ranks),
                    ]
                )
    if not rows:
        return None
    headings = ["data/log, threads", "transaction", "committed", "50 %", "95 %", "99 %"]
    return Table(headings, rows, "From bins 9 % wide.")


def consistency(told: dict[str, Any]) -> Table | None:
    """Returns each condition after the load and after the run, or `None` if none was checked."""
    found: dict[tuple[str, int, str], dict[str, int]] = {}
    for placement in told["placements"]:
        for when in ("load", "run"):
            for finding in placement[f"checks_after_{when}"]:
                key = (placement["placement"], finding["number"], finding["statement"])
                found.setdefault(key, {})[when] = finding["violations"]
    if not found:
        return None

    def said(known: dict[str, int], when: str) -> str:
        if when not in known:
            return "not asked"
        return f"BROKEN {counted(known[when], 'time')}" if known[when] else "holds"

    rows = [
        [f"{name}, 3.3.2.{number}", statement, said(known, "load"), said(known, "run")]
        for (name, number, statement), known in found.items()
    ]
    return Table(
        ["data/log, condition", "", "after the load", "after the run"],
        rows,
        "TPC-C, revision 5.11, clause 3.3.2. Condition 11 holds only after the load. database.json "
        "has the rows that break one.",
    )


def server(told: dict[str, Any]) -> Table:
    """Returns MariaDB's version, sizes and settings, for each placement."""
    rows = []
    for one in told["placements"]:
        settings = one["server_settings"]
        last = next((step for step in reversed(one["steps"]) if step["data_bytes"]), None)
        rows.append(
            [
                one["placement"],
                one["server_version"] or "–",
                _size(one["data_bytes"]),
                _size(last["data_bytes"] if last else None),
                _size(one["pool_bytes"]),
                "–" if one["load_seconds"] is None else shown_time(one["load_seconds"]),
                settings.get("innodb_flush_log_at_trx_commit", "–"),
                settings.get("innodb_doublewrite", "–"),
            ]
        )
    headings = [
        "data/log", "MariaDB", "data", "data at the end", "buffer pool", "loading",
        "flush at commit", "doublewrite",
    ]  # fmt: skip
    return Table(headings, rows, "database.json has every setting and every command.")


def _size(value: int | None) -> str:
    return "–" if value is None else shown_size(value)
