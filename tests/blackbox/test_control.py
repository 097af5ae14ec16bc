"""Control socket, metrics and health from outside."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import urllib.error
import urllib.request

import pytest
from hemi_harness import HEMI, Sandbox, Volume, hemi_fails, wait_until
from hemi_harness.hemi import MIB, check_message
from hemi_harness.journal import Journal
from hemi_harness.sandbox import PATIENCE, free_port, run_fails

SIZE = 32 * MIB


def test_the_api_answers_as_documented(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, create=("--name", "api"))
    assert stat.S_IMODE(volume.control.stat().st_mode) == 0o600
    code, body = volume.curl("/v1/status")
    status = json.loads(body)
    assert code == 200
    assert status["name"] == "api"
    assert status["size_bytes"] == SIZE
    # The command shows the API's answer.
    assert set(json.loads(volume.command("status", "--json"))) == set(status)
    for key in ("exposure", "clients", "engine", "scrub", "buffers", "risks", "legs"):
        assert key in status, key
    assert volume.curl("/v1/config")[0] == 200
    assert volume.curl("/nowhere")[0] == 404
    code, body = volume.curl("/v1/inject", "--json", '{"leg": 0, "fault": "clear"}')
    assert code == 403
    assert "allow" in body
    code, body = volume.curl("/v1/legs/detach", "--json", '{"leg": 99}')
    assert code in (400, 404)
    assert json.loads(body)["way_out"] is not None
    code, _ = volume.curl("/v1/legs/detach", "--json", "{broken")
    assert code == 400
    code, body = volume.curl("/v1/scrub", "--json", "x" * 100_000)
    assert code == 413
    assert json.loads(body)["error"] == "bad-request"
    assert "at most 64 KiB" in json.loads(body)["way_out"]
    with volume.client() as client:
        client.read(0, 512)


def test_counters_count(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    journal = Journal(volume.uri, blocks=512, reads=0, flush_every=50)
    assert journal.run(500)

    def counted() -> bool:
        clients = volume.status()["clients"]
        return bool(
            clients["writes"]["total"]["count"] >= 500
            and clients["flushes"]["total"]["count"] >= 5
            and clients["connections"]["open"] == 1
        )

    # The figures are at most a second old.
    wait_until("what was done is counted", counted)
    assert volume.status()["clients"]["failed"] == 0
    journal.disconnect()
    volume.wait_converged()
    legs = volume.status()["legs"]
    assert all(leg["written_bytes"] >= 500 * 4096 * 0.5 for leg in legs), legs
    assert volume.status()["engine"]["regions_dirtied"] > 0


METRIC = re.compile(r'^[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?[0-9.eE+\-]+$|^#.*$')


def test_metrics_and_health(sandbox: Sandbox) -> None:
    port = free_port()
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=("--http", f"127.0.0.1:{port}"))

    def get(path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}{path}", timeout=PATIENCE
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    journal = Journal(volume.uri, blocks=512)
    assert journal.run(300)
    code, text = get("/metrics")
    assert code == 200
    strange = [line for line in text.splitlines() if not METRIC.match(line)]
    assert not strange, strange[:5]
    for name in (
        "hemi_exposure_bytes",
        "hemi_request_seconds_bucket",
        "hemi_authority_moves_total",
        "hemi_leg_",
    ):
        assert name in text, name
    assert get("/livez")[0] == 200

    def health() -> str:
        return str(json.loads(get("/healthz")[1])["health"])

    # The figures are at most a second old.
    wait_until("it is healthy", lambda: health() == "healthy")
    assert get("/healthz")[0] == 200
    volume.inject(0, "--freeze", "1h")
    assert journal.run(200)
    wait_until("it is degraded", lambda: health() == "degraded")
    assert get("/healthz")[0] == 200
    # The listener shows the volume, but allows no changes.
    assert get("/v1/status")[0] == 200
    assert get("/v1/shutdown")[0] == 404


def test_commands_say_what_is_wrong(sandbox: Sandbox) -> None:
    nowhere = sandbox.path("nowhere.ctl")
    hemi_fails("status", "--control", nowhere, says=[nowhere])
    hemi_fails("serve", says=["leg"])
    hemi_fails("serve", "--leg", "a", "--leg", "b", "--policy", "best", says=["policy", "first"])
    hemi_fails("serve", "--leg", "a", "--leg", "b", "--set", "engine.wait.flor=1ms", says=["flor"])
    volume = Volume.on_files(sandbox, SIZE)
    _, printed = run_fails(
        HEMI, "inject", "--leg", 0, "--freeze", "1s", "--control", volume.control
    )
    check_message(printed, ["allow-inject"])
    volume.process.check_running()


def test_status_watch_follows(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    watch = sandbox.start(
        HEMI, "status", "--watch", "--json", "--control", volume.control, name="watch"
    )
    wait_until("three lines", lambda: watch.output().count('"phase"') >= 3)
    watch.kill()


def logged(sandbox: Sandbox, name: str, *options: str, journal: bool) -> list[str]:
    """Returns the standard error of `hemi serve`, which is the journal or not."""
    volume = Volume.on_files(sandbox, SIZE, create=("--name", name), start=False)
    path = sandbox.path(f"{name}.stderr")
    with path.open("w") as log:
        found = os.fstat(log.fileno())
        # The form that systemd uses (systemd.exec(5)).
        stream = f"{found.st_dev}:{found.st_ino if journal else found.st_ino + 1}"
        legs = [part for leg in volume.legs for part in ("--leg", str(leg))]
        control = sandbox.path(f"{name}.control")
        export = ("--nbd", f"unix:{sandbox.path(name)}.nbd", "--control", str(control))
        process = subprocess.Popen(
            [HEMI, "serve", *legs, *export, *options],
            env={**os.environ, "JOURNAL_STREAM": stream},
            stderr=log,
        )
        wait_until("it is served", control.exists)
        process.terminate()
        assert process.wait(PATIENCE) == 0
    return path.read_text().splitlines()


@pytest.mark.parametrize("options", [(), ("--log-format", "json")])
def test_the_journal_is_told_the_severity(sandbox: Sandbox, options: tuple[str, ...]) -> None:
    lines = logged(sandbox, "j", *options, journal=True)
    assert lines and all(re.match(r"<[346]>", line) for line in lines), lines
    assert any(line.startswith("<6>") and "stopping" in line for line in lines), lines
    plain = logged(sandbox, "p", *options, journal=False)
    assert plain and not any(line.startswith("<") for line in plain), plain


def test_the_journal_is_told_of_the_error_that_ends_a_start(sandbox: Sandbox) -> None:
    path = sandbox.path("stderr")
    with path.open("w") as log:
        found = os.fstat(log.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        legs = ["--leg", str(sandbox.path("none.img"))]
        done = subprocess.run([HEMI, "serve", *legs], env=environment, stderr=log, check=False)
    assert done.returncode == 1
    lines = path.read_text().splitlines()
    assert any(line.startswith("<3>error: ") for line in lines), lines
    assert all(line.startswith("<") for line in lines), lines
