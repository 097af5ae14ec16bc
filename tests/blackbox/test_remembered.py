"""Events, history and hidden stalls: a volume's data that hemi keeps over restarts."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from hemi_harness import Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB
from hemi_harness.sandbox import PATIENCE

SIZE = 64 * MIB
# Keeps a leg that a test freezes in, however slow the machine is.
STAYS_IN = ("--set", "engine.out_after=1day")
FREEZE_NS = 2_000_000_000


def get(volume: Volume, path: str) -> Any:
    code, body = volume.curl(path)
    assert code == 200, body
    return json.loads(body)


def events(volume: Volume, *kinds: str, after: int = 0) -> list[dict[str, Any]]:
    """Returns the events after an id, oldest first, of these kinds if any are named."""
    found = get(volume, f"/v1/events?after={after}&limit=1000")
    assert found["next"] == (found["events"][-1]["id"] if found["events"] else after)
    return [event for event in found["events"] if not kinds or event["kind"] in kinds]


def history(volume: Volume, span: int = 900, points: int = 900) -> dict[str, Any]:
    found: dict[str, Any] = get(volume, f"/v1/history?span={span}&points={points}")
    return found


def columns(value: Any) -> Iterator[list[Any]]:
    """Yields every list of values in an answer."""
    if isinstance(value, list) and not any(isinstance(entry, dict) for entry in value):
        yield value
        return
    for nested in value.values() if isinstance(value, dict) else value:
        if isinstance(nested, dict | list):
            yield from columns(nested)


def write_until(volume: Volume, condition: Any) -> None:
    """Writes without pause until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    with volume.client() as client:
        at = 0
        while not condition():
            assert time.monotonic() < deadline, "the condition does not come true"
            for _ in range(20):
                client.write(at * 4096, bytes([at % 256]) * 4096)
                at = (at + 1) % 1024
            time.sleep(0.005)


def freeze(volume: Volume) -> None:
    """Freezes leg 1 for two seconds while a client writes."""
    volume.inject(1, "--freeze", "2s")
    write_until(volume, lambda: bool(events(volume, "thaw")))


def test_a_freeze_is_an_event_history_and_a_hidden_stall_that_outlive_a_kill(
    sandbox: Sandbox,
) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=STAYS_IN)
    freeze(volume)
    [started] = events(volume, "started")
    assert started["values"]["legs"] == 2
    # The other leg may freeze for a moment on a busy machine.
    [frozen] = [event for event in events(volume, "freeze") if event["leg"] == 1]
    [thawed] = [event for event in events(volume, "thaw") if event["leg"] == 1]
    assert "a fault is injected; clients go on with" in frozen["text"]
    assert FREEZE_NS * 0.5 <= thawed["values"]["frozen_ns"] <= FREEZE_NS * 5
    assert thawed["values"]["requests"] > 0, "clients were served meanwhile"
    [request] = events(volume, "request")
    assert request["values"] == {
        "request": "freeze leg 1 for 2s",
        "done": True,
        "took_ns": request["values"]["took_ns"],
    }

    def is_counted() -> bool:
        hidden = volume.status()["hidden"]["total_ns"]
        return bool(hidden >= thawed["values"]["frozen_ns"] * 0.5)

    write_until(volume, is_counted)
    status = volume.status()
    hidden = status["hidden"]
    assert hidden["day_ns"] == hidden["week_ns"] == hidden["total_ns"]
    assert hidden["total_ns"] <= status["legs"][1]["frozen_ns"] * 1.1 + 100_000_000
    assert status["summary"]["state"] == status["health"]
    assert status["process"]["resident_bytes"] > MIB
    assert abs(status["at_ms"] / 1000 - time.time()) < 60

    seen = history(volume)
    length = len(seen["times_ms"])
    assert all(
        len(column) == length or column == seen["heat"]["bounds_ns"] or len(column) == 24
        for column in columns(seen)
    )
    frozen_permille = [value for value in seen["legs"][1]["frozen_permille"] if value]
    assert sum(frozen_permille) >= FREEZE_NS / 1_000_000 * 0.5

    def agrees() -> bool:
        total = int(volume.status()["hidden"]["total_ns"])
        in_steps = sum(value or 0 for value in history(volume)["hidden_ns"])
        # Values of the history have seven digits.
        return bool(abs(in_steps - total) <= total * 1e-6)

    # The stall is still being counted for a moment after the thaw.
    wait_until("the history's steps add up to the total", agrees)
    assert sum(value or 0 for value in seen["clients"]["writes"]) > 0
    counted = sum(sum(counts) for counts in seen["heat"]["counts"] if counts)
    assert counted > 0 and len(seen["heat"]["bounds_ns"]) == 24

    before = events(volume)
    # Steps are written every ten seconds.
    time.sleep(11)
    volume.kill()
    volume.start()
    wait_until("the start is told of", lambda: len(events(volume, "started")) == 2)
    after = events(volume)
    assert after[: len(before)] == before, "nothing is forgotten"
    ids = [event["id"] for event in after]
    assert ids == sorted(set(ids))
    again = events(volume, "started")[-1]
    assert again["values"]["unclean"] is True
    assert "had not been stopped" in again["text"]
    kept = history(volume)
    kept_permille = [value for value in kept["legs"][1]["frozen_permille"] if value]
    assert sum(kept_permille) >= sum(frozen_permille)
    assert volume.status()["hidden"]["total_ns"] >= hidden["total_ns"]

    volume.restart()
    wait_until("the start is told of", lambda: len(events(volume, "started")) == 3)
    [stopped] = events(volume, "stopped")
    assert stopped["text"].startswith("The volume was stopped. ")
    assert "is on all 2 legs" in stopped["text"] or "leg 1" in stopped["text"]
    assert events(volume, "started")[-1]["values"]["unclean"] is False

    before = events(volume)
    assert "went on for" in volume.command("upgrade")
    wait_until("it is told of", lambda: bool(events(volume, "upgraded")))
    assert events(volume)[: len(before)] == before, "an upgrade forgets nothing"
    kept = history(volume)
    assert sum(value or 0 for value in kept["legs"][1]["frozen_permille"]) >= sum(frozen_permille)
    assert volume.status()["hidden"]["total_ns"] >= hidden["total_ns"]


def test_a_freeze_shorter_than_a_snapshot_is_seen(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=STAYS_IN)
    # So that the wait limit is known and short.
    write_until(volume, lambda: volume.status()["legs"][1]["writes"]["total"]["count"] > 500)
    limit = volume.status()["legs"][1]["write_wait_limit_ns"]

    def froze() -> bool:
        if events(volume, "thaw"):
            return True
        # The writes that follow may come too late on a busy machine. Then try once more.
        volume.inject(1, "--freeze", f"{limit // 1_000_000 + 60}ms")
        return False

    write_until(volume, froze)
    assert events(volume, "freeze")


def test_a_torn_or_foreign_file_is_said_and_not_fatal(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    wait_until("the start is told of", lambda: bool(events(volume, "started")))
    volume.stop()
    [path] = (sandbox.dir / "state").glob("*.history")
    path.write_bytes(path.read_bytes()[:-7])
    volume.start()
    wait_until("the start is told of", lambda: len(events(volume, "started")) == 2)
    assert not events(volume, "stopped"), "the last record was torn"
    assert "a record is cut off" in volume.process.output()
    volume.stop()
    path.write_bytes(b"something else entirely, of another program")
    volume.start()
    wait_until("the start is told of", lambda: len(events(volume, "started")) == 1)
    assert "no history of hemi" in volume.process.output()
    volume.stop()
    assert path.with_suffix(".history.aside").read_bytes().startswith(b"something else")


def test_without_a_state_directory_it_is_in_memory_only(sandbox: Sandbox) -> None:
    blocked = sandbox.path("blocked")
    blocked.write_text("")
    options = ("--set", f'state="{blocked}"')
    volume = Volume.on_files(sandbox, SIZE, options=options)
    wait_until("the start is told of", lambda: bool(events(volume, "started")))
    [first] = events(volume, "started")
    notes = [
        line for line in volume.process.output().splitlines() if "history is not kept over" in line
    ]
    assert len(notes) == 1 and str(blocked) in notes[0]
    volume.restart()
    wait_until("the start is told of", lambda: bool(events(volume, "started")))
    [second] = events(volume, "started")
    assert second["id"] > first["id"], "ids rise all the same"


def test_what_was_asked_and_what_came_of_it(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    code, _ = volume.curl("/v1/legs/remove", "--json", '{"leg": 5}')
    assert code == 404
    assert volume.curl("/v1/scrub", "--json", "{}")[0] == 200
    [request] = events(volume, "request")
    assert request["text"] == "Asked to remove leg 5: refused, because slot 5 holds no leg."
    begun, ended = events(volume, "scrub")
    assert begun["text"] == "A scrub began: it compares 64 MiB on all legs, and rewrites nothing."
    assert ended["text"].endswith("no difference was found.")


def test_a_query_out_of_range_is_refused(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    for path, words in (
        ("/v1/history?span=0", "`span` is 0"),
        ("/v1/history?points=100000", "`points` is 100000"),
        ("/v1/events?limit=5000", "`limit` is 5000"),
        ("/v1/events?after=x", "not understood"),
        ("/v1/regions?cells=4096", "`cells` is 4096"),
        ("/v1/history?spam=1", "unknown field"),
    ):
        code, body = volume.curl(path)
        assert code == 400, (path, body)
        assert words in json.loads(body)["what"], body


def test_regions_show_what_was_written(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    seen = get(volume, "/v1/regions?cells=16")
    assert seen["cells"] == 16 and seen["regions"] * seen["region_bytes"] == SIZE
    for column in ("authority", "armed", "touched", "owed"):
        assert len(seen[column]) == 16
    with volume.client() as client:
        client.write(SIZE // 2, b"x" * 4096)
    time.sleep(1.1)
    seen = get(volume, "/v1/regions?cells=16")
    assert seen["touched"][8] > 0 and seen["authority"][8] in (0, 1)
    assert sum(seen["touched"]) == seen["touched"][8], "nothing else was written"
    few = get(volume, "/v1/regions?cells=2000")
    assert few["cells"] == min(2000, few["regions"])


@contextmanager
def viewer(volume: Volume, path: str) -> Iterator[socket.socket]:
    """Opens a stream and yields the connection before its first bytes."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(PATIENCE)
        stream.connect(str(volume.control))
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: hemi\r\n\r\n".encode())
        yield stream


def read_until(stream: socket.socket, words: bytes, seen: bytes = b"") -> bytes:
    while words not in seen:
        more = stream.recv(1 << 16)
        assert more, f"the stream ended: {seen[-300:]!r}"
        seen += more
    return seen


def test_live_views_are_bounded_and_slow_ones_are_skipped(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    with viewer(volume, "/v1/live") as quick, viewer(volume, "/v1/live") as slow:
        head = read_until(quick, b"event: status\ndata: {")
        assert b"200 OK" in head and b"text/event-stream" in head
        volume.curl("/v1/legs/remove", "--json", '{"leg": 5}')
        seen = read_until(quick, b"event: event\ndata: {")
        seen = read_until(quick, b"slot 5 holds no leg", seen)
        started = time.monotonic()
        read_until(quick, b"event: status")
        assert time.monotonic() - started < 10
        read_until(slow, b"200 OK")
        with streams(volume, 14) as others:
            assert len(others) == 14
            code, body = volume.curl("/v1/live")
            assert code == 409, body
            assert "16 viewers" in body
    wait_until("places are given back", lambda: _gets_in(volume))


@contextmanager
def streams(volume: Volume, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        opened = [
            stack.enter_context(viewer(volume, "/v1/events/stream?after=0")) for _ in range(count)
        ]
        for stream in opened:
            read_until(stream, b'"kind":"started"')
        yield opened


def _gets_in(volume: Volume) -> bool:
    with viewer(volume, "/v1/live") as stream:
        return b" 200 " in stream.recv(1 << 12)


def test_the_journal_gets_priorities(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, start=False)
    # Imitates the journal: a file that the service knows to be standard error.
    log = sandbox.path("journal")
    volume.prefix = [
        "sh",
        "-c",
        f'exec 2>{log}; JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec "$@"',
        "sh",
    ]
    volume.start()
    volume.curl("/v1/legs/remove", "--json", '{"leg": 5}')
    volume.stop()
    lines = log.read_text().splitlines()
    assert lines and all(line.startswith(("<6>", "<4>", "<3>")) for line in lines), lines
    [refused] = [line for line in lines if "slot 5 holds no leg" in line]
    assert refused.startswith("<4>")
    assert "request" in refused and "remove leg 5" in refused
