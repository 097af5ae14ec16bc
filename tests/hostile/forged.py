"""Forges metadata: legs and ledgers with wrong contents under valid checksums.

Every seed makes one image of a volume and forges some of it. `hemi inspect`, `serve`, `promote` and
`settle` are run on it. They may refuse or serve, but not panic, die from a signal, refuse without a
message, or take longer than the limit.

`forged.py` runs 10,000 images, prints a table, and fails if a bound is broken. `forged.py --seed N`
runs one image again. Ids are random in each run. An image that breaks a bound is kept in the
directory for temporary files, in its state before any command.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from forgeries import Forger, Image
from hemi_harness import HEMI, Arg, Client, NbdError, Nbdkit, Process, Sandbox, Volume
from hemi_harness.sandbox import answers, run_any, sweep
from metadata_format import BLOCK
from metadata_templates import WEIGHTS, Template, base, templates

# Longest time of any step, in seconds.
LIMIT = 10.0
PR_SET_PDEATHSIG = 1
CRASHES = ("panicked at", "rust_backtrace", "stack backtrace")


class Broken(Exception):
    """A bound that a run broke."""


@dataclass
class Run:
    """A command's run: its exit code, true if it served, and its slowest step's time."""

    command: str
    code: int
    served: bool
    seconds: float


@dataclass
class Outcome:
    """The runs on one image, and the bounds they broke."""

    seed: int
    template: str
    notes: list[str]
    runs: list[Run] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class Trial:
    """Runs the commands on one image."""

    def __init__(self, seed: int, templates: list[Template], box: Sandbox) -> None:
        self.rng = random.Random(f"forged {seed}")
        template = self.rng.choices(templates, WEIGHTS)[0]
        self.image = Image.of(template)
        forger = Forger(self.rng, self.image)
        forger.forge()
        self.box = box
        self.outcome = Outcome(seed, template.name, self.image.notes)

    def run(self) -> Outcome:
        """Runs everything. Each command begins with the image as it was forged."""
        for step in (self.inspect_and_serve, self.promote, self.settle):
            try:
                step()
            except Broken as error:
                self.outcome.broken.append(str(error))
        return self.outcome

    def inspect_and_serve(self) -> None:
        names, ledger = self.volume("a")
        form = ("--json",) if self.rng.random() < 0.5 else ()
        code, out = self.command("inspect", *form, *names, "--ledger", ledger)
        if form and code in (0, 1):
            try:
                json.loads(out)
            except ValueError as error:
                raise Broken(f"inspect --json printed what is no JSON ({error}):\n{out}") from error
        self.serve(names, ledger)

    def promote(self) -> None:
        directory = self.box.path("p")
        directory.mkdir()
        leg = self.rng.randrange(len(self.image.legs))
        path = directory / f"leg{leg}.img"
        self.image.write_leg(leg, path)
        ledger = self.image.write_ledger(directory)
        rest: list[Arg] = ["--no-direct", "--ledger", ledger]
        if self.rng.random() < 0.25:
            self.command("promote", path, *rest)
        code, _ = self.command("promote", path, "--accept-loss", *rest)
        if code == 0 and self.rng.random() < 0.25:
            self.serve([path], ledger)

    def settle(self) -> None:
        if self.image.ledger is None or self.rng.random() < 0.6:
            return
        names, ledger = self.volume("s")
        self.command("settle", self.config(names), "--ledger", ledger)

    def config(self, names: list[Arg], socket: Path | None = None) -> Path:
        """Writes a configuration of these legs, without quarantine since no server has pending
        writes."""
        path = self.box.path("hemi.toml")
        # A JSON string is a TOML string.
        legs = [
            f"{{ path = {json.dumps(str(name))}, "
            + ("direct = false }" if isinstance(name, Path) else 'quarantine = "0s" }')
            for name in names
        ]
        lines = [f"legs = [{', '.join(legs)}]"]
        if socket:
            lines.append(f"exports = [{{ nbd = {json.dumps(f'unix:{socket}')} }}]")
        path.write_text("\n".join([*lines, ""]))
        return path

    def volume(self, name: str) -> tuple[list[Arg], Path]:
        """Writes the image. Returns the legs' names and the ledger's directory."""
        paths, ledger = self.image.write(self.box.path(name))
        names: list[Arg] = [*paths]
        if self.image.template.remote:
            names[-1] = Nbdkit(self.box, paths[-1], filters=False).uri
        return names, ledger

    def command(self, command: str, *argv: Arg) -> tuple[int, str]:
        """Runs a command that ends by itself. Returns its exit code and standard output."""
        begun = time.monotonic()
        try:
            code, out, err = run_any(HEMI, command, *argv, timeout=LIMIT)
        except AssertionError as error:
            raise Broken(f"no end in time: {error}") from error
        self.check(command, code, out, err, time.monotonic() - begun)
        return code, out

    def check(
        self, command: str, code: int, out: str, err: str, seconds: float, served: bool = False
    ) -> None:
        """Checks a finished run against the bounds."""
        printed = f"hemi {command} exited {code}:\n{out[-3000:]}{err[-3000:]}"
        self.outcome.runs.append(Run(command, code, served, seconds))
        self.outcome.said.append(printed)
        if code < 0:
            raise Broken(f"a signal: {printed}")
        low = (out + err).lower()
        # 2 would mean that this program passes options that do not exist.
        if code not in (0, 1, 3) or any(crash in low for crash in CRASHES):
            raise Broken(f"a crash: {printed}")
        if code != 0 and not err.strip():
            raise Broken(f"a refusal without a word: {printed}")
        if seconds > LIMIT:
            raise Broken(f"took {seconds:.1f} s: {printed}")

    def serve(self, names: list[Arg], ledger: Path) -> None:
        """Serves, reads the status, reads and perhaps writes a block, and stops."""
        volume = Volume(self.box, [str(name) for name in names])
        volume.socket, volume.control = self.box.path("n.sock"), self.box.path("c.sock")
        volume.serve_with(self.config(names, volume.socket))
        volume.options += ["--control", volume.control]
        volume.options += ["--drain-on-stop", "100ms", "--buffer-budget", "16MiB"]
        volume.options += ["--ledger", "none" if self.rng.random() < 0.2 else ledger]
        if self.rng.random() < 0.3:
            volume.options.append("--accept-loss")
        policy = self.rng.choice(("first", "first", "paper", "all", "write-behind"))
        volume.options += ["--policy", policy]
        writes, shown = self.rng.random() < 0.5, self.rng.random() < 0.1
        volume.launch()
        process = volume.process
        steps = Steps()
        try:
            with steps.step():
                served = self.wait(volume)
            if served:
                with steps.step():
                    self.use(volume, writes)
            if served and shown and process.running:
                code, _ = self.command("status", "--control", volume.control)
                if code != 0 and process.running:
                    raise Broken(f"hemi status exited {code} while hemi served")
            with steps.step():
                code = self.stop(process)
        finally:
            process.kill()
        self.check("serve", code, "", process.output(), steps.slowest, served)

    @staticmethod
    def wait(volume: Volume) -> bool:
        """Waits until hemi serves or has ended. Returns true if it serves."""
        end = time.monotonic() + LIMIT
        while volume.process.running:
            if answers(volume.socket) and answers(volume.control):
                return True
            if time.monotonic() > end:
                raise Broken(f"neither serves nor ends:\n{volume.process.output()}")
            time.sleep(0.003)
        return False

    @staticmethod
    def use(volume: Volume, writes: bool) -> None:
        """Reads a served volume's status and uses it. It may end by its own decision."""
        try:
            status = volume.status()
            assert status["legs"], f"a status without legs: {status}"
            with Client(volume.uri, timeout=LIMIT) as client:
                last = client.size() - BLOCK
                for offset in (0, last):
                    with contextlib.suppress(NbdError):
                        client.read(offset, BLOCK)
                    if writes:
                        with contextlib.suppress(NbdError):
                            client.write(offset, b"f" * BLOCK)
                if writes:
                    with contextlib.suppress(NbdError):
                        client.flush()
        except TimeoutError as error:
            raise Broken(f"{error}\n{volume.process.output()}") from error
        except (AssertionError, NbdError) as error:
            # A hemi that has just ended is judged by its exit.
            time.sleep(0.1)
            if volume.process.running:
                raise Broken(f"{error}\n{volume.process.output()}") from error

    @staticmethod
    def stop(process: Process) -> int:
        try:
            return process.terminate(LIMIT)
        except AssertionError as error:
            raise Broken(f"no end after TERM: {error}") from error


class Steps:
    """Times the steps of a served volume."""

    def __init__(self) -> None:
        self.slowest = 0.0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.slowest = max(self.slowest, time.monotonic() - begun)


def trial(seed: int, templates: list[Template]) -> Outcome:
    """Runs all commands on the image of a seed. Keeps it if a bound is broken."""
    with Sandbox(base()) as box:
        test = Trial(seed, templates, box)
        outcome = test.run()
        if outcome.broken:
            kept = Path(tempfile.mkdtemp(prefix=f"forged-{seed}-"))
            test.image.write(kept / "image")
            outcome.broken.append(f"the image is kept in {kept}")
    return outcome


_TEMPLATES: list[Template] = []


def _begin(templates: list[Template]) -> None:
    """Prepares a worker. It dies with its parent, and silently from TERM."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _TEMPLATES[:] = templates


def _trial(seed: int) -> Outcome:
    return trial(seed, _TEMPLATES)


def trials(seeds: Sequence[int], jobs: int, seconds: float | None = None) -> Iterator[Outcome]:
    """Yields the outcomes of some seeds' images, up to the time limit if there is one."""
    end = None if seconds is None else time.monotonic() + seconds
    with multiprocessing.get_context("fork").Pool(jobs, _begin, (templates(),)) as pool:
        for outcome in pool.imap_unordered(_trial, seeds, chunksize=4):
            yield outcome
            if end is not None and time.monotonic() > end:
                break
    # A worker that was ended in the middle leaves its files.
    sweep(base())


def account(outcome: Outcome) -> str:
    """Returns the forgeries and the broken bounds."""
    lines = [f"forged.py --seed {outcome.seed} (template {outcome.template})", *outcome.notes]
    return "\n".join([*lines, *outcome.broken])


def table(outcomes: list[Outcome]) -> str:
    """Returns the figures of all runs."""
    runs = [run for outcome in outcomes for run in outcome.runs]
    lines = [
        "| command | runs | done | refused | slowest, s |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    commands = ("inspect", "serve", "promote", "settle", "status")
    for command, some in [(c, [r for r in runs if r.command == c]) for c in commands]:
        done = sum(run.code == 0 for run in some)
        slowest = max((run.seconds for run in some), default=0)
        lines.append(f"| {command} | {len(some)} | {done} | {len(some) - done} | {slowest:.2f} |")
    served = sum(run.served for run in runs)
    broken = sum(bool(outcome.broken) for outcome in outcomes)
    lines.append("")
    lines.append(
        f"{len(outcomes)} images, {len(runs)} runs, {sum(run.code != 0 for run in runs)} refused, "
        f"{served} served, {broken} images broke a bound"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, help="end after this time")
    parser.add_argument("--seed", type=int, help="run this image alone, and show all it says")
    asked = parser.parse_args()
    sweep(base())
    if asked.seed is not None:
        outcome = trial(asked.seed, templates())
        print(account(outcome), *outcome.said, sep="\n\n")
        raise SystemExit(bool(outcome.broken))
    outcomes = []
    seeds = range(asked.first_seed, asked.first_seed + asked.images)
    for outcome in trials(seeds, asked.jobs, asked.seconds):
        outcomes.append(replace(outcome, said=[]))
        if outcome.broken:
            print(account(outcome), end="\n\n", flush=True)
        if len(outcomes) % 1000 == 0:
            print(f"{len(outcomes)} images", file=sys.stderr, flush=True)
    print(table(outcomes))
    broken = sorted(outcome.seed for outcome in outcomes if outcome.broken)
    if broken:
        raise SystemExit(f"bounds are broken by the images of the seeds {broken}")


if __name__ == "__main__":
    main()
