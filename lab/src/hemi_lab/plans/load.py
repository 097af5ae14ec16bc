"""Loads plans: the built-in ones by name, others by path.

Errors name the file, the key, the value and the correct form."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hemi_lab.errors import UsageError
from hemi_lab.plans.model import Plan


def built_in_names() -> list[str]:
    """Returns the names of the plans that come with hemi-lab."""
    folder = resources.files("hemi_lab.plans") / "builtin"
    return sorted(
        path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml")
    )


def load(name: str) -> tuple[Plan, str]:
    """Returns a plan and its text. A name with a `/` or the ending `.toml` is a path."""
    if "/" in name or name.endswith(".toml"):
        try:
            text = Path(name).read_text()
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror}", "hemi-lab plans lists others.") from error
        return parse(text, name), text
    if name not in built_in_names():
        listed = ", ".join(built_in_names())
        raise UsageError(
            f"{name}: there is no such plan", f"There are {listed}; a file is named by its path."
        )
    text = (resources.files("hemi_lab.plans") / "builtin" / f"{name}.toml").read_text()
    return parse(text, f"{name}.toml"), text


def parse(text: str, file: str) -> Plan:
    """Parses a plan from a file's text."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}", "A plan is a TOML file.") from error
    try:
        return Plan.model_validate(table)
    except ValidationError as error:
        problems = [said(problem, table) for problem in error.errors()]
        listed = "\n".join(f"{file}: {problem}" for problem in problems)
        raise UsageError(listed, "docs/lab/plans.md says what a plan may have.") from error


def said(problem: Any, table: dict[str, Any]) -> str:
    """Returns a text such as `tests[0].cell = '60': Input should be ...`."""
    # The place of a test contains its kind, which is not a key of the file.
    place: list[str | int] = []
    value: Any = table
    for part in problem["loc"]:
        if isinstance(value, dict) and part not in value and value.get("kind") == part:
            continue
        place.append(part)
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = value[part]
        else:
            value = None
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{key.lstrip('.')} is missing"
    if problem["type"] == "extra_forbidden":
        return f"{key.lstrip('.')}: there is no such key"
    shown = repr(problem["input"])
    shown = shown if len(shown) <= 60 else ""
    return f"{key.lstrip('.')}{f' = {shown}' if shown else ''}: {message}"
