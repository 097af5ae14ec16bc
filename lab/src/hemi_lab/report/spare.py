"""Spare flash and its effect on rate, evenness and write amplification."""

from __future__ import annotations

import math
from dataclasses import dataclass

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots
from scipy.special import lambertw

from hemi_lab.report import axes
from hemi_lab.report.colours import BLUE, GREEN, GREY, ORANGE
from hemi_lab.report.parts import Chart, Part, Table
from hemi_lab.results.model import Outcome
from hemi_lab.results.store import Reader
from hemi_lab.units import shown_count, shown_time


@dataclass(frozen=True)
class Spared:
    """One load of random writes on one drive, steady or as near to it as it came."""

    label: str
    alpha: float
    """Flash (raw, less its loss) as a multiple of the active range."""
    iops: float
    deviation: float
    """Standard deviation of the requests' latencies."""
    amplification: float | None
    steady: bool

    @property
    def share(self) -> float:
        """Spare flash, as a share of all flash."""
        return 1 - 1 / self.alpha


def parts(runs: list[tuple[str, Reader]]) -> list[Part]:
    """Compares the points of all runs. A single point is no curve."""
    known = sorted(
        (point for letter, reader in runs for point in _points(letter, reader)),
        key=lambda point: point.alpha,
    )
    if len({round(point.alpha, 6) for point in known}) < 2:
        return []
    rows = [
        [
            point.label,
            f"{point.share:.1%}",
            f"{point.alpha - 1:.1%}",
            shown_count(point.iops),
            f"× {point.iops / known[0].iops:.3g}",
            shown_time(point.deviation),
            "–" if point.amplification is None else f"{point.amplification:.3g}",
            f"{first_in_first_out(point.alpha):.3g}",
            "yes" if point.steady else "NOT REACHED",
        ]
        for point in known
    ]
    headings = ["", "spare of flash", "of data", "IOPS", "", "σ", "write ampl.", "theory", "steady"]
    note = (
        "Spare: flash (raw, less what is lost to tables and parity) beyond what the load writes "
        "to. Theory: cleaning the oldest block first under uniform random writes, "
        "1 / (1 - u) with u = exp(-alpha (1 - u)); choosing the emptiest lies a little below it. "
        "What a drive keeps free for collecting is spare that does not help, and weighs the more, "
        "the smaller its flash is scaled."
    )
    return [
        ("Over-provisioning", Table(headings, rows, note)),
        Chart("What spare flash does", _figure(known)),
    ]


def first_in_first_out(alpha: float) -> float:
    """Returns the write amplification of oldest-first cleaning under uniform random page writes.

    Desnoyers, SYSTOR 2012; Xiang and Kurkoski, 2011."""
    return alpha / (alpha + float(lambertw(-alpha * math.exp(-alpha)).real))


def _points(letter: str, reader: Reader) -> list[Spared]:
    drives = reader.result.target.get("drives") or []
    capacity = reader.result.target.get("bytes")
    if len(drives) != 1 or not drives[0] or not drives[0].get("flash_bytes") or not capacity:
        return []
    flash = float(drives[0]["flash_bytes"])
    steps = reader.table("steps").filter(pl.col("count") > 0)
    found = []
    for test in reader.result.tests:
        window = _window(test, steps)
        if window.is_empty() or not _uniform_writes(window):
            continue
        span = float(window["span_percent"][0]) / 100
        alpha = flash / (float(capacity) * span)
        if alpha <= 1:
            continue
        count = window["count"].to_numpy()
        means = window["mean_seconds"].to_numpy()
        # The variance of all requests of the window: within the rounds, and between their means.
        mean = float((means * count).sum() / count.sum())
        squares = (window["standard_deviation_seconds"].to_numpy() ** 2 + means**2) * count
        variance = float(squares.sum() / count.sum()) - mean**2
        found.append(
            Spared(
                f"{letter}: {test.title}",
                alpha,
                float(count.sum() / window["length_seconds"].to_numpy().sum()),
                math.sqrt(max(0.0, variance)),
                write_amplification(reader.table("causes"), window["step"].to_list()),
                all(tracked.reached for tracked in test.tracked),
            )
        )
    return found


def _window(test: Outcome, steps: pl.DataFrame) -> pl.DataFrame:
    """Returns the rounds of the tracked load in its (last) window."""
    if len(test.tracked) != 1 or test.tracked[0].first is None:
        return steps.clear()
    first, last = test.tracked[0].first, test.tracked[0].last or test.tracked[0].first
    own = steps.filter((pl.col("test") == test.name) & pl.col("round").is_between(first, last))
    return own.filter(pl.col("stage").is_in(["precondition", "round"]))


def _uniform_writes(window: pl.DataFrame) -> bool:
    """Returns true for one load of uniform random writes, the only one that the theory covers."""
    return bool(
        window["label"].n_unique() == 1
        and (window["read_percent"] == 0).all()
        and (window["pattern"] == "random").all()
    )


def write_amplification(causes: pl.DataFrame, steps: list[int]) -> float | None:
    """Returns the write amplification of all legs over some steps, or `None` if none is known."""
    own = causes.filter(pl.col("step").is_in(steps))
    wrote = own.filter(pl.col("name") == "bytes_per_second").select(
        "step", "start_seconds", "leg", (pl.col("value") * pl.col("length_seconds")).alias("weight")
    )
    known = own.filter(pl.col("name") == "write_amplification").join(
        wrote, on=["step", "start_seconds", "leg"]
    )
    weight = float(known["weight"].sum())
    return float((known["value"] * known["weight"]).sum()) / weight if weight else None


def _figure(known: list[Spared]) -> go.Figure:
    figure = make_subplots(rows=1, cols=3, horizontal_spacing=0.11)
    x = [100 * point.share for point in known]
    labels = [point.label for point in known]
    panels: tuple[tuple[str, str, list[float | None]], ...] = (
        ("IOPS", BLUE, [point.iops for point in known]),
        ("σ of latency", ORANGE, [point.deviation for point in known]),
        ("write amplification", GREEN, [point.amplification for point in known]),
    )
    for column, (title, colour, y) in enumerate(panels, 1):
        figure.add_scatter(
            x=x,
            y=y,
            text=labels,
            name=title,
            mode="lines+markers",
            line={"color": colour, "width": 1.5},
            row=1,
            col=column,
        )
        axis = axes.seconds(title, log=False) if colour == ORANGE else axes.count(title)
        figure.update_yaxes(**axis, row=1, col=column)
    least, most = known[0].share, known[-1].share
    reach = max(0.02, (most - least) / 4)
    shares = [max(0.02, least - reach) + n * (most - least + 2 * reach) / 60 for n in range(61)]
    shares = [share for share in shares if share < 0.9]
    figure.add_scatter(
        x=[100 * share for share in shares],
        y=[first_in_first_out(1 / (1 - share)) for share in shares],
        name="theory, oldest first",
        mode="lines",
        line={"color": GREY, "dash": "dot", "width": 1.3},
        row=1,
        col=3,
    )
    figure.update_xaxes(title="spare, % of flash")
    figure.update_layout(height=340)
    return figure
