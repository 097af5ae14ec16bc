"""Sizes and times as text, such as `"4 KiB"` and `"60 s"`, in the forms of hemi's own files."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_SIZES = {
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def parse_size(text: object) -> int:
    """Returns the bytes of `"4 KiB"`, `"512 B"` or `"1 GB"`."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = _QUANTITY.fullmatch(str(text))
    unit = _SIZES.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not a size; write one as in '4 KiB', '512 B' or '1 GB'")
    size = float(match[1]) * unit
    if size != int(size):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(size)


def parse_time(text: object) -> float:
    """Returns the seconds of `"60 s"`, `"5 min"` or `"100 ms"`."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    match = _QUANTITY.fullmatch(str(text))
    unit = _TIMES.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not a time; write one as in '60 s', '5 min' or '100 ms'")
    return float(match[1]) * unit


Size = Annotated[int, BeforeValidator(parse_size)]
"""Bytes. In files a text such as `"4 KiB"`."""

Time = Annotated[float, BeforeValidator(parse_time)]
"""Seconds. In files a text such as `"60 s"`."""


def shown_size(size: float) -> str:
    """Returns a text such as `4 KiB`, in the largest binary unit that fits."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.4g} {unit}"
    return f"{size:.4g} B"


def shown_time(seconds: float) -> str:
    """Returns a text such as `2.5 ms`, `61 s`, `4 min 10 s` or `6 h 5 min`: three digits or two
    units."""
    if seconds >= 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    if seconds >= 120:
        whole = round(seconds)
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns" if seconds else "0 s"


def shown_rate(bytes_per_second: float) -> str:
    """Returns a text such as `138 MB/s`, in decimal units, as drives are sold and reviewed."""
    for unit, factor in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= factor:
            return f"{bytes_per_second / factor:.3g} {unit}"
    return f"{bytes_per_second:.3g} B/s"


def shown_count(count: float) -> str:
    """Returns a text such as `41,862`. Numbers below 100 have three digits."""
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"
