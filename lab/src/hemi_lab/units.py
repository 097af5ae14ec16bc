"""Sizes and times as text, such as `"4 KiB"`, `"10G"` and `"1m 30s"`: the grammar of hemi's own
files and options (`crates/units`, whose examples hold both)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_SIZES = {"": 1, "b": 1} | {
    unit: factor
    for power, letter in enumerate("kmgtpe", 1)
    for unit, factor in (
        # For drives everybody means a power of 1024.
        (letter, 1024**power),
        (f"{letter}i", 1024**power),
        (f"{letter}ib", 1024**power),
        (f"{letter}b", 1000**power),
    )
}
_TIMES = {
    unit: nanoseconds
    for units, nanoseconds in (
        ("nanos nsec ns", 1),
        ("usec us µs", 10**3),
        ("millis msec ms", 10**6),
        ("seconds second secs sec s", 10**9),
        ("minutes minute min mins m", 60 * 10**9),
        ("hours hour hr hrs h", 3600 * 10**9),
        ("days day d", 86_400 * 10**9),
        ("weeks week wk wks w", 604_800 * 10**9),
        ("months month M", 2_630_016 * 10**9),
        ("years year yr yrs y", 31_557_600 * 10**9),
    )
    for unit in units.split()
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ]+)\s*")
_MOST = (1 << 64) - 1


def parse_size(text: object) -> int:
    """Returns the bytes of `"4 KiB"`, `"10G"`, `"512"` or `"1 GB"`. Numbers are bytes."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = _SIZE.fullmatch(str(text).strip())
    unit = _SIZES.get(match[2].lower()) if match else None
    # A number with a decimal point needs its unit.
    if match is None or unit is None or ("." in match[1] and not match[2]):
        raise ValueError(
            f"{text!r} is not a size; write a number of bytes, or one with K, M, G, T or KiB, MiB, "
            "GiB … (powers of 1024) or KB, MB, GB … (powers of 1000)"
        )
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def parse_time(text: object) -> float:
    """Returns the seconds of `"60 s"`, `"1m 30s"` or `"8.9 ms"`. Numbers are seconds."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text)
    said = str(text).strip()
    parts = list(_TIME.finditer(said))
    units = [_TIMES.get(part[2]) for part in parts]
    whole = "".join(part[0] for part in parts) == said
    # A number with a decimal point has one unit.
    if not parts or not whole or None in units or ("." in said and len(parts) > 1):
        raise ValueError(
            f"{text!r} is not a time; write a number with its unit, as in 500us, 8.9 ms, 5s, 1m 30s"
        )
    total = sum(float(part[1]) * (unit or 0) for part, unit in zip(parts, units, strict=True))
    if total > _MOST:
        raise ValueError(f"{text!r} is longer than 584 years")
    return total / 1e9


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


def counted(count: int, one: str) -> str:
    """Returns a text such as `1 run` or `1,200 runs`, for a word with a regular plural."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def signed(text: str) -> str:
    """Returns a number's text with a true minus sign, as wide as a plus."""
    return text.replace("-", "\N{MINUS SIGN}")
