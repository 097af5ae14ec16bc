"""Names and files that would do harm if they were used unchecked."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from hemi_harness import Sandbox, Volume, hemi_fails, wait_until
from hemi_harness.hemi import MIB


def test_no_file_is_made_for_a_device_that_is_not_there(sandbox: Sandbox) -> None:
    absent = Path("/dev/hemi-absent")
    leg = sandbox.path("leg.img")
    hemi_fails(
        "create", "--size", "64MiB", "--leg", leg, "--leg", absent, says=["there is no device"]
    )
    assert not absent.exists()
    assert not leg.exists(), "a refusal leaves nothing behind"


def test_a_name_that_reads_as_another_is_refused(sandbox: Sandbox) -> None:
    legs = [a for i in range(2) for a in ("--leg", sandbox.path(f"leg{i}.img"))]
    name = "db\N{RIGHT-TO-LEFT OVERRIDE}1"
    hemi_fails("create", "--size", "64MiB", "--name", name, *legs, says=["U+202E"])


def test_a_configuration_without_an_end_is_not_read_to_it() -> None:
    hemi_fails("config", "check", "/dev/zero", says=["/dev/zero", "more than 1048576 bytes"])


def break_the_protocol(volume: Volume) -> None:
    """Sends escape codes that clear a terminal, and waits to be cut off."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(volume.socket))
        client.settimeout(10)
        client.sendall(b"\x1b[2J" * 1000)
        with contextlib.suppress(ConnectionError):
            while client.recv(4096):
                pass


def test_clients_that_break_the_protocol_do_not_fill_the_log(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, 8 * MIB)
    begun = time.monotonic()
    clients = 400
    for _ in range(clients):
        break_the_protocol(volume)
    # The next one after a second reports those that were left out.
    time.sleep(1.1)
    break_the_protocol(volume)
    wait_until("how many more", lambda: "more clients were cut off" in volume.process.output())
    log = volume.process.output()
    lines = log.count("a client is cut off")
    seconds = 1 + int(time.monotonic() - begun)
    assert 10 <= lines <= 10 * (seconds + 1), f"{lines} lines in {seconds} s"
    assert lines < clients / 2, "more than half of them are left out"
    assert "\x1b[2J" not in log


def test_a_file_name_that_an_iolog_cannot_have_is_refused(sandbox: Sandbox) -> None:
    trace = sandbox.path("trace.csv")
    trace.write_text("1,h,0,Write,4096,512,20\n")
    argv = ("trace", "convert", trace, sandbox.path("out"), "--from", "msr", "--to", "iolog")
    hemi_fails(*argv, "--file", "a\nb", says=["cannot stand in an iolog's file name"])
