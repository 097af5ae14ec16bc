"""Writes the output of commands into the pages about block devices.

transcripts.py --kernel PATH [--fresh]

The commands run in the user-mode kernel (guest/test_transcripts.py). Output that matches the page,
except for ids, dates, sizes, times and counts, stays unchanged, and so do ellipses. With `--fresh`
it is rewritten too, unless it has an ellipsis. A command that shows no output gets none. Then the
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
    """Returns a page with the output of its commands below them."""
    lines = page.splitlines()
    # From the end on, so that the lines above stay.
    for entry in sorted(entries, key=lambda entry: -place(lines, entry)):
        shown, printed = entry["shown"], entry["printed"].strip("\n").splitlines()
        known = matches(tuple(shown), entry["printed"])
        if not shown or (known and (not fresh or ELLIPSIS in shown)):
            continue
        first = place(lines, entry) + entry["command"].count("\n") + 1
        lines[first : first + len(shown)] = printed
    return "\n".join(lines) + "\n"


def place(lines: list[str], entry: dict[str, Any]) -> int:
    """Returns the index of a command's first line, since its block may show it several times."""
    first = entry["command"].splitlines()[0]
    below = range(entry["line"], len(lines))
    found = [at for at in below if lines[at][:2] in ("$ ", "# ") and lines[at][2:].strip() == first]
    return found[int(entry["repeats"])]


def numbered(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts the equal commands that the same block shows before each command."""
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
