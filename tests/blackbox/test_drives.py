"""Drives behind the legs: hemi's reports about them, with a fake `smartctl`."""

from __future__ import annotations

import time
import urllib.request
from typing import Any

import pytest
from hemi_harness import Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB
from hemi_harness.sandbox import PATIENCE, free_port
from hemi_harness.smartctl import DAY_MS, NVME, Smartctl

SIZE = 32 * MIB


@pytest.fixture
def smartctl(sandbox: Sandbox) -> Smartctl:
    return Smartctl(sandbox)


def served(sandbox: Sandbox, smartctl: Smartctl, *options: str) -> Volume:
    volume = Volume.on_files(sandbox, SIZE, options=options, start=False)
    volume.env = smartctl.env
    volume.start()
    return volume


def drive(volume: Volume) -> dict[str, Any]:
    """Returns the status of leg 0's drive, once hemi has read it."""
    found: dict[str, Any] = {}

    def known() -> bool:
        found.update(volume.status()["legs"][0]["drive"] or {})
        return bool(found)

    wait_until("hemi looks at the drives", known)
    if found["device"] is None:
        pytest.skip(f"the test's directory has no disk: {found['why_unknown']}")
    return found


def test_a_drive_is_told_in_status_and_metrics(sandbox: Sandbox, smartctl: Smartctl) -> None:
    smartctl.tells(NVME)
    port = free_port()
    volume = served(sandbox, smartctl, "--http", f"127.0.0.1:{port}")
    found = drive(volume)
    assert found["why_unknown"] is None, found
    assert (found["model"], found["serial"], found["firmware"]) == ("Made Drive 1", "MADE1", "F1")
    assert (found["temperature_celsius"], found["used_permille"]) == (44, 120)
    assert (found["media_errors"], found["power_on_hours"]) == (3, 77)
    assert found["written_bytes"] == 1000 * 512_000
    assert found["failing"] is False
    assert found["rated_end_at_ms"] is None
    assert "watched for 0 days" in found["why_no_rated_end"]
    # A sleeping disk is not woken, and a disk that both legs share is asked once.
    calls = smartctl.called().splitlines()
    assert len(calls) == 1, calls
    assert "-n standby,3" in calls[0]
    assert calls[0].endswith(found["device"])
    shown = " ".join(volume.shown().split())
    assert "Made Drive 1" in shown, shown
    assert "12 % of its endurance used" in shown, shown
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    for name in ("hemi_drive_info", "hemi_drive_temperature_celsius", "hemi_drive_known"):
        lines = [line for line in text.splitlines() if line.startswith(f"{name}{{")]
        assert len(lines) == 2, (name, lines)
    assert 'serial="MADE1"' in text


def test_wear_is_kept_over_a_restart(sandbox: Sandbox, smartctl: Smartctl) -> None:
    smartctl.tells(NVME)
    volume = served(sandbox, smartctl)
    drive(volume)
    wait_until("wear is kept", lambda: any(smartctl.state.glob("*.drives.json")))
    volume.stop()
    now = time.time_ns() // 1_000_000
    smartctl.has_watched(now)
    volume.start()
    found = drive(volume)
    assert found["why_no_rated_end"] is None, found
    # From 9 to 12 % in 50 days: another 88 % take some four years.
    assert found["rated_end_at_ms"] == pytest.approx(now + 88 / 3 * 50 * DAY_MS, rel=0.001)
    assert "all of it about 20" in " ".join(volume.shown().split())


def test_what_is_not_known_is_said(sandbox: Sandbox, smartctl: Smartctl) -> None:
    message = {"string": "Smartctl open device: failed: Permission denied", "severity": "error"}
    smartctl.tells({"smartctl": {"messages": [message], "exit_status": 2}}, code=2)
    volume = served(sandbox, smartctl)
    found = drive(volume)
    assert "Permission denied" in found["why_unknown"]
    assert "CAP_SYS_RAWIO" in found["why_unknown"]
    assert found["temperature_celsius"] is None
    assert "health not known: smartctl: Smartctl open" in " ".join(volume.shown().split())


def test_drives_are_not_asked_where_the_configuration_says_so(
    sandbox: Sandbox, smartctl: Smartctl
) -> None:
    smartctl.tells(NVME)
    volume = served(sandbox, smartctl, "--set", "smart=off")
    assert 'smart = "off"' in drive(volume)["why_unknown"]
    assert smartctl.called() == ""
    volume.options[-1] = "smart=1s"
    volume.stop()
    volume.start_fails("smart=1s", "out of range", "1m to 1day")


def test_a_drive_that_hangs_holds_up_nothing(sandbox: Sandbox, smartctl: Smartctl) -> None:
    smartctl.does("exec sleep 1000")
    volume = served(sandbox, smartctl)
    wait_until("the drive is asked", lambda: smartctl.called() != "")
    with volume.client() as client:
        client.write(0, b"x" * 4096)
        assert client.read(0, 4096) == b"x" * 4096
    assert volume.status()["legs"][0]["drive"] is None
    begun = time.monotonic()
    volume.stop()
    assert time.monotonic() - begun < 30, "it waited for smartctl"


def test_endless_output_is_cut_off(sandbox: Sandbox, smartctl: Smartctl) -> None:
    smartctl.does("exec cat /dev/zero")
    volume = served(sandbox, smartctl)
    assert "more than 1048576 bytes" in drive(volume)["why_unknown"]


def test_a_remote_leg_has_no_drive_here(sandbox: Sandbox, smartctl: Smartctl) -> None:
    smartctl.tells(NVME)
    remote = Volume.on_files(sandbox, SIZE, start=False)
    remote.env = smartctl.env
    remote.start()
    uri = remote.uri
    leg = sandbox.file("local.img", 2 * SIZE)
    volume = Volume(sandbox, [leg, uri])
    volume.socket, volume.control = sandbox.path("over.sock"), sandbox.path("over.ctl")
    volume.env = smartctl.env
    volume.create(16 * MIB)
    volume.start()
    drive(volume)
    found = volume.status()["legs"][1]["drive"]
    assert found["kind"] == "network"
    assert "remote" in found["why_unknown"]
    assert found["model"] is None
