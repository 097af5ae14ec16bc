"""Thousands of connections to each listener: existing and new clients are still answered."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from hemi_harness import Sandbox, Volume
from hemi_harness.sandbox import free_port

HERE = Path(__file__).parent
MIB = 1 << 20
SIZE = 64 * MIB
# Longest wait for an answer in seconds.
LIMIT = 1.0
# A server's memory besides its buffers by docs/limits.md: 40 MiB, and the connections of an export
# and of two other listeners.
MEMORY = (256 + 40 + 25 + 2 * 128 // 16) * MIB


def longest(times: int, ask: Callable[[], object]) -> float:
    """Returns the longest of `times` answers in seconds."""
    most = 0.0
    for _ in range(times):
        begun = time.monotonic()
        ask()
        most = max(most, time.monotonic() - begun)
        time.sleep(0.05)
    return most


@pytest.mark.parametrize(
    "count", [pytest.param(10_000, marks=pytest.mark.long), 1_000], ids=["10000", "1000"]
)
@pytest.mark.parametrize("kind", ["nbd", "control", "metrics"])
def test_many_connections_keep_nobody_waiting(sandbox: Sandbox, kind: str, count: int) -> None:
    port = free_port()
    volume = Volume.on_files(sandbox, SIZE, options=["--http", f"127.0.0.1:{port}"])
    addresses = {"nbd": volume.socket, "control": volume.control, "metrics": port}
    block = bytes(range(256)) * 16
    script = HERE / "connections.py"
    argv: list[str | Path] = [sys.executable, script, kind, str(addresses[kind]), str(count)]
    with volume.client() as client:
        client.write(0, block)
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as crowd:
            assert crowd.stdin is not None and crowd.stdout is not None
            try:
                ready = crowd.stdout.readline()
                assert ready.startswith("ready"), ready

                def metrics() -> bytes:
                    url = f"http://127.0.0.1:{port}/metrics"
                    with urllib.request.urlopen(url, timeout=10) as answer:
                        return bytes(answer.read())

                waits = {
                    "a client": longest(20, lambda: client.write(4096, block)),
                    "status": longest(10, volume.status),
                    "metrics": longest(10, metrics),
                }
            finally:
                crowd.stdin.close()
        assert client.read(4096, len(block)) == block
    assert max(waits.values()) < LIMIT, waits
    assert volume.process.peak_memory() < MEMORY
    assert volume.status()["health"] == "healthy"
