"""A run of a plan on a target, from the first check to the saved result."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType

from hemi_lab import __version__, ready
from hemi_lab.audit import audit
from hemi_lab.bench import Bench, Show
from hemi_lab.cards import Cards
from hemi_lab.drivers.base import Driver
from hemi_lab.drivers.real import with_load
from hemi_lab.drivers.simulated import SimulatedDriver
from hemi_lab.errors import LabError
from hemi_lab.host import Watch, host
from hemi_lab.methods import METHODS
from hemi_lab.plans.model import Plan
from hemi_lab.results.model import CeilingFound, Engine, Identity, Outcome, Result, now
from hemi_lab.results.store import Writer
from hemi_lab.targets.base import Target
from hemi_lab.targets.simulated import SimulatedTarget
from hemi_lab.tool import Interrupted


@dataclass(frozen=True)
class Order:
    """The order for a run."""

    plan: Plan
    plan_text: str
    target: Target
    out: Path
    seed: int = 1
    time_scale: float = 1.0
    repeat: int = 1


@dataclass(frozen=True)
class Ended:
    """A run that has ended, with the error that ended it early, if any."""

    folder: Path
    result: Result
    error: LabError | None


def run(order: Order, show: Show, say: Callable[[str], None] = lambda text: None) -> Ended:
    """Runs a plan.

    A failure or Ctrl-C during the run ends it with a partial result, and the error is returned. A
    failure before the first step is raised."""
    description = order.target.describe()
    ready.check(order.plan, order.target, order.out, order.time_scale)
    # A target that sets something up tears it down again, even on a termination signal meanwhile.
    with _terminable():
        driver = with_load(order.target.open(order.seed))
        try:
            description = replace(description, bytes=driver.capacity)
            engine = Engine(name=driver.name, version=driver.version)
            result = _header(order, asdict(description), engine)
            writer = Writer(_folder(order, result), result)
            return _carry_out(order, driver, writer, show, say)
        finally:
            driver.close()


def _carry_out(
    order: Order, driver: Driver, writer: Writer, show: Show, say: Callable[[str], None]
) -> Ended:
    result = writer.result
    watch = Watch()
    error: LabError | None = None
    cards = driver.cards() if isinstance(driver, SimulatedDriver) else None
    with _terminable():
        try:
            _facts_of_driver(driver, result)
            for warning in getattr(driver, "warnings", []):
                say(f"warning: {warning}")
            bench = Bench(driver, writer, order.seed, order.time_scale, show)
            for test in order.plan.tests:
                outcome = Outcome(name=test.name, kind=test.kind, title=test.title)
                result.tests.append(outcome)
                steady = test.purge and bench.purge(test.name, test.start)
                if test.fill and not steady:
                    bench.fill(test.name, test.fill.size, test.fill.times, test.fill.most)
                METHODS[test.kind].run(test, bench, outcome)
                outcome.whole = True
            result.status = "whole"
        except KeyboardInterrupt:
            error = Interrupted("interrupted", "What was measured until then is kept.")
        except LabError as failure:
            error = failure
        if error is not None:
            result.status, result.why_partial = "partial", error.what
        # A second Ctrl-C must not lose the result.
        _heed(signal.SIG_IGN)
        result.finished = now()
        drift = stole = None
        if not result.simulated:
            drift, stole = watch.drift(), watch.stolen()
        result.audit = audit(result, writer.table("steps"), drift, stole)
        try:
            writer.save()
        except LabError as failure:
            # The tables stay as last saved. The header says that they are incomplete.
            result.status, result.why_partial = "partial", failure.what
            writer.save_header()
            raise
        if cards is not None:
            # The figures are safe already, so the user may interrupt the wait.
            if error is None and not cards.ready:
                say("the figures are safe; waiting for the model card, once for this build of hemi")
            _heed(_stop)
            _add_card(cards, result, wait=error is None)
            _heed(signal.SIG_IGN)
            writer.save()
    return Ended(writer.folder, result, error)


def _add_card(cards: Cards, result: Result, wait: bool) -> None:
    """Adds the model card unless the wait for it is interrupted. Without it the result is still
    whole."""
    try:
        if wait or cards.ready:
            result.model_card = cards.text()
            return
        why = "the run was cut short"
    except KeyboardInterrupt:
        why = "waiting for it was interrupted"
    except LabError as error:
        why = error.what
    finally:
        cards.stop()
    result.notes.append(f"there is no model card: {why}; hemi sim presets makes one")


def _facts_of_driver(driver: Driver, result: Result) -> None:
    """Adds the driver's notes and its ceiling to the header."""
    result.notes += getattr(driver, "notes", [])
    ceiling = driver.ceiling(32)
    if ceiling is not None:
        result.ceiling = CeilingFound(
            iops=ceiling.iops, cpu_seconds_per_request=ceiling.cpu_seconds_per_request
        )


def _header(order: Order, target: dict[str, object], engine: Engine) -> Result:
    # A simulated target is identified by its spec, whatever it is called.
    simulated = isinstance(order.target, SimulatedTarget)
    identity = Identity(
        plan=order.plan.model_dump_json(),
        target=order.target.spec
        if isinstance(order.target, SimulatedTarget)
        else order.target.path,
        seed=order.seed,
        time_scale=order.time_scale,
        lab_version=__version__,
        engine=engine,
    )
    notes = []
    if order.time_scale != 1:
        notes.append(
            f"every time of the plan was multiplied by {order.time_scale:g} (and is 1 s at least): "
            "this is not the methodology at its full length"
        )
    return Result(
        id=identity.hash(),
        repeat=order.repeat,
        plan=order.plan.name,
        plan_title=order.plan.title,
        plan_source=" ".join(order.plan.source.split()),
        plan_text=order.plan_text,
        seed=order.seed,
        time_scale=order.time_scale,
        target=target,
        engine=engine,
        lab_version=__version__,
        host=host(),
        started=now(),
        simulated=simulated,
        command_line=[Path(sys.argv[0]).name, *sys.argv[1:]],
        notes=notes,
    )


def _folder(order: Order, result: Result) -> Path:
    """Returns a new directory's path, so that no run overwrites another."""
    name = f"{short(result.plan)}-{short(str(result.target['text']))}-{result.id}"
    number = 1
    while True:
        folder = order.out / (name if number == 1 else f"{name}-{number}")
        if not folder.exists():
            return folder
        number += 1


_NAME = 40
"""Longest name of a plan or target in a directory's name, in characters. A longer first word is
kept whole."""


def short(text: str) -> str:
    """Returns the first words of a name, joined by hyphens, in characters safe in a path."""
    first, *more = re.findall(r"[A-Za-z0-9][A-Za-z0-9._]*", text) or ["unnamed"]
    name = str(first)
    for word in more:
        if len(name) + 1 + len(word) > _NAME:
            break
        name += f"-{word}"
    return name


_ENDS = (signal.SIGTERM, signal.SIGINT)


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _heed(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for kind in _ENDS:
        signal.signal(kind, handler)


@contextmanager
def _terminable() -> Iterator[None]:
    """Makes a termination signal end a run as Ctrl-C does."""

    before = [(kind, signal.getsignal(kind)) for kind in _ENDS]
    _heed(_stop)
    try:
        yield
    finally:
        for kind, handler in before:
            signal.signal(kind, handler)
