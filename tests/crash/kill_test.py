#!/usr/bin/env python3
"""Kills `hemi serve` at random moments under a verifying load, many times (P1, P2, P6).

A series is one volume, on legs of one kind, over some rounds. Each round loads the volume over
several connections while legs freeze and get late at random (`hemi inject`, and nbdkit from outside
for a remote leg). It kills hemi at a random moment, in some rounds kills it again during recovery,
starts it, and reads the whole volume. Every sector must hold the last acknowledged write or one
that was not ordered before it.

Most series keep a ledger. Now and then it is deleted after a kill. The start must then be refused,
and one with `--accept-loss` may undo unflushed writes. In other rounds the machine seems to have
been restarted (another boot id), which may undo them without asking.

A series ends with convergence and a clean stop, after which every leg by itself must hold the same,
correct data.

`make kill-test N=300`. The seed, printed first, decides everything but the timing. On failure the
story is printed, the legs and logs are kept, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hemi_harness import Nbdkit, Sandbox, Volume
from hemi_harness.hemi import (
    LOCK_LIMIT,
    LOCKED,
    MIB,
    assert_identical,
    data_area,
    leg_bytes,
)
from hemi_harness.history import History
from hemi_harness.sandbox import PATIENCE, Arg, sweep
from hemi_harness.verifying_load import Mix, VerifyingLoad

SIZE = 32 * MIB
# Kinds of legs. One series of ten has a remote leg, whose fencing takes time.
KINDS = ("files", "loop-4k", "three-files", "nbd", "stripe")
DECK = (*KINDS, "files", "files", "files", "loop-4k", "three-files")
QUARANTINE = "1s"
Say = Callable[[str], object]


@dataclass
class Story:
    """A log of a series for the reader of a failure."""

    start: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.lines.append(f"{time.monotonic() - self.start:9.3f} s  {text}")


@dataclass
class Totals:
    rounds: int = 0
    deleted: int = 0
    boots: int = 0
    kills: int = 0
    # Orderly ends at which the ledger had to stay.
    kept: int = 0
    writes: int = 0
    flushes: int = 0
    units: int = 0
    uncertain: int = 0


class Legs:
    """The legs of one series, and faults injected from outside."""

    def __init__(self, box: Sandbox, kind: str) -> None:
        self.kind = kind
        count = 3 if kind == "three-files" else 2
        self.backing = [box.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(count)]
        self.specs: list[str | Path] = list(self.backing)
        self.remotes: list[Nbdkit] = []
        if kind == "loop-4k":
            self.specs[1] = box.loop(self.backing[1], "--sector-size", "4096")
        elif kind in ("nbd", "all-nbd"):
            for i in range(count) if kind == "all-nbd" else [1]:
                server = Nbdkit(box, self.backing[i])
                self.remotes.append(server)
                self.specs[i] = server.uri
        elif kind == "stripe":
            parts = [box.file(f"part{i}.img", leg_bytes(SIZE)) for i in range(2)]
            self.specs[1] = f"stripe:{parts[0]},{parts[1]}"

    @property
    def sector(self) -> int:
        return 4096 if self.kind == "loop-4k" else 512

    def images(self) -> list[Path]:
        """Returns the files that hold a leg's data area in one piece."""
        return self.backing[:1] if self.kind == "stripe" else self.backing


def possible(kind: str) -> bool:
    """Returns true if legs of a kind are possible here."""
    return kind != "loop-4k" or (os.geteuid() == 0 and Path("/dev/loop-control").exists())


class Ledger:
    """The ledger of one series, if it keeps one, and its fate."""

    def __init__(self, box: Sandbox, rng: random.Random) -> None:
        self._box, self._rng = box, rng
        memory = Path("/dev/shm")
        kept = rng.random() < 0.8 and _is_tmpfs(memory)
        self._directory = box.directory_in(memory) if kept else None

    @property
    def options(self) -> list[str]:
        return ["--ledger", str(self._directory or "none")]

    def files(self) -> list[Path]:
        """Returns the file of the ledger, if there is one."""
        return list(self._directory.iterdir()) if self._directory else []

    def fate(self) -> str:
        """Draws a fate."""
        if self._directory is None:
            return "none"
        boots = 0.1 if os.geteuid() == 0 else 0.0
        return self._rng.choices(["kept", "deleted", "boot"], [0.8, 0.1, boots])[0]

    def delete(self) -> None:
        for path in self.files():
            path.unlink()

    def another_boot(self) -> list[Arg]:
        """Returns a prefix that makes a command see another boot of the machine."""
        boot = self._box.path("boot_id")
        boot.write_text(f"{uuid.UUID(int=self._rng.getrandbits(128))}\n")
        mount = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", mount, str(boot)]


def _is_tmpfs(path: Path) -> bool:
    told = subprocess.run(["stat", "-f", "-c", "%T", path], capture_output=True, text=True)
    return told.stdout.strip() == "tmpfs"


class Faults(threading.Thread):
    """Injects random faults into random legs until hemi is killed."""

    def __init__(
        self,
        volume: Volume,
        legs: Legs,
        rng: random.Random,
        story: Story,
        dead: threading.Event,
    ) -> None:
        super().__init__(daemon=True)
        self._volume, self._legs, self._rng, self._story = volume, legs, rng, story
        self._dead = dead
        self.stopped = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopped.wait(self._rng.expovariate(5.0)):
                self._one()
        except BaseException as error:
            # Commands fail once hemi is killed, though it takes a moment to end. Before that, a
            # failure is an error of its own.
            if not self._dead.is_set() and self._volume.process.running:
                self.error = error

    def _one(self) -> None:
        rng = self._rng
        leg = rng.randrange(len(self._legs.specs))
        if self._legs.remotes and rng.random() < 0.3:
            (remote,) = self._legs.remotes
            if rng.random() < 0.5:
                self._story.tell("the remote leg's server pauses")
                remote.pause()
            else:
                self._story.tell("the remote leg's server goes on")
                remote.resume()
            return
        what = rng.choice(
            [
                ("--freeze", f"{rng.choice([30, 200, 1000, 60000])}ms"),
                ("--freeze", f"{rng.choice([30, 200, 1000, 60000])}ms"),
                ("--delay", f"{rng.choice([1, 5, 20, 100])}ms"),
                ("--clear",),
            ]
        )
        self._story.tell(f"leg {leg}: {' '.join(what).lstrip('-')}")
        self._volume.inject(leg, *what)


class Series:
    """One volume, killed and checked round after round."""

    def __init__(self, box: Sandbox, kind: str, rng: random.Random, totals: Totals) -> None:
        self.story = Story()
        self._rng, self._totals = rng, totals
        self._legs = Legs(box, kind)
        self._ledger = Ledger(box, rng)
        options = [*self._options(box), *self._ledger.options]
        self._volume = Volume(box, self._legs.specs, options=options, inject=True)
        self._volume.create(SIZE)
        unit = max(self._legs.sector, rng.choice([512, 4096, 4096]))
        self.story.tell(f"{kind} legs, checked by {unit} bytes; hemi serve {' '.join(options)}")
        self._history = History(SIZE // unit, unit)
        self._load = VerifyingLoad(self._volume.uri, self._history)
        if self._legs.remotes:
            self._serve_remotes(box)
        self._volume.start()

    def _options(self, box: Sandbox) -> list[str]:
        rng = self._rng
        settings = {
            "engine.exposure.bytes": rng.choice(["1MiB", "8MiB", "64MiB"]),
            "engine.exposure.mode": rng.choice(["throttle", "fall-behind"]),
            "engine.clean_after": rng.choice(["100ms", "1s", "5s"]),
            "engine.dirty_regions_max": rng.choice(["64", "16384"]),
            "engine.wait.floor": rng.choice(["1ms", "20ms"]),
            "buffer_budget": rng.choice(["16MiB", "256MiB"]),
        }
        return [a for key, value in settings.items() for a in ("--set", f"{key}={value}")]

    def _serve_remotes(self, box: Sandbox) -> None:
        """Serves from a file, the only place for a remote leg's quarantine."""
        config = box.path("hemi.toml")
        remote = [server.uri for server in self._legs.remotes]
        legs = [
            f'{{ path = "{spec}", quarantine = "{QUARANTINE}" }}' if spec in remote else f'"{spec}"'
            for spec in self._legs.specs
        ]
        config.write_text(
            f'control = "{self._volume.control}"\n'
            f"legs = [{', '.join(legs)}]\n"
            f'[[exports]]\nnbd = "unix:{self._volume.socket}"\n'
        )
        self._volume.serve_with(config)

    def round(self) -> None:
        before = self._load.writes, self._load.flushes, self._history.checked
        self._end_and_start()
        self._load.verify()
        self._totals.rounds += 1
        self._totals.writes += self._load.writes - before[0]
        self._totals.flushes += self._load.flushes - before[1]
        self._totals.units += self._history.checked - before[2]
        self.story.tell(
            f"verified: {self._load.writes - before[0]} writes acknowledged in the round"
        )

    def _end_and_start(self) -> None:
        """Loads the volume, kills it meanwhile, and starts it again."""
        rng, volume, story = self._rng, self._volume, self.story
        mix = Mix.drawn(rng, 65536 // self._history.unit_bytes)
        after = rng.choice([0.05, 0.3, 1.0, 2.0]) * rng.random() + 0.01
        story.tell(f"load: {mix}, to be killed after {after:.3f} s")
        dead = threading.Event()
        faults = Faults(volume, self._legs, random.Random(rng.random()), story, dead)

        def kill() -> None:
            dead.set()
            volume.signal(signal.SIGKILL)
            story.tell("kill -9")

        timer = threading.Timer(after, kill)
        timer.daemon = True
        self._load.connect(mix)
        timer.start()
        faults.start()
        try:
            self._load.run(mix, rng, lambda: not dead.is_set() and volume.process.running)
        finally:
            timer.cancel()
            faults.stopped.set()
            faults.join(PATIENCE)
        if faults.error:
            raise faults.error
        assert dead.is_set(), f"hemi ended by itself:\n{volume.process.output()[-4000:]}"
        volume.kill()
        self._totals.kills += 1
        self._totals.uncertain += self._history.uncertain()
        accept_loss = self._take_ledger()
        if accept_loss:
            volume.options.append("--accept-loss")
        self._restart()
        if accept_loss:
            volume.options.remove("--accept-loss")

    def _take_ledger(self) -> bool:
        """Draws the ledger's fate. Returns true if the loss has to be accepted."""
        match self._ledger.fate():
            case "deleted":
                self._ledger.delete()
                self._totals.deleted += 1
                self.story.tell("the ledger is deleted")
                self._reach_remotes()
                self._start_refused()
                self._history.lose_ledger()
                return True
            case "boot":
                self._volume.prefix = self._ledger.another_boot()
                self._totals.boots += 1
                self.story.tell("another boot of the machine")
                self._history.lose_ledger()
        return False

    def _start_refused(self) -> None:
        """Starts hemi, which must be refused because of the ledger."""
        volume = self._volume
        deadline = time.monotonic() + LOCK_LIMIT
        while True:
            process = volume.sandbox.start(*volume.serve_argv(), name="hemi")
            code, printed = process.wait(PATIENCE), process.output()
            if LOCKED not in printed or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert code == 3 and "--accept-loss" in printed, f"a start ended with {code}:\n{printed}"

    def _reach_remotes(self) -> None:
        for remote in self._legs.remotes:
            remote.ensure()
            remote.resume()
            remote.forget_client()

    def _restart(self) -> None:
        """Starts hemi again. In one round of three it is killed once more during recovery."""
        rng, volume, story = self._rng, self._volume, self.story
        self._reach_remotes()
        if rng.random() < 0.33:
            delay = rng.random() * rng.choice([0.03, 0.3])
            process = volume.sandbox.start(*volume.serve_argv(), name="hemi")
            time.sleep(delay)
            code = process.returncode
            refused = LOCKED in process.output()
            assert code is None or refused, f"a start ended with {code}:\n{process.output()}"
            process.kill()
            story.tell(f"kill -9 {delay * 1000:.0f} ms after the start")
            self._totals.kills += 1
            for remote in self._legs.remotes:
                remote.forget_client()
        volume.start()
        story.tell("serves again")

    def finish(self) -> None:
        """Checks that each leg alone holds everything after convergence and a clean stop."""
        volume = self._volume
        volume.wait_converged()
        volume.stop()
        self.story.tell("converged and stopped")
        assert_identical(self._legs.images(), SIZE)
        for image in self._legs.images():
            self._history.check(0, data_area(image, SIZE))
        self._totals.units += self._history.units * len(self._legs.images())


def run(
    rounds: int,
    series: int,
    seed: int,
    deck: tuple[str, ...],
    say: Say,
    make: type[Series] = Series,
) -> Totals:
    """Runs `rounds` rounds, `series` of them on each volume.

    On a failure it passes the story to `say`, keeps the legs, and raises."""
    sweep()
    rng = random.Random(seed)
    totals, begun = Totals(), time.monotonic()
    cards: list[str] = []
    while totals.rounds < rounds:
        if not cards:
            cards = [kind for kind in deck if possible(kind)]
            if len(cards) < len(deck):
                say("no loop devices here: legs with 4 KiB sectors are left out")
            rng.shuffle(cards)
        kind = cards.pop()
        with Sandbox() as box:
            one = None
            try:
                one = make(box, kind, rng, totals)
                for _ in range(min(series, rounds - totals.rounds)):
                    one.round()
                one.finish()
            except BaseException as error:
                if not isinstance(error, KeyboardInterrupt):
                    tell_failure(box, one, seed, kind, totals, error, say)
                raise
        minutes = (time.monotonic() - begun) / 60
        say(
            f"{totals.rounds:5} of {rounds} rounds ({kind}): {totals.kills} kills, "
            f"{totals.kept} ledgers kept by stops, "
            f"{totals.writes:,} writes acknowledged, {totals.units:,} units checked, "
            f"{totals.rounds / minutes:.1f} rounds/min"
        )
    return totals


def tell_failure(
    box: Sandbox,
    one: Series | None,
    seed: int,
    kind: str,
    totals: Totals,
    error: BaseException,
    say: Say,
) -> None:
    kept = Path(tempfile.mkdtemp(prefix="hemi-kill-"))
    for path in box.dir.iterdir():
        if path.is_file():
            # Sparse, as the legs are.
            shutil.copy2(path, kept / path.name)
    say(f"\nFAILED in round {totals.rounds + 1} (seed {seed}, {kind} legs). What happened:")
    for line in one.story.lines if one else []:
        say(f"  {line}")
    say("".join(traceback.format_exception(error)))
    (kept / "story").write_text("\n".join(one.story.lines if one else []) + f"\n{error}\n")
    say(f"Legs, logs and this story are kept in {kept}.")


def main(
    what: str, kinds: tuple[str, ...], deck: tuple[str, ...], make: type[Series] = Series
) -> None:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--rounds", type=int, default=300, help="ends under load (default 300)")
    parser.add_argument("--series", type=int, default=10, help="rounds a volume (default 10)")
    parser.add_argument("--seed", type=int, help="decides all but the timing (default: random)")
    parser.add_argument("--kind", choices=kinds, help="legs of this kind only")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    deck = (arguments.kind,) if arguments.kind else deck

    def say(text: str) -> None:
        print(text, flush=True)

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    say(f"seed {seed}")
    begun = time.monotonic()
    try:
        totals = run(arguments.rounds, arguments.series, seed, deck, say, make)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except Exception:
        raise SystemExit(1) from None
    minutes = (time.monotonic() - begun) / 60
    say(
        f"nothing lost: {totals.rounds} rounds, {totals.kills} kills, {totals.writes:,} writes and "
        f"{totals.flushes:,} flushes acknowledged, {totals.deleted} ledgers deleted, "
        f"{totals.boots} other boots, {totals.kept} ledgers kept by stops, "
        f"{totals.uncertain:,} units were in doubt at an end, "
        f"{totals.units:,} units checked, {totals.rounds / minutes:.1f} rounds/min"
    )


if __name__ == "__main__":
    main(__doc__.splitlines()[0], KINDS, DECK)
