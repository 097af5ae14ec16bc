#!/usr/bin/env python3
"""Checks how doc comments and docstrings begin: check_prose.py [--count] [PATH…].

A doc comment begins with a verb or a plain name: "Returns the slot", "The bound of a queue". It
does not begin with What, Whether, How and the like, nor with a preposition. The text of a
field counts too. Some phrases are not the field's words and are reported with their better form.
Prints each place as FILE:LINE: TEXT and exits with 1 if there is any. With --count it prints only
the totals.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Words that begin no doc comment: those of noun clauses, and prepositions.
CLAUSES = ("What", "Whether", "How", "Who", "Whom", "Whose", "Where", "When", "Which", "Why")
PREPOSITIONS = ("Of", "By", "As", "To", "From", "On", "At", "With", "Without", "Since", "Until")
PHRASES = {
    "under way": "in flight, in progress",
    "for ever": "forever, without end",
    "so many": "`count`, that many, the number of",
    "be it that": "even if",
}
BEGINS = re.compile(rf"(?:{'|'.join(CLAUSES + PREPOSITIONS)})\b")
FOUND = re.compile("|".join(rf"\b{phrase}\b" for phrase in PHRASES), re.IGNORECASE)


def rust_comments(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yields each comment line: its number, its text, and whether it begins a doc comment."""
    inside = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        stripped = line.strip()
        doc = re.match(r"//[/!](?!/) ?(.*)", stripped)
        if doc:
            yield number, doc[1], not inside and bool(doc[1])
            inside = bool(doc[1]) or inside
            continue
        inside = False
        plain = re.match(r"//(?!/) ?(.*)", stripped)
        if plain:
            yield number, plain[1], False


def python_comments(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yields each docstring line and comment line as `rust_comments` does."""
    text = path.read_text()
    # A text by itself documents what stands before it: a module, a class, a function, a field.
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(said))):
                for offset, line in enumerate(said.splitlines()):
                    yield node.lineno + offset, line.strip(), offset == 0
    for number, line in enumerate(text.splitlines(), 1):
        plain = re.match(r"\s*#:? ?(.*)", line)
        if plain:
            yield number, plain[1], False


def markdown_lines(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yields each line outside of code blocks, which quote what programs print."""
    fenced = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line, False


def tracked(paths: list[str]) -> list[Path]:
    """Lists the tracked Rust, Python and Markdown files below `paths`."""
    names = subprocess.run(
        ["git", "ls-files", "--", *(paths or ["."])],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    kept = [ROOT / name for name in names if name.endswith((".rs", ".py", ".md"))]
    return [path for path in kept if path.name not in ("CHANGELOG.md", Path(__file__).name)]


def complaints(path: Path) -> tuple[int, list[tuple[int, str]]]:
    """Returns the number of doc comments in a file and the lines with something to mend."""
    if path.suffix == ".md":
        lines = list(markdown_lines(path))
    else:
        lines = list((rust_comments if path.suffix == ".rs" else python_comments)(path))
    found = []
    for number, line, begins in lines:
        if (begins and BEGINS.match(line)) or FOUND.search(line):
            found.append((number, line))
    return sum(begins for _, _, begins in lines), found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", action="store_true", help="print the shares alone")
    parser.add_argument("paths", nargs="*")
    arguments = parser.parse_args()
    begun = 0
    found = 0
    for path in tracked(arguments.paths):
        count, lines = complaints(path)
        begun += count
        found += len(lines)
        if not arguments.count:
            for number, line in lines:
                print(f"{path.relative_to(ROOT)}:{number}: {line}")
    if arguments.count:
        print(f"{begun} doc comments, {found} places to mend")
        return 0
    if found:
        words = "; ".join(f"{phrase}: {better}" for phrase, better in PHRASES.items())
        print(f"\n{found} places: begin with a verb or a name ({words})", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
