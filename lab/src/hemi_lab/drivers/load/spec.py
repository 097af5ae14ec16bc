"""A load as `hemi load` reads it."""

from __future__ import annotations

import json
import shlex
from typing import Any


def text(title: str, seed: int, workload: dict[str, Any]) -> str:
    """The TOML file."""
    return f"title = {value(title)}\nseed = {seed}\nworkload = {value(workload)}\n"


def value(of: Any) -> str:
    """An inline value. JSON's strings and numbers are TOML's; its objects are not."""
    if isinstance(of, dict):
        return "{ " + ", ".join(f"{key} = {value(part)}" for key, part in of.items()) + " }"
    if isinstance(of, list):
        return f"[{', '.join(value(part) for part in of)}]"
    return json.dumps(of, ensure_ascii=False)


def as_command(spec: str, command: list[str]) -> list[str]:
    """A command that runs without the file, to be given again."""
    rest = [part if part != "load.toml" else "/dev/stdin" for part in command]
    return ["sh", "-c", f"printf %s {shlex.quote(spec)} | {shlex.join(rest)}"]
