"""Conditions of a volume, made one by one: every place that speaks of its health says the same."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hemi_harness import Sandbox, Volume
from hemi_harness.browser import Browser, browser, executable
from hemi_harness.client import NbdError
from hemi_harness.hemi import HEMI, MIB, data_offset, hemi, leg_bytes
from hemi_harness.sandbox import PATIENCE, free_port, run_any, wait_until

SIZE = 64 * MIB
EXIT = {"healthy": 0, "degraded": 1, "not-serving": 2}
# Holds one thread of another process, and tells whether it may.
HOLD = """
import ctypes, os, sys, time
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
SEIZE, INTERRUPT = 0x4206, 0x4207
thread = int(sys.argv[1])
held = ptrace(SEIZE, thread, None, None) == 0 and ptrace(INTERRUPT, thread, None, None) == 0
print("held" if held else f"not allowed: {os.strerror(ctypes.get_errno())}", flush=True)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser | None]:
    """Yields one browser for all conditions, or none where there is no Chromium."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(browser()) if executable() else None


class Watched:
    """A volume, with every place that speaks of its health."""

    def __init__(self, sandbox: Sandbox, legs: int = 2, *options: str) -> None:
        runtime = sandbox.path("runtime")
        (runtime / "hemi").mkdir(parents=True)
        self.port = free_port()
        options = ("--http", f"127.0.0.1:{self.port}", "--allow-inject", *options)
        self.volume = Volume.on_files(sandbox, SIZE, legs=legs, options=options, start=False)
        self.volume.control = runtime / "hemi" / "db.sock"
        state = str(sandbox.path("state"))
        self.volume.env = dict(os.environ, STATE_DIRECTORY=state, XDG_RUNTIME_DIR=str(runtime))
        # Shows the dashboard, if there is a browser.
        self.page: Browser | None = None

    def open(self, page: Browser | None) -> None:
        """Opens the dashboard, which follows the volume from then on."""
        self.page = page
        if page:
            page.open(f"http://127.0.0.1:{self.port}/")

    def http(self, path: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def write(self, offset: int = 0, length: int = MIB) -> None:
        """Writes without waiting for the answer longer than the test lives."""

        def go() -> None:
            # It ends with the volume.
            with contextlib.suppress(NbdError), self.volume.client() as client:
                client.write(offset, b"x" * length)

        threading.Thread(target=go, daemon=True).start()

    def keep_writing(self) -> None:
        """Writes until the volume ends."""

        def go() -> None:
            with contextlib.suppress(NbdError), self.volume.client() as client:
                for turn in itertools.count():
                    client.write(turn * MIB % SIZE, b"x" * MIB)
                    time.sleep(0.01)

        threading.Thread(target=go, daemon=True).start()

    def says(self, condition: str, state: str) -> str:
        """Waits until a condition holds, checks every place, and returns its sentence."""

        def found() -> dict[str, Any] | None:
            status = self.volume.status()
            return status if condition in conditions(status) and status["health"] == state else None

        last: dict[str, Any] = {}

        def holds() -> bool:
            status = found()
            if status is None:
                return False
            last.update(status)
            silent[:] = [check.__name__ for check in PLACES if not check(self, status)]
            return not silent

        silent = ["the status"]
        try:
            wait_until(f"every place says {condition}", holds)
        except AssertionError as error:
            raise AssertionError(f"{error}: not {silent}, with {last}") from error
        return conditions(last)[condition]

    def mails(self) -> str:
        """Watches the volume as `hemi monitor` does, and returns the mail of what it finds."""
        mails = self.volume.sandbox.path("mails")
        mails.touch()
        sendmail = self.volume.sandbox.path("sendmail")
        sendmail.write_text(f"#!/bin/sh\ncat >> {mails}\n")
        sendmail.chmod(0o755)
        mail = ("--mail", "root", "--sendmail", sendmail)
        argv = (HEMI, "monitor", *mail, "--control", self.volume.control)
        self.volume.sandbox.start(*argv, name="monitor", env=self.volume.env)
        wait_until("there is a mail", lambda: "It was so when" in mails.read_text())
        return mails.read_text()


def conditions(status: dict[str, Any]) -> dict[str, str]:
    """Returns the conditions of a status with their sentences."""
    found = {str(risk["condition"]): str(risk["text"]) for risk in status["risks"]}
    if status["phase"] != "serving":
        found["not-open"] = str(status["summary"]["text"])
    return found


def words(text: str) -> str:
    """Returns a text without its figures, which change, and without line breaks."""
    return re.sub(r"[\d.]+ ?(B|KiB|MiB|GiB|ns|µs|ms|s|min|h)\b", "#", " ".join(text.split()))


def word(status: dict[str, Any]) -> str:
    """Returns the word for a volume's state."""
    phase, health = str(status["phase"]), str(status["health"])
    return phase if phase != "serving" else health.replace("-", " ")


def of_status(watched: Watched, status: dict[str, Any]) -> bool:
    text = words(watched.volume.shown())
    return all(words(sentence) in text for sentence in conditions(status).values())


def of_json(watched: Watched, status: dict[str, Any]) -> bool:
    _, out, _ = run_any(HEMI, "status", "--json", "--control", watched.volume.control)
    told = json.loads(out)
    return (
        conditions(told).keys() == conditions(status).keys()
        and told["health"] == status["health"]
        and words(told["summary"]["text"]) == words(status["summary"]["text"])
    )


def of_check(watched: Watched, status: dict[str, Any]) -> bool:
    argv = ("status", "--check", "--control", watched.volume.control)
    code, out, _ = run_any(HEMI, *argv)
    return code == EXIT[status["health"]] and words(status["summary"]["text"]) in words(out)


def of_list(watched: Watched, status: dict[str, Any]) -> bool:
    _, out, _ = run_any(HEMI, "list", env=watched.volume.env)
    brief = [risk["brief"] for risk in status["risks"][:1] if status["health"] != "healthy"]
    return word(status) in out and all(words(part) in words(out) for part in brief)


def of_top(watched: Watched, status: dict[str, Any]) -> bool:
    _, out, _ = run_any(HEMI, "top", "--once", "--control", watched.volume.control)
    worst = [risk["text"] for risk in status["risks"][:1]] or ["Every promise holds."]
    if status["health"] != "healthy":
        worst = [status["summary"]["text"]]
    return word(status) in out and words(worst[0]) in words(out)


def of_page(watched: Watched, status: dict[str, Any]) -> bool:
    if watched.page is None:
        return True
    shown = watched.page.evaluate(
        "({state: document.querySelector('#verdict').dataset.state, "
        "sentence: document.querySelector('#sentence').textContent, "
        "advice: document.querySelector('#advice').textContent, "
        "risks: [...document.querySelectorAll('#risks li')].map((risk) => risk.textContent)})"
    )
    summary = status["summary"]
    others = [risk for risk in status["risks"] if risk["text"] != summary["text"]]
    return (
        shown["state"] == status["health"]
        and words(shown["sentence"]) == words(summary["text"])
        and shown["advice"] == (summary["advice"] or "")
        and [words(risk) for risk in shown["risks"]]
        == [words(f"{risk['promise']}: {risk['text']}") for risk in others]
    )


def of_healthz(watched: Watched, status: dict[str, Any]) -> bool:
    code, body = watched.http("/healthz")
    told = json.loads(body)
    is_served = status["health"] != "not-serving"
    return (
        code == (200 if is_served else 503)
        and told["health"] == status["health"]
        and words(told["text"]) == words(status["summary"]["text"])
    )


def of_metrics(watched: Watched, status: dict[str, Any]) -> bool:
    _, text = watched.http("/metrics")
    told = set(re.findall(r'hemi_condition\{.*condition="([a-z-]+)"\} 1', text))
    figures = dict(re.findall(r"^(hemi_(?:healthy|degraded|converged))\{.*\} (\d)", text, re.M))
    return (
        told == conditions(status).keys()
        and figures["hemi_healthy"] == str(int(status["health"] == "healthy"))
        and figures["hemi_degraded"] == str(int(status["health"] == "degraded"))
        and figures["hemi_converged"] == str(int(status["converged"]))
    )


PLACES: list[Callable[[Watched, dict[str, Any]], bool]] = [
    of_status,
    of_json,
    of_check,
    of_list,
    of_top,
    of_page,
    of_healthz,
    of_metrics,
]


@dataclass
class Condition:
    name: str
    state: str
    says: str
    make: Callable[[Watched], None]
    legs: int = 2
    options: tuple[str, ...] = ()


def freeze(*legs: int) -> Callable[[Watched], None]:
    def make(watched: Watched) -> None:
        for leg in legs:
            watched.volume.inject(leg, "--freeze", "1h")
        watched.write()

    return make


def detach(watched: Watched) -> None:
    watched.volume.command("leg", "detach", "1")


def differ(watched: Watched) -> None:
    watched.volume.stop()
    with Path(watched.volume.legs[1]).open("r+b") as file:
        file.seek(data_offset(SIZE) + 4 * MIB)
        file.write(b"rot" * 1000)
    watched.volume.start()
    run_any(HEMI, "scrub", "--control", watched.volume.control)


def fill(watched: Watched) -> None:
    """A disk with data is adopted, and all of it has to be copied to a new leg, which is slow."""
    volume = watched.volume
    volume.stop()
    disk, metadata, new = (volume.sandbox.path(name) for name in ("disk", "metadata", "new"))
    disk.write_bytes(os.urandom(MIB) * (SIZE // MIB))
    metadata.touch()
    hemi("create", "--adopt", disk, "--metadata", metadata, "--leg", new, "--name", "db")
    volume.legs = [f"external:{disk},metadata={metadata}", new]
    volume.options += ["--set", "engine.leg_window=1", "--set", "engine.drain_bytes=64KiB"]
    volume.start()
    volume.inject(1, "--delay", "3s")


def close(watched: Watched) -> None:
    """It is stopped, and a leg owes so much that it drains for as long as the test lives."""
    volume = watched.volume
    volume.inject(1, "--delay", "200ms")
    with volume.client() as client:
        for offset in range(0, SIZE, MIB):
            client.write(offset, b"x" * MIB)
    volume.signal(signal.SIGTERM)


def stick(watched: Watched) -> None:
    """The thread of the data path is held, and control goes on."""
    tasks = Path(f"/proc/{watched.volume.process.pid}/task")
    threads = {(task / "comm").read_text().strip(): task.name for task in tasks.iterdir()}
    holder = watched.volume.sandbox.start(
        sys.executable, "-c", HOLD, threads["hemi-reactor"], name="holder"
    )
    wait_until("the thread is held, or may not be", lambda: bool(holder.output()))
    if "not allowed" in holder.output():
        pytest.skip(f"a thread cannot be held here: {holder.output()}")


def lose(watched: Watched) -> None:
    """Only one leg has what was written while the other was out, and cannot read it."""
    volume = watched.volume
    freeze(1)(watched)
    volume.wait_leg_state(1, "out")
    with volume.client() as client:
        client.write(8 * MIB, b"x" * 4096)
    volume.inject(0, "--error", "read")
    volume.inject(1, "--clear")
    wait_until("some is lost", lambda: volume.status()["lost_bytes"] > 0)
    volume.inject(0, "--clear")


def overwrite(watched: Watched) -> None:
    """Something writes to a leg beneath hemi again and again."""
    zeroes = bytes(data_offset(SIZE))

    def go() -> None:
        while watched.volume.process.running:
            with Path(watched.volume.legs[1]).open("r+b") as file:
                file.write(zeroes)
            time.sleep(0.02)

    threading.Thread(target=go, daemon=True).start()
    scrub = (HEMI, "scrub", "--control", watched.volume.control)
    watched.volume.sandbox.start(*scrub, name="scrub")


def give_up(watched: Watched) -> None:
    volume = watched.volume
    volume.stop()
    Path(volume.legs[1]).rename(volume.sandbox.path("away.img"))
    volume.options += ["--start-degraded", "--wait-for-legs", "1s"]
    volume.start()


def add(watched: Watched) -> None:
    """A third leg has to be filled, which is slow."""
    new = watched.volume.sandbox.file("new.img", leg_bytes(SIZE))
    with watched.volume.client() as client:
        for offset in range(0, SIZE, MIB):
            client.write(offset, b"x" * MIB)
    watched.volume.command("leg", "add", new)
    watched.volume.inject(2, "--delay", "3s")


def fall_behind(watched: Watched) -> None:
    """A leg takes longer for each write than clients need for the next one."""
    watched.volume.inject(1, "--delay", "100ms")
    watched.keep_writing()


# It is slow, and never counts as frozen.
PATIENT = ("--set", "engine.wait.floor=10s", "--set", "engine.wait.ceiling=10s")
SLOWLY = ("--set", "engine.leg_window=1", "--set", "engine.drain_bytes=64KiB", *PATIENT)
OUT_SOON = ("--set", "engine.out_after=2s")
NEVER_OUT = ("--set", "engine.out_after=1day")
FALL_BEHIND = ("engine.exposure.mode=fall-behind", "engine.exposure.age=100ms")
CONDITIONS = [
    Condition(
        "not-open",
        "not-serving",
        "The volume is being stopped",
        close,
        options=("--drain-on-stop", "1h", "--set", "engine.exposure.age=1h", *SLOWLY),
    ),
    Condition("stuck", "not-serving", "The data path has not moved", stick),
    Condition(
        "lost",
        "degraded",
        "of acknowledged data are on no leg any more",
        lose,
        options=OUT_SOON,
    ),
    Condition("metadata-lost", "degraded", r"leg 1\) does not hold its metadata", overwrite),
    Condition("given-up", "degraded", r"This start gave up .*leg1.img", give_up),
    Condition("exposed", "degraded", r"are on .*leg 0\) only, and are lost with it", freeze(1)),
    Condition(
        "throttled",
        "healthy",
        "Writers are being slowed to keep exposure below 16 MiB",
        fall_behind,
        options=("--set", "engine.exposure.bytes=16MiB", *SLOWLY, *NEVER_OUT),
    ),
    Condition("lagging", "healthy", r"leg 1\) owes .* and drains", fall_behind, options=SLOWLY),
    Condition("filling", "healthy", r"leg 2\) is being filled", add, options=SLOWLY),
    Condition("sole-leg", "degraded", "All data is on .*leg0.img", detach),
    Condition("regions-owed", "degraded", r"leg 0\) alone holds them", fill),
    Condition("differences", "degraded", "known to differ in 3 KiB", differ),
    Condition("leg-silent", "degraded", r"leg 1\) has not answered", freeze(1)),
    Condition("no-leg-answers", "not-serving", "No leg answers", freeze(0, 1)),
    Condition(
        "exposure-past-bound",
        "degraded",
        "Exposure is past its bound of 100 ms",
        freeze(1),
        options=tuple(part for one in FALL_BEHIND for part in ("--set", one)),
    ),
    Condition(
        "leg-out",
        "degraded",
        r"leg 2\) is out and lacks",
        freeze(2),
        legs=3,
        options=OUT_SOON,
    ),
    Condition(
        "flush-copies",
        "degraded",
        "A flush is durable on 1 of the 2 legs",
        detach,
        options=("--set", "engine.flush_copies=2"),
    ),
    Condition(
        "policy-waits",
        "healthy",
        "Policy all waits for every leg",
        lambda _: None,
        options=("--set", "engine.policy=all"),
    ),
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_every_place_says_the_condition(
    sandbox: Sandbox, chromium: Browser | None, condition: Condition
) -> None:
    watched = Watched(sandbox, condition.legs, *condition.options)
    watched.volume.start()
    watched.volume.wait_converged()
    condition.make(watched)
    watched.open(chromium)
    assert re.search(condition.says, watched.says(condition.name, condition.state))
    if condition.state != "healthy":
        sentence = words(watched.volume.status()["summary"]["text"])
        assert sentence in words(watched.mails())


def test_every_condition_is_made() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    table = page.partition("## Conditions")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([a-z-]+)` \|", table, re.M)
    assert len(named) >= 18
    assert sorted(named) == sorted(condition.name for condition in CONDITIONS)


def test_a_healthy_volume_says_so_everywhere(sandbox: Sandbox, chromium: Browser | None) -> None:
    watched = Watched(sandbox)
    watched.volume.start()
    watched.volume.wait_converged()
    watched.open(chromium)

    def is_said() -> bool:
        status = watched.volume.status()
        return status["risks"] == [] and all(check(watched, status) for check in PLACES)

    wait_until("every place says so", is_said)
    assert "Every promise holds." in watched.volume.shown()
    watched.volume.stop()
    sentence = "Everything that was acknowledged is on all 2 legs."
    assert f'no longer served legs="{sentence}"' in watched.volume.process.output()
    watched.volume.start()
    assert f"The volume was stopped. {sentence}" in watched.volume.command("events")
    watched.volume.stop()
    code, out, _ = run_any(HEMI, "status", "--check", "--control", watched.volume.control)
    assert code == 2 and "not" in out


def test_a_leg_being_filled_is_no_second_copy(sandbox: Sandbox) -> None:
    """Counts all that one leg alone holds, whatever the reason."""
    watched = Watched(sandbox)
    watched.volume.start()
    fill(watched)
    sentence = watched.says("regions-owed", "degraded")

    def is_told() -> bool:
        lines = watched.volume.command("events", "--json").splitlines()
        events = [event for event in map(json.loads, lines) if event["kind"] == "condition"]
        # The time left is not known at once.
        said = words(sentence.partition(";")[0])
        return any(
            event["severity"] == "warning" and words(event["text"]).startswith(said)
            for event in events
        )

    wait_until("an event tells of it", is_told)
    status = watched.volume.status()
    assert status["exposure"]["bytes"] == 0
    assert 0 < status["one_copy_bytes"] <= SIZE
    assert status["one_copy_bytes"] == status["legs"][1]["owed_region_bytes"]
    watched.volume.inject(1, "--clear")
    watched.volume.wait_converged()
    assert watched.volume.status()["one_copy_bytes"] == 0


def test_a_start_that_waits_for_legs_answers(sandbox: Sandbox, chromium: Browser | None) -> None:
    """A start whose legs are missing is asked: it says what it waits for, and goes on by itself."""
    watched = Watched(sandbox, 2, "--wait-for-legs", "1h", "--ledger", "none")
    volume = watched.volume
    volume.start()
    watched.open(chromium)
    with volume.client() as client:
        client.write(0, b"x" * MIB)
    volume.kill()
    leg, away = Path(volume.legs[1]), sandbox.path("away.img")
    leg.rename(away)
    volume.launch()

    def says() -> str:
        code, out, _ = run_any(HEMI, "status", "--check", "--control", volume.control)
        return out if code == 2 else ""

    wait_until("the status says so", lambda: "it waits for legs" in says())
    assert "leg1.img" in says()
    status = volume.status()
    assert (status["phase"], status["health"]) == ("opening", "not-serving")
    assert "leg1.img" in status["waits_for"]
    code, out, _ = run_any(HEMI, "status", "--control", volume.control)
    assert code == 0 and "it waits for legs" in " ".join(out.split())
    assert "opening" in run_any(HEMI, "list", env=volume.env)[1]
    code, body = watched.http("/healthz")
    assert code == 503 and "it waits for legs" in json.loads(body)["text"]
    assert watched.http("/livez")[0] == 200
    text = watched.http("/metrics")[1]
    assert re.search(r'hemi_condition\{.*condition="not-open"\} 1', text)
    assert re.search(r"hemi_serving\{.*\} 0", text)
    assert watched.http("/v1/status")[0] == 503, "it names files, and asks for no token"
    wait_until("a page from before says so", lambda: of_page(watched, status))
    assert "it waits for legs" in volume.command("top", "--once")
    code, _, said = run_any(HEMI, "scrub", "--control", volume.control)
    assert code == 1 and "it waits for legs" in said
    away.rename(leg)
    volume.wait_serving()
    wait_until("it is served", lambda: watched.http("/healthz")[0] == 200)
    wait_until("the page goes on", lambda: of_page(watched, volume.status()))
