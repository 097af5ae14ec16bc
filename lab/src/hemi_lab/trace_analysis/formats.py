"""The formats of traces, and the options needed to read them."""

from __future__ import annotations

from dataclasses import dataclass

from hemi_lab.errors import UsageError

EXPECTED = {
    "msr": "`timestamp,host,disk,Read|Write,offset,size,response time`, in bytes and 100 ns",
    "spc": "`ASU,LBA,size,R|W,time`, in blocks of 512 bytes, bytes and seconds",
    "alibaba": "`device,R|W,offset,length,timestamp`, in bytes and microseconds",
    "tencent": "`timestamp,offset,size,0|1,volume`, in seconds and sectors; 1 writes",
    "disksim": "`time device block count flags`, in sectors; bit 0 of the hexadecimal flags reads",
    "blkparse": "blkparse's default text, as in `8,0 3 1 0.000000000 697 Q R 223490 + 8 [name]`",
    "fio_iolog": (
        "`fio version 2 iolog` or `fio version 3 iolog`, and then lines of `[microseconds] file "
        "action [offset length]`"
    ),
    "hemi": "what `hemi serve --record` writes",
}
"""Descriptions of each format's lines, for messages."""

BOUNDS = "numbers and byte addresses are below 2^64, a request is below 2 TiB"
"""Bounds that every line has to keep."""

_ALIASES = {"mqsim": "disksim"}
NAMES = (*EXPECTED, *_ALIASES)

TIME_UNITS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
"""Nanoseconds of the time units of disksim traces."""
EVENTS = ("Q", "D")
"""Events of a blkparse trace that can be requests: queued, or given to the driver."""

RECORDING_MAGIC = b"HEMICAP"
"""The beginning of hemi's own recordings."""


@dataclass(frozen=True)
class Format:
    """A format with the options needed to read it."""

    name: str
    time_unit: str | None = None
    """Unit of times in disksim traces."""
    event: str | None = None
    """Event of blkparse traces that counts as a request."""

    @property
    def expected(self) -> str:
        """Returns the description of a valid line."""
        return f"expected {EXPECTED[self.name]}; {BOUNDS}"


def format_of(name: str, time_unit: str | None = None, event: str | None = None) -> Format:
    """Returns the format of that name with its options. Raises for options of other formats."""
    name = _ALIASES.get(name, name)
    if name not in EXPECTED:
        raise UsageError(
            f"--format {name}: there is no such format", f"There are {', '.join(NAMES)}."
        )
    if name == "disksim":
        if time_unit not in TIME_UNITS:
            given = "is missing" if time_unit is None else f"is {time_unit!r}"
            raise UsageError(
                f"--time-unit {given}",
                "Say what the trace's times count: ms (DiskSim's), us or ns (MQSim's).",
            )
    elif time_unit is not None:
        raise UsageError(
            f"--time-unit {time_unit}: {name} says itself what its times count",
            "Leave it out: only disksim traces leave their unit open.",
        )
    if name == "blkparse":
        event = event or EVENTS[0]
        if event not in EVENTS:
            raise UsageError(f"--event {event}: no such event", "Q is queued, D given to a driver.")
    elif event is not None:
        raise UsageError(
            f"--event {event}: {name} has one line for a request",
            "Leave it out: only blkparse has several events for one.",
        )
    return Format(name, time_unit, event)
