"""Runs sysbench 1.0 and parses its output.

sysbench's histogram has 1,024 logarithmic bins from 1 µs to 100 s, each 1.8 % wide and named by its
middle. sysbench reports one latency percentile for a run and for each second. The others come from
the histogram, in the lab's own form with the bins' edges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from hemi_lab.errors import LabError
from hemi_lab.statistics.histogram import Histogram
from hemi_lab.tool import failed

from .tools import Argument, CommandLog


class OutputNotUnderstood(LabError):
    """sysbench's output is not in the form of version 1.0."""


@dataclass(frozen=True)
class Second:
    """One of sysbench's interim reports."""

    at: int
    """Seconds since the load began, at the end of the interval."""
    threads: int
    transactions: float
    """Transactions per second in the interval. The fields below have the same unit."""
    queries: float
    reads: float
    writes: float
    other: float
    latency_ms: float
    """The requested percentile (`Report.latency_rank`) in this interval."""
    errors: float
    """Ignored errors per second: transactions done again, such as after a deadlock."""
    reconnects: float


@dataclass(frozen=True)
class TransactionKind:
    """The TPC-C-like script's counts of one of its five transactions, over all threads."""

    name: str
    committed: int
    rolled_back: int
    """Rollbacks that the script intends: one new order in a hundred."""
    restarts: int
    """Transactions repeated after a deadlock or a lock wait timeout."""
    bins: Histogram
    """Latency from the first try to the end. There are 8 bins to a doubling."""


@dataclass(frozen=True)
class Report:
    """The final report of one run."""

    threads: int
    seconds: float
    """Time the load ran."""
    transactions: int
    queries: int
    reads: int
    writes: int
    other: int
    ignored_errors: int
    reconnects: int
    events: int
    latency_min_ms: float
    latency_mean_ms: float
    latency_max_ms: float
    latency_rank: int
    latency_at_rank_ms: float
    latency_sum_ms: float
    series: list[Second]
    bins: Histogram
    kinds: list[TransactionKind] = field(default_factory=list)
    """Empty unless the script is the TPC-C-like one."""

    @property
    def transactions_per_second(self) -> float:
        """Rate over the whole run."""
        return self.transactions / self.seconds


_SECOND = re.compile(
    r"^\[ (?P<at>\d+)s \] thds: (?P<threads>\d+) tps: (?P<tps>[\d.]+) qps: (?P<qps>[\d.]+) "
    r"\(r/w/o: (?P<r>[\d.]+)/(?P<w>[\d.]+)/(?P<o>[\d.]+)\) "
    r"lat \(ms,\d+%\): (?P<latency>[\d.]+) err/s: (?P<err>[\d.]+) reconn/s: (?P<reconn>[\d.]+)$"
)
# A bin far below the largest has no star at all.
_BIN = re.compile(r"^ *(?P<value>\d+\.\d{3}) \|\** +(?P<count>\d+)$", re.MULTILINE)
_PERCENTILE = re.compile(r"^ +(?P<rank>\d+)th percentile: +(?P<value>[\d.]+)$", re.MULTILINE)
_KIND = re.compile(
    r"^tpcc thread=\d+ transaction=(?P<name>\w+) committed=(?P<committed>\d+) "
    r"rolled_back=(?P<rolled_back>\d+) restarts=(?P<restarts>\d+) bins=(?P<bins>[\d:,]*)$",
    re.MULTILINE,
)


def version(log: CommandLog) -> str:
    """Returns sysbench's version. Raises if the lab does not read its report."""
    said = log.run("sysbench", "--version").strip()
    if not said.startswith("sysbench 1.0."):
        raise OutputNotUnderstood(
            f"`sysbench --version` says {said!r}; the lab reads the report of sysbench 1.0"
        )
    return said


def parse_second(line: str) -> Second | None:
    """Parses an interim report. Returns None for any other line."""
    found = _SECOND.match(line)
    if found is None:
        return None
    return Second(
        at=int(found["at"]),
        threads=int(found["threads"]),
        transactions=float(found["tps"]),
        queries=float(found["qps"]),
        reads=float(found["r"]),
        writes=float(found["w"]),
        other=float(found["o"]),
        latency_ms=float(found["latency"]),
        errors=float(found["err"]),
        reconnects=float(found["reconn"]),
    )


def parse(printed: str) -> Report:
    """Parses the report of a finished run."""
    percentile = _PERCENTILE.search(printed)
    if percentile is None:
        raise _not_understood("its latency percentile", printed)
    return Report(
        threads=int(_number("Number of threads", printed)),
        seconds=_number(" +total time", printed, "s"),
        transactions=int(_number(" +transactions", printed)),
        queries=int(_number(" +queries", printed)),
        reads=int(_number(" +read", printed)),
        writes=int(_number(" +write", printed)),
        other=int(_number(" +other", printed)),
        ignored_errors=int(_number(" +ignored errors", printed)),
        reconnects=int(_number(" +reconnects", printed)),
        events=int(_number(" +total number of events", printed)),
        latency_min_ms=_number(" +min", printed),
        latency_mean_ms=_number(" +avg", printed),
        latency_max_ms=_number(" +max", printed),
        latency_rank=int(percentile["rank"]),
        latency_at_rank_ms=float(percentile["value"]),
        latency_sum_ms=_number(" +sum", printed),
        series=[s for line in printed.splitlines() if (s := parse_second(line))],
        bins=Histogram.of(
            (*_edges(float(b["value"])), int(b["count"])) for b in _BIN.finditer(printed)
        ),
        kinds=_kinds(printed),
    )


def _number(label: str, printed: str, unit: str = "") -> float:
    found = re.search(rf"^{label}: +([\d.]+){unit}(?: |$)", printed, re.MULTILINE)
    if found is None:
        raise _not_understood(f"`{label.removeprefix(' +')}`", printed)
    return float(found[1])


def _not_understood(what: str, printed: str) -> OutputNotUnderstood:
    return OutputNotUnderstood(
        f"sysbench's report lacks {what}; the lab reads that of sysbench 1.0. It printed:\n"
        f"{printed[-4000:]}"
    )


def _kinds(printed: str) -> list[TransactionKind]:
    """Sums the threads' lines."""
    by_name: dict[str, list[re.Match[str]]] = {}
    for line in _KIND.finditer(printed):
        by_name.setdefault(line["name"], []).append(line)
    return [
        TransactionKind(
            name=name,
            committed=sum(int(line["committed"]) for line in lines),
            rolled_back=sum(int(line["rolled_back"]) for line in lines),
            restarts=sum(int(line["restarts"]) for line in lines),
            bins=Histogram.merged(_kind_bins(line["bins"]) for line in lines),
        )
        for name, lines in by_name.items()
    ]


def _kind_bins(text: str) -> Histogram:
    """Parses bins such as `81:3,82:9`. Bin b holds 2^(b/8) to 2^((b+1)/8) microseconds."""
    pairs = [pair.split(":") for pair in text.split(",") if pair]
    return Histogram.of((_kind_edge(int(b)), _kind_edge(int(b) + 1) - 1, int(n)) for b, n in pairs)


def _kind_edge(index: int) -> int:
    return math.ceil(1000 * 2 ** (index / 8))


# sysbench's grid: 1,024 logarithmic bins whose middles go from 1 µs to 100 s.
_LAST = 1023
_FIRST_NS = 1_000
_DECADES = 8


def _edges(milliseconds: float) -> tuple[int, int]:
    """Returns the lowest and highest nanoseconds of a bin, half a bin around its printed middle."""
    # The printed middle has three decimals, so take the nearest of the grid.
    index = round(math.log10(milliseconds * 1e6 / _FIRST_NS) * _LAST / _DECADES)
    return _edge(index), _edge(index + 1) - 1


def _edge(index: int) -> int:
    return math.ceil(_FIRST_NS * 10 ** ((index - 0.5) * _DECADES / _LAST))


@dataclass(frozen=True)
class Load:
    """A sysbench script against one database."""

    script: str
    """A built-in script's name, or the path of one."""
    options: tuple[str, ...]
    """The script's own options."""
    socket: str
    """The server's unix socket."""
    database: str
    user: str

    def argv(self, *more: Argument) -> list[Argument]:
        """Returns the command, ending with the options and the command word in `more`."""
        return [
            "sysbench",
            self.script,
            "--db-driver=mysql",
            f"--mysql-socket={self.socket}",
            f"--mysql-user={self.user}",
            f"--mysql-db={self.database}",
            *self.options,
            *more,
        ]


def run(
    log: CommandLog,
    load: Load,
    *,
    threads: int,
    seconds: int,
    seed: int,
    grace: float,
    on_second: Callable[[Second], object],
) -> tuple[Report, float]:
    """Runs a load. Returns its report and the processor seconds that sysbench used.

    sysbench may take up to `grace` seconds longer than requested before it is killed. `on_second`
    gets each interim report as it comes.
    """

    def on_line(line: str) -> None:
        if second := parse_second(line):
            on_second(second)

    argv = load.argv(
        f"--threads={threads}",
        f"--time={seconds}",
        "--events=0",
        "--report-interval=1",
        "--histogram",
        "--percentile=95",
        f"--rand-seed={seed}",
        "run",
    )
    printed, processor_seconds = log.stream(*argv, timeout=seconds + grace, on_line=on_line)
    # sysbench 1.0 may exit with 0 although a thread has given up.
    if "FATAL:" in printed:
        raise failed([str(word) for word in argv], "reported a fatal error", printed)
    return parse(printed), processor_seconds
