"""`make bench`: runs parts of the benchmark and writes docs/benchmarks.md.

Each part's raw figures replace that part's in bench/results.json, from which the whole page is
generated, so that parts can be run one at a time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from hemi_harness.sandbox import sweep

from . import freeze
from .report import MODULES, UNNAMED, page, part_report
from .settings import LENGTHS, Settings, machine

PARTS: dict[str, Any] = {part.NAME: part for part in MODULES}
ROOT = Path(__file__).parents[1]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench BENCH_ARGS=", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--quick", action="store_true", help="5 s runs, 2 pairs: for a look")
    parser.add_argument("--seconds", type=int, help="length of a run (default 30)")
    parser.add_argument("--pairs", type=int, help="interleaved rounds (default 5)")
    parser.add_argument("--slow-seconds", type=int, help="length of slow-leg runs (default 60)")
    parser.add_argument("--freeze-seconds", type=int, help="length of freeze runs (default 20)")
    parser.add_argument("--freeze-rounds", type=int, help="rounds of freezes (default 3)")
    parser.add_argument(
        "--kinds",
        type=lambda text: tuple(text.split(",")),
        help=f"freeze and flush: only these rows, of {', '.join(k.key for k in freeze.KINDS)}",
    )
    parser.add_argument("--volume-mib", type=int, help="volume size in MiB (default 1024)")
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(os.environ.get("HEMI_TEST_DIR", tempfile.gettempdir())),
        help="where the legs are made (needs about six times the volume's size)",
    )
    parser.add_argument(
        "--host", default=UNNAMED, help="what the page calls this machine, such as A"
    )
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--report-only", action="store_true", help="write the page, run nothing")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    unknown = [name for name in asked.parts if name not in PARTS]
    if unknown:
        raise SystemExit(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    kinds = {kind.key for kind in freeze.KINDS}
    if unknown := [key for key in asked.kinds or () if key not in kinds]:
        raise SystemExit(f"no such row: {', '.join(unknown)}; there are {', '.join(kinds)}")
    settings = Settings(asked.dir)
    if asked.quick:
        settings = settings.quick()
    names = (*LENGTHS, "kinds")
    given = {name: getattr(asked, name) for name in names if getattr(asked, name) is not None}
    settings = replace(settings, **given)

    results: dict[str, Any] = {}
    if asked.results.exists():
        results = json.loads(asked.results.read_text())
    start = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - start:6.0f} s] {text}", flush=True)

    if not asked.report_only:
        sweep(asked.dir)
        for name in asked.parts or PARTS:
            before = results.get(name) if settings.kinds else None
            if before and any(before["settings"][key] != settings.record()[key] for key in LENGTHS):
                raise SystemExit(
                    f"the rows of {name} were measured with other lengths: {before['settings']}; "
                    "give the same, or measure all rows"
                )
            say(f"== {PARTS[name].TITLE}")
            data = PARTS[name].measure(settings, say)
            if before:
                # The other rows stay as they were.
                data["runs"] = {**before["runs"], **data["runs"]}
            data["machine"] = machine(settings.directory)
            data["host"] = asked.host
            data["date"] = datetime.date.today().isoformat()
            results[name] = data
            asked.results.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    asked.out.parent.mkdir(exist_ok=True)
    asked.out.write_text(page(results))
    for name in asked.parts or results:
        if name in results:
            print(f"\n{part_report(name, results[name])}")
    print(f"\nwritten: {asked.out}")


if __name__ == "__main__":
    main()
