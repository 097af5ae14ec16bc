"""A few orderly ends beside servers that stop. `make orderly-ends-test` runs more."""

from __future__ import annotations

from kill_test import run
from orderly_ends import DECK, Ends


def test_orderly_ends_beside_servers_that_stop_lose_nothing() -> None:
    totals = run(rounds=6, series=3, seed=1, deck=DECK, say=print, make=Ends)
    assert totals.rounds == 6
    assert totals.writes > 0
