"""Writes a load in the form that `hemi load` reads."""

from __future__ import annotations

import json
import shlex
from typing import Any


def text(title: str, seed: int, workload: dict[str, Any]) -> str:
    """Returns the TOML file."""
    return f"title = {value(title)}\nseed = {seed}\nworkload = {value(workload)}\n"


def value(of: Any) -> str:
    """Returns an inline value. JSON's strings and numbers are TOML's, its objects are not."""
    if isinstance(of, dict):
        return "{ " + ", ".join(f"{key} = {value(part)}" for key, part in of.items()) + " }"
    if isinstance(of, list):
        return f"[{', '.join(value(part) for part in of)}]"
    return json.dumps(of, ensure_ascii=False)


def as_command(spec: str, command: list[str]) -> list[str]:
    """Returns a command that needs no file, so that it can be repeated."""
    rest = [part if part != "load.toml" else "/dev/stdin" for part in command]
    return ["sh", "-c", f"printf %s {shlex.quote(spec)} | {shlex.join(rest)}"]
