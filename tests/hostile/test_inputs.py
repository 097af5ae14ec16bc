"""Names and files that would do harm if they were taken as they come."""

from __future__ import annotations

from pathlib import Path

from hemi_harness import Sandbox, hemi_fails


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


def test_a_file_name_that_an_iolog_cannot_have_is_refused(sandbox: Sandbox) -> None:
    trace = sandbox.path("trace.csv")
    trace.write_text("1,h,0,Write,4096,512,20\n")
    argv = ("trace", "convert", trace, sandbox.path("out"), "--from", "msr", "--to", "iolog")
    hemi_fails(*argv, "--file", "a\nb", says=["cannot stand in an iolog's file name"])
