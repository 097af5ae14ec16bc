"""Facts about a drive from the kernel (`/sys/block`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def queue_facts(number: tuple[int, int], system: Path = Path("/sys")) -> dict[str, Any]:
    """Returns the facts of the drive that a block device is, or is a partition of.

    They are model, firmware, scheduler, write cache, logical block and kind. A device without a
    queue (tmpfs, overlay) has none."""
    own = (system / "dev/block" / f"{number[0]}:{number[1]}").resolve()
    if (own / "partition").exists():
        own = own.parent
    if not (own / "queue").is_dir():
        return {}
    return {
        "model": _read(own / "device/model") or own.name,
        "firmware": _read(own / "device/rev") or _read(own / "device/firmware_rev"),
        "scheduler": _chosen(_read(own / "queue/scheduler")),
        "write_cache": _read(own / "queue/write_cache"),
        "logical_block_bytes": _number(own / "queue/logical_block_size"),
        "rotational": bool(_number(own / "queue/rotational")),
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text and text.isdigit() else None


def _chosen(text: str | None) -> str | None:
    """Returns `mq-deadline` for `none [mq-deadline]`."""
    if text and "[" in text:
        return text.split("[", 1)[1].split("]", 1)[0]
    return text
