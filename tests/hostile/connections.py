"""Opens many connections to one listener, half of them silent, and holds them.

`connections.py nbd|control|metrics ADDRESS COUNT` prints `ready` when it has opened them, and holds
those that were not closed until its standard input ends. An address is the path of a unix socket,
or a port of this host.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time

# Longest time for opening a single connection, in seconds.
PATIENCE = 10.0
# First bytes of the half that speaks, which are no whole request.
WORDS = {
    "nbd": b"\0\0\0\3",
    "control": b"GET /v1/status HTTP/1.1\r\nHost: hemi\r\n",
    "metrics": b"GET /metrics HTTP/1.1\r\nHost: hemi\r\n\r\n",
}


def opened(address: str) -> socket.socket | None:
    """Returns a connection, or `None` if it is refused."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        family = socket.AF_INET if address.isdigit() else socket.AF_UNIX
        connection = socket.socket(family)
        try:
            connection.connect(("127.0.0.1", int(address)) if address.isdigit() else address)
        except BlockingIOError:
            # The backlog is full.
            connection.close()
            time.sleep(0.001)
            continue
        except ConnectionError:
            connection.close()
            return None
        connection.setblocking(False)
        return connection
    return None


def main(kind: str, address: str, count: int) -> None:
    """Opens and holds the connections."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.nice(10)
    held = []
    for number in range(count):
        connection = opened(address)
        if connection is None:
            continue
        if number % 2:
            try:
                connection.send(WORDS[kind])
            except OSError:
                # It has been closed already.
                connection.close()
                continue
        held.append(connection)
    print(f"ready {len(held)}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
