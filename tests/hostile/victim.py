"""A well-behaved client: 4 KiB writes one at a time, each timed."""

from __future__ import annotations

import json
import random
import struct
import sys
import time
from pathlib import Path

from wire import WRITE, Wire

SPAN = 64 << 20
BLOCK = 4096


def main(path: Path, seconds: float) -> None:
    """Prints the longest, the 50th and the 99th percentile in milliseconds."""
    wire = Wire(path)
    payload = bytes(BLOCK)
    places = random.Random(1)
    times: list[float] = []
    end = time.monotonic() + seconds
    begun = time.monotonic()
    while begun < end:
        offset = places.randrange(SPAN // BLOCK) * BLOCK
        wire.socket.sendall(wire.request(WRITE, offset, BLOCK) + payload)
        _, error, _ = struct.unpack(">IIQ", wire.receive(16))
        assert error == 0, f"a write was answered with error {error}"
        now = time.monotonic()
        times.append((now - begun) * 1000)
        begun = now
    times.sort()
    print(
        json.dumps(
            {
                "writes": len(times),
                "p50": times[len(times) // 2],
                "p99": times[len(times) * 99 // 100],
                "max": times[-1],
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
