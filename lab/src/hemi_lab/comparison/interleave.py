"""Runs a plan on several targets in turns: A B C, A B C, …"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hemi_lab.errors import LabError, UsageError
from hemi_lab.plans.model import Plan
from hemi_lab.results.model import Found
from hemi_lab.runner import Ended, Order, run
from hemi_lab.steps import Step
from hemi_lab.targets import safety
from hemi_lab.targets.base import Target
from hemi_lab.tool import Interrupted
from hemi_lab.units import counted

Show = Callable[[Step, Found | None], None]
Told = Callable[[int, str, Ended], None]
"""Called after each run with its round, its side's letter and its outcome."""


@dataclass(frozen=True)
class Turns:
    """The order for runs in turns."""

    plan: Plan
    plan_text: str
    targets: list[str]
    parse: Callable[[str], Target]
    rounds: int
    out: Path
    seed: int
    time_scale: float
    wipe: list[str]


def letters(count: int) -> list[str]:
    """Returns the letters A, B, C, …"""
    if not 2 <= count <= 26:
        raise UsageError(
            f"a comparison wants from 2 to 26 sides, and {counted(count, 'side')} "
            f"{'is' if count == 1 else 'are'} named",
            "Name the runs, or the targets with --plan, of another side.",
        )
    return [chr(ord("A") + number) for number in range(count)]


def check(turns: Turns) -> list[str]:
    """Returns the data that will be destroyed on all targets, before anything is."""
    if len(set(turns.targets)) < len(turns.targets):
        raise UsageError(
            "a target is named twice", "To see the noise of one target, name a second file of its."
        )
    destroyed = []
    for text in turns.targets:
        target = turns.parse(text)
        target.describe()
        destroyed += [f"{text}: {held}" for held in safety.check(target, turns.wipe)]
    return destroyed


def take_turns(turns: Turns, show: Show, told: Told) -> list[Path]:
    """Runs round after round, each side once in every round. Returns each side's directory.

    All sides of a round have the same seed, and each round another, so chance treats them alike. A
    run that fails ends the comparison and keeps the earlier runs."""
    folders = [turns.out / letter for letter in letters(len(turns.targets))]
    for folder in folders:
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", "Give another --out.")
    for number in range(1, turns.rounds + 1):
        for text, folder in zip(turns.targets, folders, strict=True):
            target = turns.parse(text)
            # Data of the previous round belong to this comparison, which may overwrite them.
            safety.check(target, [*turns.wipe, *(safety.paths(target) if number > 1 else [])])
            order = Order(
                turns.plan,
                turns.plan_text,
                target,
                folder,
                turns.seed + number - 1,
                turns.time_scale,
                number,
            )
            ended = run(order, show)
            told(number, folder.name, ended)
            if isinstance(ended.error, Interrupted):
                raise ended.error
            if ended.error is not None:
                raise LabError(
                    f"round {number}, {folder.name} ({text}): {ended.error.what}",
                    ended.error.way_out
                    or f"Whole rounds can be compared: hemi-lab compare {turns.out}/[A-Z]",
                ) from ended.error
    return folders
