"""A short kill test on legs of every kind. `make kill-test` runs it for longer."""

from __future__ import annotations

from kill_test import KINDS, run


def test_kills_under_a_verifying_load_lose_nothing() -> None:
    totals = run(rounds=2 * len(KINDS), series=2, seed=1, deck=KINDS, say=print)
    assert totals.rounds == 2 * len(KINDS)
    assert totals.writes > 0
