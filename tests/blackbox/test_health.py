"""Conditions of a volume, made one by one: every place that speaks of its health says the same."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hemi_harness import Sandbox, Volume
from hemi_harness.client import NbdError
from hemi_harness.hemi import HEMI, MIB, data_offset, hemi
from hemi_harness.sandbox import PATIENCE, free_port, run_any, wait_until

SIZE = 64 * MIB
EXIT = {"healthy": 0, "degraded": 1, "not-serving": 2}


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

    def says(self, condition: str, state: str) -> str:
        """Waits until a condition holds, checks every place, and returns its sentence."""

        def found() -> dict[str, Any] | None:
            status = self.volume.status()
            risks = {risk["condition"]: risk for risk in status["risks"]}
            return status if condition in risks and status["health"] == state else None

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
        risks = {risk["condition"]: risk for risk in last["risks"]}
        return str(risks[condition]["text"])


def words(text: str) -> str:
    """Returns a text without its figures, which change, and without line breaks."""
    return re.sub(r"[\d.]+ ?(B|KiB|MiB|GiB|ns|µs|ms|s|min|h)\b", "#", " ".join(text.split()))


def of_status(watched: Watched, status: dict[str, Any]) -> bool:
    text = words(watched.volume.shown())
    return all(words(risk["text"]) in text for risk in status["risks"])


def of_check(watched: Watched, status: dict[str, Any]) -> bool:
    argv = ("status", "--check", "--control", watched.volume.control)
    code, out, _ = run_any(HEMI, *argv)
    return code == EXIT[status["health"]] and words(status["summary"]["text"]) in words(out)


def of_list(watched: Watched, status: dict[str, Any]) -> bool:
    _, out, _ = run_any(HEMI, "list", env=watched.volume.env)
    brief = [risk["brief"] for risk in status["risks"][:1] if status["health"] != "healthy"]
    return status["health"].replace("-", " ") in out and all(
        words(part) in words(out) for part in brief
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
        told == {risk["condition"] for risk in status["risks"]}
        and figures["hemi_healthy"] == str(int(status["health"] == "healthy"))
        and figures["hemi_degraded"] == str(int(status["health"] == "degraded"))
        and figures["hemi_converged"] == str(int(status["converged"]))
    )


PLACES: list[Callable[[Watched, dict[str, Any]], bool]] = [
    of_status,
    of_check,
    of_list,
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


FALL_BEHIND = ("engine.exposure.mode=fall-behind", "engine.exposure.age=100ms")
CONDITIONS = [
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
        options=("--set", "engine.out_after=2s"),
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
def test_every_place_says_the_condition(sandbox: Sandbox, condition: Condition) -> None:
    watched = Watched(sandbox, condition.legs, *condition.options)
    watched.volume.start()
    watched.volume.wait_converged()
    condition.make(watched)
    assert re.search(condition.says, watched.says(condition.name, condition.state))


def test_a_healthy_volume_says_so_everywhere(sandbox: Sandbox) -> None:
    watched = Watched(sandbox)
    watched.volume.start()
    watched.volume.wait_converged()

    def is_said() -> bool:
        status = watched.volume.status()
        return status["risks"] == [] and all(check(watched, status) for check in PLACES)

    wait_until("every place says so", is_said)
    assert "Every promise holds." in watched.volume.shown()
    watched.volume.stop()
    code, out, _ = run_any(HEMI, "status", "--check", "--control", watched.volume.control)
    assert code == 2 and "not" in out


def test_a_leg_being_filled_is_no_second_copy(sandbox: Sandbox) -> None:
    """Counts all that one leg alone holds, whatever the reason."""
    watched = Watched(sandbox)
    watched.volume.start()
    fill(watched)
    watched.says("regions-owed", "degraded")
    status = watched.volume.status()
    assert status["exposure"]["bytes"] == 0
    assert 0 < status["one_copy_bytes"] <= SIZE
    assert status["one_copy_bytes"] == status["legs"][1]["owed_region_bytes"]
    watched.volume.inject(1, "--clear")
    watched.volume.wait_converged()
    assert watched.volume.status()["one_copy_bytes"] == 0


def test_a_start_that_waits_for_legs_answers(sandbox: Sandbox) -> None:
    """A start whose legs are missing is asked: it says what it waits for, and goes on by itself."""
    watched = Watched(sandbox, 2, "--wait-for-legs", "1h", "--ledger", "none")
    volume = watched.volume
    volume.start()
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
    code, _, said = run_any(HEMI, "scrub", "--control", volume.control)
    assert code == 1 and "it waits for legs" in said
    away.rename(leg)
    volume.wait_serving()
    wait_until("it is served", lambda: watched.http("/healthz")[0] == 200)
