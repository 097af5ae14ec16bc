"""A volume of the lab leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hemi_lab.targets.served import ServedVolume


@pytest.mark.parametrize(
    ("settings", "state"), [({}, "state=none"), ({"state": "/srv/kept"}, "state=/srv/kept")]
)
def test_the_history_goes_with_the_volume(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str | int | float | bool],
    state: str,
) -> None:
    hemi = tmp_path / "hemi"
    hemi.write_text("#!/bin/sh\n")
    hemi.chmod(0o755)
    monkeypatch.setenv("HEMI", str(hemi))
    volume = ServedVolume(1 << 26, [0.0, 0.0], "first", True, settings, [str(tmp_path)] * 2)
    try:
        said = volume.shown().split()
        assert [word for word in said if word.startswith("state=")] == [state]
    finally:
        volume.remove()
    assert list(tmp_path.iterdir()) == [hemi]
