"""An OLTP run: placements, load, checks, warm-up, steps, checks."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from hemi_lab.errors import LabError
from hemi_lab.units import counted

from . import consistency, sysbench, workloads
from .results import (
    OltpResult,
    PlacementResult,
    Step,
    audit,
    kind_percentiles,
    percentiles,
)
from .server import MariaDb
from .settings import (
    SMALLEST_POOL,
    BadSetting,
    OltpSettings,
    Place,
    Placement,
    pool_bytes,
)
from .targets import OpenTarget, Target
from .workplace import Workplace

# A target may stall for long, and sysbench ends only with its last transactions.
_GRACE_SECONDS = 600.0
# Room for the redo log, undo, and the growth of the TPC-C-like load.
_ROOM_FACTOR = 1.5
_ROOM_BYTES = 256 << 20


class OltpRun:
    """One run. `result` grows meanwhile, and is valid even if `execute` is interrupted."""

    def __init__(
        self,
        settings: OltpSettings,
        targets: Mapping[Place, Target],
        *,
        say: Callable[[str], object] = lambda text: None,
        on_second: Callable[[sysbench.Second], object] = lambda second: None,
        on_step: Callable[[PlacementResult, Step], object] = lambda placement, step: None,
    ) -> None:
        """Takes target A, and B if a placement names it.

        `say` gets a line for each stage, `on_second` each interim report of sysbench, and `on_step`
        each finished step."""
        for placement in settings.placements:
            for letter in (placement.data, placement.log):
                if letter not in targets:
                    raise BadSetting(
                        "placements", str(placement), f"there is no target {letter}; name one"
                    )
        self._settings = settings
        self._targets = dict(targets)
        self._say = say
        self._on_second = on_second
        self._on_step = on_step
        self.result = OltpResult(_plain(settings), settings.deviations())

    def execute(self, place: Workplace) -> OltpResult:
        """Runs everything.

        On an error or Ctrl-C, `result.incomplete` has the reason and the exception is passed on.
        The end of the workplace then stops all that still runs.
        """
        self.result.commands = place.log.commands
        try:
            self.result.sysbench_version = sysbench.version(place.log)
            opened = self._open(place)
            for placement in self._settings.placements:
                self._run_placement(place, opened, placement)
            for target in reversed(opened.values()):
                target.close()
        except KeyboardInterrupt:
            self.result.incomplete = "interrupted"
            raise
        except Exception as error:
            self.result.incomplete = str(error) or repr(error)
            raise
        return self.result

    def _open(self, place: Workplace) -> dict[Place, OpenTarget]:
        used = {p.data for p in self._settings.placements} | {
            p.log for p in self._settings.placements
        }
        opened: dict[Place, OpenTarget] = {}
        for letter in sorted(used):
            self._say(f"target {letter}: making it ready")
            opened[letter] = self._targets[letter].open(place)
            self.result.targets[letter] = opened[letter].description
        for letter in {p.data for p in self._settings.placements}:
            needed = round(self._settings.expected_bytes() * _ROOM_FACTOR) + _ROOM_BYTES
            needed += self._settings.log_file_bytes
            if (free := opened[letter].free_bytes()) < needed:
                raise LabError(
                    f"target {letter} has {free >> 20} MiB free, but this load needs about "
                    f"{needed >> 20} MiB; give more room, or load fewer rows"
                )
        return opened

    def _run_placement(
        self, place: Workplace, opened: Mapping[Place, OpenTarget], placement: Placement
    ) -> None:
        settings = self._settings
        result = PlacementResult(str(placement))
        self.result.placements.append(result)
        # Load anew for each placement, so that all begin alike.
        data = place.subdirectory(opened[placement.data].directory, "data")
        log = place.subdirectory(opened[placement.log].directory, "log")
        server = MariaDb(place, data, log, settings.log_file_bytes)
        self._say(f"{placement}: installing MariaDB")
        server.install()
        # Report options that MariaDB refuses before the load, which may take hours.
        server.start(self._measured_settings(SMALLEST_POOL))
        server.stop()
        self._load(place, server, result)
        self._measure(place, server, result, opened)
        for directory in (data, log):
            shutil.rmtree(directory)

    def _load(self, place: Workplace, server: MariaDb, result: PlacementResult) -> None:
        settings = self._settings
        # Only speed matters here: no commit of the load is measured.
        result.load_settings = {
            "innodb_buffer_pool_size": str(settings.load_pool_bytes),
            "innodb_flush_log_at_trx_commit": "0",
        }
        server.start(result.load_settings)
        self._say(f"{result.placement}: loading about {settings.expected_bytes() >> 20} MiB")
        began = time.monotonic()
        workloads.load_rows(place.log, settings, server)
        result.load_seconds = time.monotonic() - began
        if settings.workload == "tpcc":
            self._say(f"{result.placement}: checking consistency after the load")
            result.checks_after_load = consistency.check(server, settings.checks, after_load=True)
        server.stop()
        result.data_bytes = server.table_bytes()

    def _measure(
        self,
        place: Workplace,
        server: MariaDb,
        result: PlacementResult,
        opened: Mapping[Place, OpenTarget],
    ) -> None:
        settings = self._settings
        assert result.data_bytes is not None
        result.pool_bytes = pool_bytes(result.data_bytes, settings.pool_share)
        share = result.pool_bytes / max(result.data_bytes, 1)
        if share > 2 * settings.pool_share:
            # The smallest pool is large for so little data.
            self.result.deviations.append(
                f"{result.placement}: the buffer pool, {result.pool_bytes >> 20} MiB at least, is "
                f"{share:.2g} of the data: memory is measured more than the target"
            )
        server.start(self._measured_settings(result.pool_bytes))
        result.server_version = server.version()
        result.server_settings = server.settings()
        self._say(
            f"{result.placement}: {result.data_bytes >> 20} MiB of data, buffer pool "
            f"{result.pool_bytes >> 20} MiB"
        )
        if settings.warm_up_seconds:
            self._step(
                place, server, result, opened, settings.threads[0], settings.warm_up_seconds, True
            )
        for number, threads in enumerate(settings.threads):
            if number or settings.warm_up_seconds:
                time.sleep(settings.idle_seconds)
            self._step(place, server, result, opened, threads, settings.seconds, False)
        if settings.workload == "tpcc":
            self._say(f"{result.placement}: checking consistency after the run")
            result.checks_after_run = consistency.check(server, settings.checks, after_load=False)
        result.stop_seconds = server.stop()

    def _measured_settings(self, pool: int) -> dict[str, str]:
        return {
            "innodb_flush_log_at_trx_commit": "1",
            "max_connections": str(max(self._settings.threads) + 16),
            **self._settings.server_options,
            "innodb_buffer_pool_size": str(pool),
        }

    def _step(
        self,
        place: Workplace,
        server: MariaDb,
        result: PlacementResult,
        opened: Mapping[Place, OpenTarget],
        threads: int,
        seconds: int,
        warm_up: bool,
    ) -> None:
        purpose = "warm-up" if warm_up else "step"
        self._say(f"{result.placement}: {purpose}, {counted(threads, 'thread')}, {seconds} s")
        series: list[sysbench.Second] = []
        began = datetime.now(UTC).isoformat(timespec="milliseconds")
        step = Step(threads, seconds, warm_up, began, series)
        result.steps.append(step)

        def on_second(second: sysbench.Second) -> None:
            series.append(second)
            self._on_second(second)

        counters, cpu = server.counters(), server.cpu_seconds()
        report, sysbench_cpu = sysbench.run(
            place.log,
            workloads.load_of(self._settings, server),
            threads=threads,
            seconds=seconds,
            # Another seed for each step, or each would ask for the same rows.
            seed=self._settings.seed + len(result.steps) - 1,
            grace=_GRACE_SECONDS,
            on_second=on_second,
        )
        cpu = server.cpu_seconds() - cpu
        after = server.counters()
        statuses = {letter: target.observe() for letter, target in opened.items()}
        result.steps[-1] = replace(
            step,
            report=report,
            percentiles_ms=percentiles(report),
            kind_percentiles_ms=kind_percentiles(report),
            sysbench_cpu_seconds=sysbench_cpu,
            server_cpu_seconds=cpu,
            counters={name: after[name] - counters.get(name, 0) for name in after},
            data_bytes=server.table_bytes(),
            target_status={letter: s for letter, s in statuses.items() if s is not None},
            audit=audit(report, seconds),
        )
        self._on_step(result, result.steps[-1])


def _plain(settings: OltpSettings) -> dict[str, Any]:
    # `asdict` cannot copy a mapping proxy.
    options = dict(settings.server_options)
    plain = asdict(replace(settings, server_options=options))
    return plain | {"placements": [str(p) for p in settings.placements]}
