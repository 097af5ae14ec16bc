#!/usr/bin/env python3
"""Checks that a power cut at any moment loses no write acknowledged by a flush (P3).

Inside user-mode Linux a volume is written to while legs freeze. dm-log-writes records the requests
to the drives of both legs, in one order (`power_cut_guest.sh`, `power_cut_load.py`). Then, outside,
the drives' contents are rebuilt as after every flush, and at random moments between with any part
of the volatile cache lost, sector by sector. hemi opens each, and every block must hold the write
covered by the last flush before the cut, or a later one.

In each run one leg has a volatile cache and the other's writes are durable at once. That tells the
flushes in the log apart, whose origin dm-log-writes does not record. Two runs have few metadata
writes and FUA, whose flushes would hide one that clients asked for and hemi forgot. Two have many.
One of these has its other leg on dm-flakey, which fails its writes for one second in three.

`make power-cut-test`. On failure the two legs are kept, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hemi_harness import HEMI, Sandbox, Volume
from hemi_harness.hemi import MIB
from hemi_harness.history import SECTOR, Lost, data, seen_in
from hemi_harness.sandbox import run
from hemi_harness.user_mode import KERNEL, MISSING, kernel_arguments
from write_log import MARK, Drive, Entry, read_log

HERE = Path(__file__).parent
SIZE = 8 * MIB
LEG_BYTES = 12 * MIB
LOG_BYTES = 2048 * MIB
BLOCK = 4096
NEEDS = ("dmsetup", "busybox", "losetup")
Say = Callable[[str], object]


@dataclass(frozen=True)
class Case:
    """The leg with a volatile cache, and flags for many metadata writes and FUA and for failing
    writes of the other leg."""

    cached: int
    busy: bool
    flaky: bool = False

    def __str__(self) -> str:
        busy = "many" if self.busy else "few"
        flaky = f", leg {1 - self.cached} fails writes at times" if self.flaky else ""
        return f"leg {self.cached} has a volatile cache, {busy} metadata writes{flaky}"


CASES = (Case(0, False), Case(1, False), Case(1, True), Case(0, True, flaky=True))


def record(box: Sandbox, case: Case, seed: int, flushes: int) -> tuple[Path, list[dict[str, Any]]]:
    """Runs the guest. Returns the log, and the blocks that are durable from each mark on."""
    out = box.path("guest")
    out.mkdir()
    log = box.file("log.img", LOG_BYTES)
    printed = run(
        KERNEL,
        *kernel_arguments("1G"),
        f"ubdb={log}",
        "brd.rd_nr=1",
        f"brd.rd_size={LEG_BYTES // 1024 * 2}",
        f"init={HERE / 'power_cut_guest.sh'}",
        f"OUT={out}",
        f"HEMI={HEMI}",
        f"PYTHON={sys.executable}",
        f"PYTHONPATH={HERE.parent / 'blackbox'}",
        f"LOAD={HERE / 'power_cut_load.py'}",
        f"LEG_KIB={LEG_BYTES // 1024}",
        f"SIZE={SIZE}",
        f"CACHED={case.cached}",
        f"FLAKY={int(case.flaky)}",
        f"REGION={'64KiB' if case.busy else '1MiB'}",
        f"CLEAN_AFTER={'300ms' if case.busy else '1h'}",
        f"FUA={0.05 if case.busy else 0}",
        f"SEED={seed}",
        f"FLUSHES={flushes}",
        timeout=1200,
    )
    guest_log = out / "guest.log"
    if not (out / "done").exists():
        tail = guest_log.read_text(errors="replace")[-6000:] if guest_log.exists() else printed
        raise AssertionError(f"the guest's load did not end well ({case}):\n{tail}")
    history = [json.loads(line) for line in (out / "history").read_text().splitlines()]
    return log, history


class Replay:
    """Replays a log, and checks the requested cuts."""

    def __init__(self, box: Sandbox, case: Case, history: list[dict[str, Any]]) -> None:
        sectors = LEG_BYTES // SECTOR
        self.drives = [Drive(i * sectors, sectors, i == case.cached) for i in range(2)]
        self._box = box
        self._history = history
        self._legs: list[Path] = []
        self.checked = 0

    def apply(self, entry: Entry, hemis_flush: bool) -> None:
        if entry.sectors:
            drives = [drive for drive in self.drives if drive.holds(entry)]
            assert len(drives) == 1, f"a write to sector {entry.sector} of the log, on no leg"
            drives[0].write(entry)
        if entry.flush and hemis_flush:
            for drive in self.drives:
                drive.flush()

    def check(self, mark: int, rng: random.Random | None, what: str) -> None:
        """Opens the volume on the drives' content after a cut here."""
        for leg in self._legs:
            leg.unlink()
        # New files, since the last I/O of the killed hemi may still land in the old ones.
        self._legs = [self._box.path(f"leg{i}.img") for i in range(2)]
        for leg, drive in zip(self._legs, self.drives, strict=True):
            leg.write_bytes(drive.after_cut(rng))
        kept = Path(tempfile.gettempdir()) / "hemi-power-cut"
        try:
            self._open(mark)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            kept.mkdir(exist_ok=True)
            for i, drive in enumerate(self.drives):
                shutil.copy2(self._legs[i], kept / f"after-{i}.img")
                (kept / f"durable-{i}.img").write_bytes(drive.durable)
            raise AssertionError(f"{what}: {error}\nthe legs are kept in {kept}") from error
        self.checked += 1

    def _open(self, mark: int) -> None:
        volume = Volume(self._box, list(self._legs))
        volume.start()
        durable = {int(block): number for block, number in self._history[mark]["durable"].items()}
        last = self._history[min(mark + 1, len(self._history) - 1)]["sent"]
        with volume.client() as client:
            for offset in range(0, SIZE, MIB):
                check_blocks(offset, client.read(offset, MIB), durable, last)
        volume.kill()
        volume.process.log.unlink()


def check_blocks(offset: int, content: bytes, durable: dict[int, int], last: int) -> None:
    for at in range(0, len(content), BLOCK):
        block, oldest = (offset + at) // BLOCK, durable.get((offset + at) // BLOCK, 0)
        if content[at : at + BLOCK] == data(block * 8, 8, oldest):
            continue
        for i in range(8):
            number = block * 8 + i
            sector = at + i * SECTOR
            seen = seen_in(number, content[sector : sector + SECTOR])
            if not oldest <= seen <= last:
                raise Lost(
                    f"sector {number} (block {block}) holds write {seen}; write {oldest} was "
                    f"covered by an acknowledged flush, and {last} was the last one sent"
                )


def tell_flushes_apart(entries: list[Entry]) -> set[int]:
    """Returns the test's own flushes: each the only one between its marks bN and mN.

    If hemi's flushes come between too, all count as hemi's."""
    own: set[int] = set()
    between: list[int] | None = None
    for i, entry in enumerate(entries):
        mark = entry.mark
        if mark is not None and mark.startswith("b"):
            between = []
        elif mark is not None and mark.startswith("m"):
            if between is not None and len(between) == 1:
                own.add(between[0])
            between = None
        elif entry.flush and between is not None:
            between.append(i)
    return own


def replay(box: Sandbox, case: Case, seed: int, flushes: int, cuts: int, say: Say) -> int:
    """Records a log and checks every prefix that ends at a flush or FUA, and `cuts` others."""
    begun = time.monotonic()
    log, history = record(box, case, seed, flushes)
    entries = list(read_log(log))
    own = tell_flushes_apart(entries)
    begin = next(i for i, entry in enumerate(entries) if entry.mark == "m0")
    rng = random.Random(seed)
    at_random: dict[int, int] = {}
    for _ in range(cuts):
        i = rng.randrange(begin + 1, len(entries))
        at_random[i] = at_random.get(i, 0) + 1
    ends = {i for i, e in enumerate(entries) if i > begin and e.flags & 3 and i not in own}
    say(
        f"{case}: {len(history)} flushes acknowledged, {history[-1]['sent']} writes, "
        f"{len(entries)} log entries, {len(ends)} flushes of hemi's "
        f"(recorded in {time.monotonic() - begun:.0f} s)"
    )
    state = Replay(box, case, history)
    mark = -1
    for i, entry in enumerate(entries):
        if entry.flags & MARK:
            name = entry.mark or ""
            mark = int(name[1:]) if name.startswith("m") else mark
        else:
            state.apply(entry, i not in own)
        if i in ends:
            state.check(mark, None, f"after log entry {i}, a flush")
        for n in range(at_random.get(i, 0)):
            state.check(mark, rng, f"after log entry {i}, cache lost in part ({n})")
        if state.checked and state.checked % 250 == 0 and (i in ends or i in at_random):
            say(f"  {state.checked} cuts, {i} of {len(entries)} entries")
    say(f"  {state.checked} cuts, every one opened, nothing flushed was lost")
    return state.checked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cuts", type=int, default=1000, help="random cuts, all runs together")
    parser.add_argument("--flushes", type=int, default=150, help="flushes a run (default 150)")
    parser.add_argument("--seed", type=int, help="of the load and the cuts (default: random)")
    arguments = parser.parse_args()
    missing = [tool for tool in NEEDS if not shutil.which(tool)]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)} (`make setup-bench`)")
    if not KERNEL.exists():
        raise SystemExit(f"not built: {MISSING}")
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    checked = 0
    for number, case in enumerate(CASES):
        with Sandbox() as box:
            cuts = -(-arguments.cuts // len(CASES))
            checked += replay(
                box,
                case,
                seed + number,
                arguments.flushes,
                cuts,
                lambda text: print(text, flush=True),
            )
    print(f"nothing lost: {checked} power cuts")


if __name__ == "__main__":
    main()
