"""A volume that is served for one command: `hemi serve --run`."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from hemi_harness import HEMI, Sandbox, wait_until
from hemi_harness.hemi import MIB, check_message, hemi, leg_bytes
from hemi_harness.sandbox import Arg, run_any, run_fails

SIZE = 32 * MIB


@pytest.fixture
def legs(sandbox: Sandbox) -> list[Arg]:
    paths = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
    options: list[Arg] = [option for path in paths for option in ("--leg", path)]
    hemi("create", "--size", SIZE, "--name", "captive", *options)
    return options


def serve(legs: list[Arg], command: str, *options: Arg) -> tuple[int, str, str]:
    return run_any(HEMI, "serve", *legs, "--run", command, *options)


def test_a_command_has_the_volume_and_its_status_counts(sandbox: Sandbox, legs: list[Arg]) -> None:
    told = sandbox.path("told")
    code, _, err = serve(legs, f'env > {told}; nbdinfo --size "$uri"; exit 7')
    assert code == 7, err
    variables = dict(line.split("=", 1) for line in told.read_text().splitlines() if "=" in line)
    assert variables["name"] == "captive"
    socket = Path(variables["unixsocket"])
    assert variables["uri"] == f"nbd+unix:///?socket={socket}"
    assert not socket.exists() and not socket.parent.exists(), "nothing is left"
    assert "device" not in variables
    # It was closed clean.
    inspected = hemi("inspect", *legs[1::2])
    assert "clean" in inspected or "closed" in inspected, inspected


def test_data_stays_and_hemi_commands_find_the_volume(sandbox: Sandbox, legs: list[Arg]) -> None:
    source, copy = sandbox.path("source"), sandbox.path("copy")
    source.write_bytes(os.urandom(SIZE))
    code, _, err = serve(legs, f'nbdcopy {source} "$uri"')
    assert code == 0, err
    status = sandbox.path("status")
    command = f'stat -c %a "$(dirname "$unixsocket")"; {HEMI} status --json > {status}'
    command += f' && nbdcopy "$uri" {copy}'
    code, out, err = serve(legs, command)
    assert code == 0, err
    assert out.split()[0] == "700"
    assert json.loads(status.read_text())["name"] == "captive"
    assert copy.read_bytes() == source.read_bytes()


def test_named_sockets_are_used(sandbox: Sandbox, legs: list[Arg]) -> None:
    socket, control = sandbox.path("named.sock"), sandbox.path("named.ctl")
    command = f'test "$unixsocket" = {socket} && test "$HEMI_CONTROL" = {control}'
    code, _, err = serve(legs, command, "--nbd", f"unix:{socket}", "--control", control)
    assert code == 0, err


def test_a_command_that_dies_or_is_not_there_shows_in_the_status(legs: list[Arg]) -> None:
    assert serve(legs, "kill -KILL $$")[0] == 128 + signal.SIGKILL
    assert serve(legs, "no-such-command-at-all")[0] == 127


def test_the_command_ends_with_the_volume(sandbox: Sandbox, legs: list[Arg]) -> None:
    begun, ended = sandbox.path("begun"), sandbox.path("ended")
    command = f'trap "touch {ended}; exit 3" TERM; touch {begun}; while :; do sleep 0.1; done'
    process = sandbox.start(HEMI, "serve", *legs, "--run", command, name="hemi")
    wait_until("the command runs", begun.exists)
    process.signal(signal.SIGTERM)
    assert process.wait(60) == 3
    assert ended.exists()


def test_it_is_not_upgraded_under_its_command(sandbox: Sandbox, legs: list[Arg]) -> None:
    control = sandbox.path("ctl")
    process = sandbox.start(
        HEMI, "serve", *legs, "--control", control, "--run", "sleep 300", name="hemi"
    )
    wait_until(
        "it serves",
        lambda: control.exists() and run_any(HEMI, "status", "--control", control)[0] == 0,
    )
    code, printed = run_fails(HEMI, "upgrade", "--control", control)
    assert code == 1
    check_message(printed, ["--run"])
    begun = time.monotonic()
    process.signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert time.monotonic() - begun < 50, "it does not wait for the command"


def test_what_keeps_the_volume_from_being_served_is_said(legs: list[Arg]) -> None:
    code, printed = run_fails(HEMI, "serve", *legs, "--volume", "other", "--run", "true")
    assert code == 3
    check_message(printed, ["captive", "other"])
