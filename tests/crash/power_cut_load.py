"""The writer inside the power-cut test's guest, which records the writes a power cut must keep.

Blocks of 4 KiB are written at random, several at once but never two on the same block, so that a
block's writes have one order. After each acknowledged flush a mark goes into the drives' log. The
durable writes from there on go into the history: for each block the last one acknowledged before
the flush was sent (P3).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import time
from pathlib import Path
from typing import Any

from hemi_harness.client import Client
from hemi_harness.history import data

BLOCK = 4096
DEPTH = 12


class Writer:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.rng = random.Random(arguments.seed)
        self.client = Client(arguments.uri)
        self.handle = self.client.handle
        self.blocks = self.client.size() // BLOCK
        self.sent = 0
        self.acknowledged: dict[int, int] = {}
        self.durable: dict[int, int] = {}
        self.busy: set[int] = set()
        self.in_flight = 0
        self.log = os.open(arguments.log, os.O_RDONLY)

    def write(self) -> None:
        """Sends one write (of one block, sometimes zeros) that touches no busy block."""
        hot = self.blocks // 16 if self.rng.random() < 0.5 else self.blocks
        block = self.rng.randrange(hot)
        if block in self.busy:
            return
        self.sent += 1
        number, fua = self.sent, self.rng.random() < self.arguments.fua
        payload = bytearray(data(block * 8, 8, number))
        self.busy.add(block)
        self.in_flight += 1

        def done(error: Any) -> int:
            assert error.value == 0, f"write {number} failed: {os.strerror(error.value)}"
            self.in_flight -= 1
            self.busy.discard(block)
            self.acknowledged[block] = number
            if fua:
                self.durable[block] = max(self.durable.get(block, 0), number)
            return 1

        # FUA is flag 1 of NBD.
        self.handle.aio_pwrite(payload, block * BLOCK, completion=done, flags=1 if fua else 0)

    def fill(self) -> None:
        while self.in_flight < DEPTH:
            self.write()
        self.handle.poll(100)

    def flush(self, number: int) -> dict[str, Any]:
        """Sends one flush, with writes in flight, and its mark. Returns the history's entry."""
        covered = dict(self.acknowledged)
        answered: list[int] = []

        def done(error: Any) -> int:
            answered.append(error.value)
            return 1

        self.handle.aio_flush(completion=done)
        while not answered:
            self.fill()
        assert answered == [0], f"flush failed: {os.strerror(answered[0])}"
        for block, write in covered.items():
            self.durable[block] = max(self.durable.get(block, 0), write)
        durable = dict(self.durable)
        # Completed requests go into the log before the mark. The two marks show that this flush is
        # the test's, not hemi's.
        self.mark(f"b{number}")
        os.fsync(self.log)
        self.mark(f"m{number}")
        return {"mark": number, "sent": self.sent, "durable": durable}

    def mark(self, name: str) -> None:
        subprocess.run(["dmsetup", "message", "log", "0", "mark", name], check=True)

    def fault(self) -> None:
        """Slows or freezes a leg for a while, so that authority moves."""
        what = self.rng.choice([("--freeze", "400ms"), ("--freeze", "100ms"), ("--clear",)])
        command = [self.arguments.hemi, "inject", "--control", self.arguments.control]
        subprocess.run([*command, "--leg", str(self.rng.randrange(2)), *what], check=True)

    def run(self) -> None:
        with Path(self.arguments.out).open("w") as out:
            for number in range(self.arguments.flushes):
                if self.rng.random() < 0.15:
                    self.fault()
                until = self.sent + self.rng.randrange(40)
                while self.sent < until:
                    self.fill()
                if self.rng.random() < 0.05:
                    # Time to clean regions.
                    time.sleep(0.5)
                out.write(json.dumps(self.flush(number)) + "\n")
                out.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("uri", "control", "hemi", "log", "out"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--fua", type=float, required=True, help="share of writes")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--flushes", type=int, required=True)
    Writer(parser.parse_args()).run()


if __name__ == "__main__":
    main()
