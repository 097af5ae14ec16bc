"""Writes into the pages about block devices what their commands print.

transcripts.py --kernel PATH [--fresh]

The commands run in the user-mode kernel (guest/test_transcripts.py). Output that is as shown, but
for ids, dates, sizes, times and counts, stays as it is, and so do ellipses. With `--fresh` it is
written anew, too, unless it has an ellipsis. A command that shows no output gets none. Then the
commands run once more, and the exit status is that of their test.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hemi_harness.pages import ELLIPSIS, matches
from run import TREE, boot

TESTS = ["test_transcripts.py"]


def rewritten(page: str, entries: list[dict[str, Any]], fresh: bool) -> str:
    """Returns a page with what its commands printed below them."""
    lines = page.splitlines()
    # From the end on: what is above keeps its lines.
    for entry in sorted(entries, key=lambda entry: -place(lines, entry)):
        shown, printed = entry["shown"], entry["printed"].strip("\n").splitlines()
        known = matches(tuple(shown), entry["printed"])
        if not shown or (known and (not fresh or ELLIPSIS in shown)):
            continue
        first = place(lines, entry) + entry["command"].count("\n") + 1
        lines[first : first + len(shown)] = printed
    return "\n".join(lines) + "\n"


def place(lines: list[str], entry: dict[str, Any]) -> int:
    """Returns the index of the line that a command begins at: its block may show it twice."""
    first = entry["command"].splitlines()[0]
    below = range(entry["line"], len(lines))
    found = [at for at in below if lines[at][:2] in ("$ ", "# ") and lines[at][2:].strip() == first]
    return found[int(entry["repeats"])]


def numbered(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts, for each command, those like it that its block shows before it."""
    seen: dict[tuple[Any, ...], int] = {}
    for entry in entries:
        key = (entry["page"], entry["line"], entry["command"])
        entry["repeats"] = seen.get(key, 0)
        seen[key] = entry["repeats"] + 1
    return entries


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", type=Path, required=True)
    parser.add_argument("--fresh", action="store_true", help="write ids, sizes and times anew, too")
    options = parser.parse_args()
    hemi = Path(os.environ.get("HEMI", TREE / "target/release/hemi")).resolve()
    directory = TREE / "target/kernel"
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as results:
        boot(options.kernel.resolve(), hemi, Path(results), 1, TESTS)
        files = sorted(Path(results).glob("transcript-*.json"))
        entries = numbered([entry for file in files for entry in json.loads(file.read_text())])
    for name in sorted({entry["page"] for entry in entries}):
        path = TREE / "docs" / name
        before = path.read_text()
        after = rewritten(before, [e for e in entries if e["page"] == name], options.fresh)
        path.write_text(after)
        print(f"{path.relative_to(TREE)}: {'written anew' if after != before else 'as it was'}")
    with tempfile.TemporaryDirectory(dir=directory) as results:
        return boot(options.kernel.resolve(), hemi, Path(results), 1, TESTS)


if __name__ == "__main__":
    sys.exit(main())
