#!/usr/bin/env python3
"""Checks which of the engine's files touch which of its rooms, and which files call which.

    scripts/engine_rooms.py [--write] [--figures] [--tree DIRECTORY]

A field of `Engine` is a room: its own fields are private to its module. A file with `impl Engine`
methods is a subject. Rooms in state/ know only each other, and not in a circle. The table of who
touches what is drawn in docs/design/engine-rooms.md. Without options the script compares the
sources with it, prints each edge that is new or gone, and exits 1 if there is one. `--write` draws
the table anew, `--figures` prints totals instead.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGINE = Path("crates/engine/src/engine")
TABLE = Path("docs/design/engine-rooms.md")
BEGIN, END = "<!-- engine_rooms.py: begin -->", "<!-- engine_rooms.py: end -->"

COMMENT = re.compile(r"//[^\n]*")
TESTS = re.compile(r"#\[cfg\(test\)\]\s*mod tests(?:;| \{.*\Z)", re.S)
FIELDS = re.compile(r"pub struct Engine<B: Buffers> \{(.*?)\n\}", re.S)
FIELD = re.compile(r"^    (\w+):", re.M)
IMPL = re.compile(r"^impl<B: Buffers> Engine<B> \{\n(.*?)^\}", re.M | re.S)
METHOD = re.compile(r"^    (?:pub(?:\([^)]*\))? )?(?:const )?fn (\w+)", re.M)
# `self.field` or `engine.field`, and the rest of the path up to a call.
USE = re.compile(r"\b(?:self|engine)\s*\.\s*(\w+)(\s*\()?")
ASSOCIATED = re.compile(r"\bSelf::(\w+)\(")
# What a file in state/ builds on: another module there, or something else of the engine.
BUILDS_ON = re.compile(r"\bcrate::engine::(?:state::)?(\w+)|\buse super::(\w+)")


@dataclass
class Subject:
    """A file with methods of `Engine`."""

    name: str
    text: str
    methods: set[str] = field(default_factory=set)
    rooms: dict[str, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)


@dataclass
class Rooms:
    """All subjects, and the fields of `Engine`."""

    fields: list[str]
    subjects: dict[str, Subject]
    # Modules of state/, and which others each builds on.
    state: dict[str, set[str]] = field(default_factory=dict)

    @property
    def edges(self) -> set[str]:
        """Returns every edge as a line."""
        touches = {f"{s.name} touches {room}" for s in self.subjects.values() for room in s.rooms}
        calls = {f"{s.name} calls {other}" for s in self.subjects.values() for other in s.calls}
        builds = {f"{room} builds on {other}" for room, on in self.state.items() for other in on}
        return touches | calls | builds


def name_of(path: Path, engine: Path) -> str:
    """Returns the name of a file's module below the engine, as `path/write`."""
    relative = path.relative_to(engine).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "mod" else relative.parts
    return "/".join(parts) or "engine"


def read(tree: Path) -> Rooms:
    """Reads the sources of a tree."""
    engine = tree / ENGINE
    texts = {}
    # The module itself: beside its folder, or in it as `mod.rs`.
    files = [*engine.rglob("*.rs"), *(p for p in [engine.with_suffix(".rs")] if p.exists())]
    for path in sorted(files):
        if path.stem in {"tests", "testing"}:
            continue
        name = "engine" if path == engine.with_suffix(".rs") else name_of(path, engine)
        texts[name] = TESTS.sub("", COMMENT.sub("", path.read_text()))
    fields = FIELDS.search(texts["engine"])
    if fields is None:
        sys.exit(f"{engine}: no struct Engine")
    rooms = Rooms(FIELD.findall(fields[1]), {})
    for name, text in texts.items():
        if body := "\n".join(IMPL.findall(text)):
            rooms.subjects[name] = Subject(name, body, set(METHOD.findall(body)))
    for name, text in texts.items():
        if name.startswith("state/"):
            nested = name.count("/") > 1
            room = name.split("/")[1]
            on = rooms.state.setdefault(room, set())
            for absolute, beside in BUILDS_ON.findall(re.sub(r"pub\(in [^)]*\)", "", text)):
                on |= {absolute or ("" if nested else beside)} - {"", room}
    owner = {method: s.name for s in rooms.subjects.values() for method in s.methods}
    for subject in rooms.subjects.values():
        for used, call in USE.findall(subject.text):
            if call and used in owner:
                count(subject.calls, owner[used], subject.name)
            elif not call and used in rooms.fields:
                count(subject.rooms, used)
        for used in ASSOCIATED.findall(subject.text):
            if used in owner:
                count(subject.calls, owner[used], subject.name)
    return rooms


def count(counts: dict[str, int], name: str, but: str = "") -> None:
    """Adds one to the count of a name, except of the one left out."""
    if name != but:
        counts[name] = counts.get(name, 0) + 1


def components(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Returns the strongly connected components of more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def figures(rooms: Rooms) -> str:
    """Returns the totals."""
    subjects = rooms.subjects.values()
    touched = sorted(len(s.rooms) for s in subjects)
    uses = sum(sum(s.rooms.values()) for s in subjects)
    by_room = {room: sum(room in s.rooms for s in subjects) for room in rooms.fields}
    only = [room for room, files in by_room.items() if files <= 1]
    circles = components({s.name: s.calls for s in subjects})
    return "\n".join(
        [
            f"fields of Engine: {len(rooms.fields)}",
            f"subjects: {len(rooms.subjects)}, methods: {sum(len(s.methods) for s in subjects)}",
            f"fields touched by a subject: median {touched[len(touched) // 2]}, "
            f"most {touched[-1]}, pairs {sum(touched)}, places {uses}",
            f"fields touched by one subject at most: {len(only)}",
            f"calls between subjects: {sum(len(s.calls) for s in subjects)} pairs",
            "circles of rooms in state/: "
            + (", ".join(str(len(circle)) for circle in components(rooms.state)) or "none"),
            "circles of subjects: " + (", ".join(str(len(circle)) for circle in circles) or "none"),
        ]
    )


def folder(name: str) -> str:
    """Returns the folder of a subject."""
    return name.split("/")[0] if "/" in name else "engine"


def drawing(rooms: Rooms) -> list[str]:
    """Returns the graph of folders as a Mermaid drawing."""
    calls: dict[tuple[str, str], int] = {}
    for subject in rooms.subjects.values():
        for other, times in subject.calls.items():
            pair = (folder(subject.name), folder(other))
            if pair[0] != pair[1]:
                calls[pair] = calls.get(pair, 0) + times
    lines = ["```mermaid", "graph LR"]
    lines += [f"    {a} -->|{n}| {b}" for (a, b), n in sorted(calls.items())]
    return [*lines, "```"]


def table(rooms: Rooms) -> str:
    """Returns the part of the document that is drawn from the sources."""
    lines = ["Calls between the folders' subjects, by the number of places:", ""]
    lines += drawing(rooms)
    lines += ["", "What the rooms in `state/` build on:", "", "```mermaid", "graph TD"]
    lines += [
        f"    {room} --> {other}"
        for room, on in sorted(rooms.state.items())
        for other in sorted(on)
    ]
    lines += ["```"]
    lines += ["", "| subject | touches | calls |", "| --- | --- | --- |"]
    for name, subject in sorted(rooms.subjects.items()):
        touches = ", ".join(f"`{room}`" for room in rooms.fields if room in subject.rooms)
        calls = ", ".join(f"`{other}`" for other in sorted(subject.calls))
        lines.append(f"| `{name}` | {touches} | {calls} |")
    return "\n".join(lines)


def edges_in(document: str) -> set[str]:
    """Returns the edges of a table drawn before."""
    edges = set()
    for row in re.findall(r"^\| `([^`]+)` \|([^|]*)\|([^|]*)\|$", document, re.M):
        name, touches, calls = row
        edges |= {f"{name} touches {room}" for room in re.findall(r"`([^`]+)`", touches)}
        edges |= {f"{name} calls {other}" for other in re.findall(r"`([^`]+)`", calls)}
    for room, other in re.findall(r"^    (\w+) --> (\w+)$", document, re.M):
        edges.add(f"{room} builds on {other}")
    return edges


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="draw the table anew")
    parser.add_argument("--figures", action="store_true", help="print totals")
    parser.add_argument("--tree", type=Path, default=ROOT, help="another work tree")
    arguments = parser.parse_args()
    rooms = read(arguments.tree)
    if arguments.figures:
        print(figures(rooms))
        return 0
    path = arguments.tree / TABLE
    document = path.read_text()
    before, rest = document.split(BEGIN)
    drawn, after = rest.split(END)
    wanted = f"\n{table(rooms)}\n"
    for circle in components(rooms.state):
        print(f"circle of rooms: {', '.join(circle)}")
    if strangers := sorted({o for on in rooms.state.values() for o in on} - set(rooms.state)):
        print(f"state/ builds on what is not in it: {', '.join(strangers)}")
    if strangers or components(rooms.state):
        return 1
    if arguments.write:
        path.write_text(f"{before}{BEGIN}{wanted}{END}{after}")
        return 0
    known = edges_in(drawn)
    for edge in sorted(rooms.edges - known):
        print(f"new: {edge}")
    for edge in sorted(known - rooms.edges):
        print(f"gone: {edge}")
    if drawn != wanted:
        print(f"{TABLE} is stale: scripts/engine_rooms.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
