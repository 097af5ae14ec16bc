#!/usr/bin/env python3
"""Prints the names, versions and licences of the crates in the program, and the licences' texts.

    scripts/notices.py [PACKAGE]

PACKAGE is `hemi-cli` by default. Whoever distributes the program has to include these texts. Texts
that several crates share are printed once. Needs the crates as cargo has downloaded them for a
build.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEXTS = re.compile(r"(licen[cs]e|copying|notice|copyright)([-_.].*)?", re.IGNORECASE)
LINE = "-" * 78


def metadata() -> dict[str, Any]:
    host = subprocess.run(
        ["rustc", "--version", "--verbose"], check=True, capture_output=True, text=True
    ).stdout
    platform = re.search(r"^host: (.*)$", host, re.MULTILINE)
    if platform is None:
        raise SystemExit(f"notices: rustc does not name its host: {host!r}")
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    command += ["--filter-platform", platform[1]]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def linked(tree: dict[str, Any], package: str) -> list[dict[str, Any]]:
    """Returns the foreign crates in the program of `package`, by name and version."""
    packages = {one["id"]: one for one in tree["packages"]}
    nodes = {one["id"]: one for one in tree["resolve"]["nodes"]}
    todo = [key for key, one in packages.items() if one["name"] == package]
    if not todo:
        raise SystemExit(f"notices: no package {package!r} in the workspace")
    seen = set(todo)
    while todo:
        for dependency in nodes[todo.pop()]["deps"]:
            key = dependency["pkg"]
            # Not crates that build, test, or generate code at compile time.
            kept = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            writes_code = any("proc-macro" in t["kind"] for t in packages[key]["targets"])
            if kept and not writes_code and key not in seen:
                seen.add(key)
                todo.append(key)
    foreign = [packages[key] for key in seen if packages[key]["source"] is not None]
    return sorted(foreign, key=lambda one: (one["name"], one["version"]))


def texts(crate: dict[str, Any]) -> list[str]:
    """Returns the texts in the crate's own directory."""
    folder = Path(crate["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if TEXTS.fullmatch(path.name))
    return [path.read_text(errors="replace").strip() for path in files if path.is_file()]


def main() -> None:
    crates = linked(metadata(), sys.argv[1] if len(sys.argv) > 1 else "hemi-cli")
    shared: dict[str, list[str]] = {}
    print("The program contains these crates, from crates.io:\n")
    for crate in crates:
        name = f"{crate['name']} {crate['version']}"
        print(f"  {name:34} {crate['license'] or 'see its text'}")
        for text in texts(crate):
            shared.setdefault(text, []).append(name)
    for text, names in shared.items():
        print(f"\n{LINE}\n{', '.join(names)}\n{LINE}\n{text}")


if __name__ == "__main__":
    main()
