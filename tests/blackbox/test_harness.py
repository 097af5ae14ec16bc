"""Tests of the harness itself, so that later tests fail when they should.

The server under test here is nbdkit, so a failure is the harness's own.
"""

from __future__ import annotations

import errno

import pytest
from hemi_harness import Arg, Client, Fio, NbdError, Nbdkit, Sandbox, run, run_fails
from hemi_harness.journal import Journal, block_data
from hemi_harness.mounts import FileSystem, FileTree, FuseDisk

MIB = 1 << 20


def test_client_reads_back_what_it_wrote(sandbox: Sandbox) -> None:
    server = Nbdkit(sandbox, size=MIB)
    with Client(server.uri) as client:
        assert client.size() == MIB
        client.write(4096, b"\xa5" * 512, fua=True)
        assert client.read(4096, 512) == b"\xa5" * 512
        assert client.read(0, 512) == bytes(512)


def test_client_reports_the_servers_errno(sandbox: Sandbox) -> None:
    server = Nbdkit(sandbox, size=MIB)
    server.fail()
    with Client(server.uri) as client, pytest.raises(NbdError) as error:
        client.read(0, 512)
    assert error.value.errno == errno.EIO


@pytest.mark.parametrize("how", ["pause", "stop"])
def test_a_frozen_drive_answers_after_the_freeze_only(sandbox: Sandbox, how: str) -> None:
    server = Nbdkit(sandbox, size=MIB)
    freeze, thaw = {"pause": (server.pause, server.resume), "stop": (server.stop, server.cont)}[how]
    with Client(server.uri) as client:
        freeze()
        cookie = client.start_write(0, b"x" * 512)
        with pytest.raises(TimeoutError):
            client.finish(cookie, timeout=0.5)
        thaw()
        client.finish(cookie)


def test_a_killed_drive_ends_the_connection_and_can_return(sandbox: Sandbox) -> None:
    server = Nbdkit(sandbox, sandbox.file("drive.img", MIB))
    with Client(server.uri) as client:
        client.write(0, b"y" * 512)
        server.kill()
        with pytest.raises(NbdError):
            client.read(0, 512)
    server.start()
    with Client(server.uri) as client:
        assert client.read(0, 512) == b"y" * 512


def test_a_drive_is_there_after_its_client_vanished(sandbox: Sandbox) -> None:
    server = Nbdkit(sandbox, size=MIB)
    with Client(server.uri) as client:
        server.pause()
        cookies = [client.start_write(i * 4096, b"z" * 4096) for i in range(16)]
        with pytest.raises(TimeoutError):
            client.finish(cookies[0], timeout=0.5)
    server.resume()
    server.forget_client()
    server.process.check_running()
    with Client(server.uri) as client:
        client.write(0, b"y" * 512)
        assert client.read(0, 512) == b"y" * 512


def test_fio_finds_a_changed_block(sandbox: Sandbox) -> None:
    image = sandbox.file("drive.img", 4 * MIB)
    server = Nbdkit(sandbox, image)
    load: dict[str, Arg] = {
        "rw": "randwrite",
        "bs": "4k",
        "size": "4m",
        "iodepth": 8,
        "verify": "crc32c",
    }
    written = Fio(sandbox, server.uri, **load, do_verify=0).writes()
    assert written.operations == 1024
    Fio(sandbox, server.uri, **{**load, "rw": "randread"}).reads()
    with image.open("r+b") as f:
        f.seek(2 * MIB + 100)
        f.write(b"!")
    spoiled = Fio(sandbox, server.uri, **{**load, "rw": "randread"})
    with pytest.raises(AssertionError):
        spoiled.wait()


def test_nothing_outlives_its_sandbox(sandbox: Sandbox) -> None:
    with Sandbox(sandbox.dir) as inner:
        server = Nbdkit(inner, size=MIB)
        directory, process = inner.dir, server.process
        assert process.running
    assert not process.running
    assert not directory.exists()


def test_a_command_that_succeeds_or_crashes_is_not_a_refusal() -> None:
    with pytest.raises(AssertionError, match="expected to fail"):
        run_fails("true")
    with pytest.raises(AssertionError, match="signal"):
        run_fails("sh", "-c", "kill -9 $$")
    with pytest.raises(AssertionError, match="exited 1"):
        run("false")


def test_the_journal_finds_a_lost_write_and_a_foreign_one(sandbox: Sandbox) -> None:
    image = sandbox.file("drive.img", 4 * MIB)
    server = Nbdkit(sandbox, image)
    journal = Journal(server.uri, blocks=256)
    assert journal.run(600)
    journal.verify()
    assert journal.reads_checked > 256
    block = max(journal.acknowledged, key=lambda b: journal.acknowledged[b])
    original = image.read_bytes()
    for spoiled in (
        bytes(512),
        block_data(block, journal.acknowledged[block] - 1, 512),
        b"\xff" * 512,
    ):
        with image.open("r+b") as f:
            f.seek(block * 4096)
            f.write(spoiled)
        with pytest.raises(AssertionError):
            journal.verify()
        image.write_bytes(original)
    journal.verify()


def test_the_journal_survives_a_kill_of_the_server(sandbox: Sandbox) -> None:
    server = Nbdkit(sandbox, sandbox.file("drive.img", 4 * MIB))
    journal = Journal(server.uri, blocks=512)
    assert not journal.run(10_000, at={300: server.kill})
    assert journal.writes_acknowledged >= 300
    server.start()
    journal.settle()
    assert journal.run(300)
    journal.verify()


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_file_system_over_nbdfuse(sandbox: Sandbox, kind: str) -> None:
    server = Nbdkit(sandbox, sandbox.file("drive.img", 512 * MIB))
    disk = FuseDisk(sandbox, server.socket)
    fs = FileSystem(sandbox, disk.device, kind)
    fs.make()
    tree = FileTree()
    tree.write(fs.mount(), 20)
    fs.unmount()
    fs.check()
    root = fs.mount()
    tree.check(root)
    (root / next(iter(tree.sums))).write_bytes(b"spoiled")
    with pytest.raises(AssertionError):
        tree.check(root)
    fs.unmount()
    disk.close()
