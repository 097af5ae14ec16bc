"""Boots the user-mode kernel and runs the guest's tests in it: run.py --kernel PATH [-- TEST…].

The guest works on the host's files and on RAM disks of its own. It is up in less than a second.
Exits as pytest does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hemi_harness.user_mode import kernel_arguments

HERE = Path(__file__).parent
TREE = HERE.parent.parent
#: Kibibytes of each RAM disk.
DISK_KIB = 65536
#: Seconds for all tests of one round.
PATIENCE = 900


def boot(kernel: Path, hemi: Path, results: Path, rounds: int, tests: list[str]) -> int:
    """Runs the guest to its end. Returns its tests' exit status, or 1 if it did not get that
    far."""
    arguments = [
        str(kernel),
        *kernel_arguments("1G"),
        f"brd.rd_size={DISK_KIB}",
        "brd.rd_nr=4",
        f"init={HERE / 'init.sh'}",
        f"PYTHON={sys.executable}",
        f"HEMI={hemi}",
        f"TREE={TREE}",
        f"RESULTS={results}",
        f"ROUNDS={rounds}",
        f'TESTS="{" ".join(tests)}"',
    ]
    console = results / "console"
    with console.open("wb") as out:
        try:
            subprocess.run(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=PATIENCE + 10 * rounds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            print(f"the guest did not end in {PATIENCE + 10 * rounds} s", file=sys.stderr)
    output = results / "output"
    if output.exists():
        sys.stdout.write(output.read_text(errors="replace"))
    status = results / "status"
    if not status.exists():
        sys.stdout.write(console.read_text(errors="replace")[-4000:])
        return 1
    return int(status.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=10, help="kills in a row")
    parser.add_argument(
        "tests", nargs="*", help="what pytest takes, behind --, for example -- -k kill"
    )
    options = parser.parse_args()
    hemi = Path(os.environ.get("HEMI", TREE / "target/release/hemi")).resolve()
    place = TREE / "target/kernel"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place) as results:
        return boot(options.kernel.resolve(), hemi, Path(results), options.rounds, options.tests)


if __name__ == "__main__":
    sys.exit(main())
