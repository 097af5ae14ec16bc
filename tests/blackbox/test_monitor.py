"""`hemi monitor` mails events that need attention, runs a program, and reports nothing twice."""

from __future__ import annotations

import json
from pathlib import Path

from hemi_harness import HEMI, Sandbox, Volume, hemi, hemi_fails, wait_until
from hemi_harness.hemi import MIB
from hemi_harness.sandbox import Process

SIZE = 64 * MIB
# A mail is sent at the earliest a minute after the last.
MAIL_LIMIT = 120.0


def script(sandbox: Sandbox, name: str, text: str) -> Path:
    path = sandbox.path(name)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


class Post:
    """A fake sendmail and a program that record their input."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.mails = sandbox.path("mails")
        self.calls = sandbox.path("calls")
        self.mails.write_text("")
        self.calls.write_text("")
        self.sendmail = script(
            sandbox, "sendmail", f'echo "ARGS $*" >> {self.mails}\ncat >> {self.mails}'
        )
        self.program = script(
            sandbox,
            "program",
            f'echo "$1|$2|$3|$HEMI_SEVERITY|$HEMI_TEXT" >> {self.calls}\n'
            f'echo "$HEMI_JSON" >> {self.calls}.json',
        )

    def options(self) -> list[str]:
        return [
            "--mail",
            "root",
            "--sendmail",
            str(self.sendmail),
            "--program",
            str(self.program),
        ]

    def start(self, sandbox: Sandbox, volume: Volume) -> Process:
        return sandbox.start(
            HEMI, "monitor", *self.options(), "--control", volume.control, name="monitor"
        )


def test_news_is_mailed_once_also_over_restarts(sandbox: Sandbox) -> None:
    post = Post(sandbox)
    volume = Volume.on_files(sandbox, SIZE, inject=True)
    monitor = post.start(sandbox, volume)
    wait_until("the volume is watched", lambda: "watching" in monitor.output())
    # Only once the monitor follows, since earlier events are not reported.
    volume.curl("/v1/legs/remove", "--json", '{"leg": 5}')

    def called() -> bool:
        if "request|" in post.calls.read_text():
            return True
        volume.curl("/v1/legs/remove", "--json", '{"leg": 5}')
        return False

    wait_until("the program is run for an event", called)
    volume.inject(1, "--error", "write")
    with volume.client() as client:
        client.write(0, b"x" * 4096)
        client.flush()
    wait_until("there is a mail", lambda: "To: root" in post.mails.read_text(), MAIL_LIMIT)
    first = post.mails.read_text()
    assert "ARGS -i -t" in first
    assert "Subject: hemi on " in first
    assert "An I/O of " in first and "failed at byte" in first
    assert "Asked to remove" not in first, "that is no news"
    calls = [line.split("|") for line in post.calls.read_text().splitlines()]
    [errors] = [call for call in calls if call[0] == "errors"]
    assert errors[2] == "1" and errors[3] == "warning"
    events = [json.loads(line) for line in Path(f"{post.calls}.json").read_text().splitlines()]
    assert [event["kind"] for event in events] == [call[0] for call in calls]
    ids = [event["id"] for event in events]

    wait_until("it is noted", lambda: _noted(sandbox) >= ids[-1])
    monitor.terminate()
    monitor = post.start(sandbox, volume)
    wait_until("the volume is watched", lambda: "watching" in monitor.output())
    volume.curl("/v1/legs/remove", "--json", '{"leg": 6}')
    wait_until("it goes on", lambda: "slot 6 holds no leg" in post.calls.read_text())
    events = [json.loads(line) for line in Path(f"{post.calls}.json").read_text().splitlines()]
    ids = [event["id"] for event in events]
    assert ids == sorted(set(ids)), "nothing is told twice, and nothing out of order"
    assert post.mails.read_text().count("failed at byte") == first.count("failed at byte")


def _noted(sandbox: Sandbox) -> int:
    path = sandbox.dir / "state" / "monitor.json"
    if not path.exists():
        return 0
    return max((told["run"] for told in json.loads(path.read_text()).values()), default=0)


def test_a_test_goes_both_ways(sandbox: Sandbox) -> None:
    post = Post(sandbox)
    volume = Volume.on_files(sandbox, SIZE)
    said = hemi("monitor", "--test", *post.options(), "--control", volume.control)
    assert "delivered a test event" in said
    assert post.calls.read_text().startswith(f"test|{volume.control}||info|This is a test.")
    assert "This is a test." in post.mails.read_text()
    failing = script(sandbox, "failing", "exit 7")
    hemi_fails(
        "monitor",
        "--test",
        "--program",
        failing,
        "--control",
        volume.control,
        says=("not delivered", str(failing), "7"),
    )


def test_what_makes_no_sense_is_refused(sandbox: Sandbox) -> None:
    hemi_fails("monitor", says=("nobody would be told", "--mail"))
    hemi_fails("monitor", "--mail", "root", "--sendmail", "/nowhere", says=("/nowhere",))
    program = script(sandbox, "program", "exit 0")
    hemi_fails("monitor", "--mail=-x", "--program", program, says=("is no address",))


def test_a_volume_that_was_killed_is_news(sandbox: Sandbox) -> None:
    post = Post(sandbox)
    volume = Volume.on_files(sandbox, SIZE)
    monitor = post.start(sandbox, volume)
    wait_until("the volume is watched", lambda: "watching" in monitor.output())
    volume.kill()
    wait_until(
        "it is unreachable", lambda: "unreachable|" in post.calls.read_text(), timeout=MAIL_LIMIT
    )
    volume.start()
    wait_until(
        "it answers again", lambda: "\nreachable|" in post.calls.read_text(), timeout=MAIL_LIMIT
    )
