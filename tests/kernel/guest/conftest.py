"""The volume that each test has for itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kernel_guest import HEMI, Volume, messages, run


@pytest.fixture
def volume() -> Iterator[Volume]:
    messages()
    volume = Volume()
    volume.create()
    yield volume
    if volume.server is not None and volume.server.poll() is None:
        volume.kill()
    run(HEMI, "detach-device", "--volume", "vol", expect=None)
