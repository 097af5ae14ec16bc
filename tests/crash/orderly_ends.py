#!/usr/bin/env python3
"""Stops `hemi serve` while its legs' servers stop too, under a verifying load (P1, P7).

As the kill test, whose pieces these are, on legs that are all remote. Each round loads the volume
and sends TERM at a random moment, in some rounds twice. The legs' servers are killed or frozen
before that, meanwhile or afterwards, one of them or all. hemi exits with 0 and leaves no ledger, or
with 3 and tells which ledger has to stay. The servers come back, the next start opens, and every
sector must hold the last acknowledged write or one that was not ordered before it.

`make orderly-ends-test N=100`. The seed, printed first, decides everything but the timing.
"""

from __future__ import annotations

import signal
import threading
import time

from hemi_harness import Nbdkit
from hemi_harness.hemi import check_message
from hemi_harness.sandbox import PATIENCE, Sandbox
from hemi_harness.verifying_load import Mix
from kill_test import Series, main

DECK = ("all-nbd",)


class Ends(Series):
    """One volume on remote legs, stopped and checked round after round."""

    def _options(self, box: Sandbox) -> list[str]:
        drain = self._rng.choice(["0s", "200ms", "2s"])
        return [*super()._options(box), "--drain-on-stop", drain]

    def _end_and_start(self) -> None:
        rng, volume, story = self._rng, self._volume, self.story
        mix = Mix.drawn(rng, 65536 // self._history.unit_bytes)
        after = rng.choice([0.05, 0.3, 1.0, 2.0]) * rng.random() + 0.01
        when = rng.choice(["before", "during", "after"])
        servers = self._legs.remotes
        if rng.random() < 0.3:
            servers = [rng.choice(servers)]
        kills = rng.random() < 0.7
        gap = rng.random() * rng.choice([0.0, 0.05, 1.0])
        story.tell(
            f"load: {mix}, to be stopped after {after:.3f} s; {len(servers)} servers "
            f"{'die' if kills else 'freeze'} {when} the stop, {gap:.3f} s apart"
        )
        ended = threading.Event()
        twice = rng.random() < 0.3

        def stop_servers() -> None:
            for server in servers:
                _end(server, kills)
            story.tell("the servers have stopped")

        def end() -> None:
            if when == "before":
                stop_servers()
                time.sleep(gap)
            ended.set()
            volume.signal(signal.SIGTERM)
            story.tell("TERM")
            if when == "during":
                time.sleep(gap)
                stop_servers()
            if twice and volume.process.running:
                volume.signal(signal.SIGTERM)

        timer = threading.Timer(after, end)
        timer.daemon = True
        self._load.connect(mix)
        timer.start()
        try:
            self._load.run(mix, rng, lambda: not ended.is_set() and volume.process.running)
        finally:
            timer.cancel()
            timer.join(PATIENCE)
        code = volume.process.wait()
        said = volume.process.output()
        self._totals.uncertain += self._history.uncertain()
        if when == "after":
            stop_servers()
        story.tell(f"hemi has ended with {code}; ledgers: {self._ledger.files()}")
        kept = self._ledger.files()
        assert code == (3 if kept else 0), f"hemi ended with {code}, and left {kept}:\n{said}"
        if kept:
            self._totals.kept += 1
            check_message(said, ["only the ledger", *kept, "hemi settle"])
        for server in self._legs.remotes:
            server.cont() if server.process.running else server.start()
            server.forget_client()
        volume.start()
        story.tell("serves again")


def _end(server: Nbdkit, kills: bool) -> None:
    if kills:
        server.kill()
    else:
        server.stop()


if __name__ == "__main__":
    main(__doc__.splitlines()[0], DECK, DECK, Ends)
