"""Progress of a run: one line for each step, and a bar for the plan."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from hemi_lab.results.model import Found
from hemi_lab.steps import Step
from hemi_lab.transactions import DatabaseLoad, ScanLoad
from hemi_lab.units import shown_count, shown_rate, shown_time


class Progress:
    """A bar on a terminal, or plain lines elsewhere."""

    def __init__(self, most_seconds: float, console: Console) -> None:
        self._console = console
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("", total=max(most_seconds, 1.0))
        self._begun = time.monotonic()

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def show(self, step: Step, found: Found | None) -> None:
        """Shows the start of a step, or its result."""
        number = f" {step.round}" if step.round else ""
        name = f"{step.test}, {step.stage}{number}: {step.label}"
        if found is None:
            self._bars.update(self._task, description=name[:70])
            return
        self._bars.update(self._task, completed=time.monotonic() - self._begun)
        if step.load is None:
            return
        if isinstance(step.load, DatabaseLoad):
            known = (found.p50_seconds, found.p95_seconds, found.p99_seconds)
            ranks = " ".join("–" if rank is None else shown_time(rank) for rank in known)
            self._console.print(f"{name}: {shown_count(found.iops)} tps, 50/95/99 % {ranks}")
            return
        if isinstance(step.load, ScanLoad):
            seconds, rate = shown_time(found.length_seconds), shown_rate(found.bytes_per_second)
            self._console.print(f"{name}: {seconds}, {rate}")
            return
        if not found.count and found.notes:
            # There are no figures, and zeros would look like some.
            self._console.print(f"{name}: {found.notes}")
            return
        self._console.print(
            f"{name}: {shown_count(found.iops)} IOPS, {shown_rate(found.bytes_per_second)}, "
            f"mean {shown_time(found.mean_seconds)}, max {shown_time(found.maximum_seconds)}, "
            f"σ {shown_time(found.standard_deviation_seconds)}"
        )
