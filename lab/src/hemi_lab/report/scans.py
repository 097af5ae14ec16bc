"""Tables of scans: their times and the bytes they read."""

from __future__ import annotations

from typing import Any

from hemi_lab.report.parts import Table
from hemi_lab.units import shown_count, shown_rate, shown_size, shown_time

_COMPARED = {"access": "By way of access", "layout": "By layout of the file, in key order"}


def parts(told: dict[str, Any]) -> list[tuple[str, Table]]:
    """Returns a table for each comparison that was begun."""
    return [
        (title, _table(comparison, told))
        for comparison, title in _COMPARED.items()
        if any(scan["comparison"] == comparison for scan in told["scans"])
    ]


def _table(comparison: str, told: dict[str, Any]) -> Table:
    scans = [scan for scan in told["scans"] if scan["comparison"] == comparison]
    subjects = list(dict.fromkeys(scan["subject"] for scan in scans))
    means = {subject: _mean(scans, subject, "seconds") for subject in subjects}
    first = means[subjects[0]]
    rows = []
    for subject in subjects:
        seconds = [scan["seconds"] for scan in scans if scan["subject"] == subject]
        read = _mean(scans, subject, "read_bytes")
        ahead = _mean(scans, subject, "pages_read_ahead")
        rows.append(
            [
                subject,
                f"{len(seconds)}",
                shown_time(means[subject]),
                f"{shown_time(min(seconds))} to {shown_time(max(seconds))}",
                f"× {means[subject] / first:.3g}" if first else "–",
                shown_count(_mean(scans, subject, "rows") / means[subject]),
                shown_size(round(read)),
                shown_rate(read / means[subject]),
                shown_count(ahead),
            ]
        )
    headings = [
        "", "scans", "mean", "least to most", "", "rows/s", "read", "rate", "pages ahead",
    ]  # fmt: skip
    return Table(
        headings,
        rows,
        "Each with a cold buffer pool, taking turns. Read: what InnoDB read from its files. Pages "
        "ahead: of those, the pages it read before they were asked for.",
    )


def _mean(scans: list[dict[str, Any]], subject: str, key: str) -> float:
    values = [float(scan[key]) for scan in scans if scan["subject"] == subject]
    return sum(values) / len(values)
