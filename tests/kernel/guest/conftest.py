"""Gives each test a volume of its own, as a device of each driver in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernel_guest import HEMI, Volume, messages, run


@pytest.fixture(params=["ublk", "nbd"])
def volume(request: pytest.FixtureRequest) -> Iterator[Volume]:
    messages()
    volume = Volume(request.param)
    volume.create()
    yield volume
    if volume.server is not None and volume.server.poll() is None:
        volume.kill()
    run(HEMI, "detach-device", "--volume", "vol", "--force", expect=None)
