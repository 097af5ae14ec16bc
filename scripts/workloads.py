#!/usr/bin/env python3
"""Writes the tables of docs/workloads.md from docs/workload.schema.json.

    scripts/workloads.py [--check]

With --check it writes nothing, and fails if the page differs. A test of hemi-workload holds the
schema to the types.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = ROOT / "docs" / "workload.schema.json"
PAGE = ROOT / "docs" / "workloads.md"
BEGIN = "<!-- The rest is written by scripts/workloads.py. -->\n"

PLAIN = {"integer": "number", "number": "number", "boolean": "true or false", "string": "text"}


def kind(property_: dict[str, Any]) -> str:
    """Returns the form of a value as a reader needs it."""
    if "$ref" in property_:
        name = property_["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name})"
    if "enum" in property_:
        return ", ".join(f"`{value}`" for value in property_["enum"])
    if property_["type"] == "array":
        return f"list of {kind(property_['items'])}"
    return PLAIN[property_["type"]] + bounds(property_)


def bounds(property_: dict[str, Any]) -> str:
    """Returns a text such as ` from 1 to 64`."""
    least, most = property_.get("minimum"), property_.get("maximum")
    above = property_.get("exclusiveMinimum")
    said = ""
    if above is not None:
        said += f" above {above:,}"
    if least is not None:
        said += f" from {least:,}"
    if most is not None:
        said += f" to {most:,}"
    return said


def section(name: str, definition: dict[str, Any], every: dict[str, Any]) -> list[str]:
    """Returns the lines of one definition, of all in `every`."""
    lines = [f"## {name}", "", definition["description"], ""]
    properties = definition.get("properties", {})
    forms = [form for form in definition.get("oneOf", []) if "properties" in form]
    for form in forms:
        properties = {**properties, **form["properties"]}
    if properties:
        lines += ["| key | value | meaning |", "| --- | --- | --- |"]
        required = definition.get("required", [])
        for key, property_ in properties.items():
            needed = " **Required.**" if key in required else ""
            referred = every.get(property_.get("$ref", "").rsplit("/", 1)[-1], {})
            described = property_.get("description") or referred["description"]
            lines.append(
                f"| `{key}` | {kind(property_)} | {described}{needed} |".replace("  ", " ")
            )
        lines.append("")
    examples = definition["examples"]
    one_key = definition.get("maxProperties") == 1 or "oneOf" in definition
    if one_key or not properties:
        shown = ", ".join(f"`{toml(example)}`" for example in examples)
        lines += [f"As in {shown}.", ""]
    return lines


def toml(value: Any) -> str:
    """Returns a value as TOML has it inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def page(schema: dict[str, Any], now: str) -> str:
    """Returns the page: its own beginning, and the tables."""
    head, begin, _ = now.partition(BEGIN)
    if not begin:
        raise SystemExit(f"workloads: {PAGE} has no line {BEGIN.strip()!r}")
    lines = []
    for name, definition in schema["$defs"].items():
        lines += section(name, definition, schema["$defs"])
    return head + begin + "\n" + "\n".join(lines).rstrip() + "\n"


def main() -> None:
    now = PAGE.read_text()
    wanted = page(json.loads(SCHEMA.read_text()), now)
    if "--check" in sys.argv[1:]:
        if now != wanted:
            raise SystemExit("workloads: docs/workloads.md is not of the schema: run the script")
    else:
        PAGE.write_text(wanted)


if __name__ == "__main__":
    main()
