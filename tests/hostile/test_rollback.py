"""A remote leg whose server is restarted on a snapshot: stale data is never read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hemi_harness import Arg, Nbdkit, Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB, leg_bytes

SIZE = 64 * MIB
PIECE = 64 << 10
PIECES = 64


def mirrored(sandbox: Sandbox, *options: Arg) -> tuple[Volume, Nbdkit, Path]:
    """Returns a converged volume on a file and a remote leg, and the remote leg's image."""
    local = sandbox.file("local.img", leg_bytes(SIZE))
    image = sandbox.file("remote.img", leg_bytes(SIZE))
    server = Nbdkit(sandbox, image)
    volume = Volume(sandbox, [local, server.uri], options=options)
    volume.create(SIZE)
    volume.start()
    write(volume, 1)
    volume.wait_converged(60)
    return volume, server, image


def write(volume: Volume, byte: int) -> None:
    """Writes every piece durably."""
    with volume.client() as client:
        for piece in range(PIECES):
            client.write(piece * PIECE, bytes([byte]) * PIECE, fua=True)
        client.flush()


def put_back(server: Nbdkit, image: Path, snapshot: Path) -> None:
    """Restarts the server on the snapshot."""
    server.kill()
    shutil.copyfile(snapshot, image)
    server.start()


def check(volume: Volume, byte: int) -> None:
    """Fails unless every piece reads as `byte`."""
    with volume.client() as client:
        for piece in range(PIECES):
            got = client.read(piece * PIECE, PIECE)
            assert got == bytes([byte]) * PIECE, f"piece {piece} is old"


def test_a_leg_put_back_while_it_is_served_does_not_come_back(sandbox: Sandbox) -> None:
    volume, server, image = mirrored(sandbox)
    snapshot = sandbox.path("snapshot.img")
    shutil.copyfile(image, snapshot)
    write(volume, 2)
    volume.wait_converged(60)
    put_back(server, image, snapshot)
    wait_until("the refusal", lambda: "it went back" in volume.process.output())
    status = volume.status()
    assert status["health"] != "healthy", status
    assert status["legs"][1]["state"] != "healthy", status
    # hemi tries again and again, and the reason stays.
    wait_until("the reason", lambda: "it went back" in volume.status()["legs"][1]["no_session"])
    reason = volume.status()["legs"][1]["no_session"]
    assert f"leg 1: none: {reason[:40]}" in volume.command("status")
    assert volume.status()["legs"][0]["no_session"] is None
    check(volume, 2)


def test_what_a_leg_put_back_between_two_starts_lacks_is_owed(sandbox: Sandbox) -> None:
    volume, server, image = mirrored(sandbox)
    snapshot = sandbox.path("snapshot.img")
    shutil.copyfile(image, snapshot)
    write(volume, 2)
    volume.wait_converged(60)
    volume.stop()
    put_back(server, image, snapshot)
    volume.start()
    check(volume, 2)
    volume.wait_converged(60)
    # The data it lacked has been written to it.
    volume.command("leg", "detach", "0")
    check(volume, 2)


@pytest.mark.long
def test_the_ledger_tells_a_leg_put_back_after_a_kill(sandbox: Sandbox) -> None:
    volume, server, image = mirrored(sandbox, "--ledger", sandbox.directory_in(Path("/dev/shm")))
    with volume.client() as client:
        client.write(0, b"a" * PIECE, fua=True)
    volume.wait_converged(60)
    snapshot = sandbox.path("snapshot.img")
    shutil.copyfile(image, snapshot)
    # The region is in use, so no page is written for it, only data and stamps.
    with volume.client() as client:
        client.write(0, b"b" * PIECE, fua=True)
    volume.wait_converged(60)
    current = sandbox.path("current.img")
    shutil.copyfile(image, current)
    volume.kill()
    server.forget_client()
    put_back(server, image, snapshot)
    volume.start_fails("leg 1 is older than it was")
    put_back(server, image, current)
    volume.start()
    with volume.client() as client:
        assert client.read(0, PIECE) == b"b" * PIECE
