"""Runs a short form of the suite of forged metadata."""

from __future__ import annotations

import forged

IMAGES = 30
# Images that once broke a bound: a lost list of sequence 0 was written over and over, and hemi
# never stopped.
KNOWN = (4642,)


def test_forged_metadata_is_served_or_refused_in_words() -> None:
    outcomes = list(forged.trials([*range(1, 1 + IMAGES), *KNOWN], jobs=2))
    print(forged.table(outcomes))
    broken = [forged.account(outcome) for outcome in outcomes if outcome.broken]
    assert not broken, "\n\n".join(broken)
    runs = [run for outcome in outcomes for run in outcome.runs]
    assert any(run.served for run in runs), "some images make sense"
    assert any(run.code != 0 for run in runs), "some do not"
