"""File systems end to end (nbdfuse, a loop device, ext4 and XFS), and legs without hemi (P8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hemi_harness import Sandbox, Volume, hemi, run
from hemi_harness.hemi import MIB, assert_identical, data_offset
from hemi_harness.mounts import FileSystem, FileTree, FuseDisk

SIZE = 512 * MIB


@pytest.mark.parametrize("kind", ["ext4", pytest.param("xfs", marks=pytest.mark.long)])
def test_a_file_system_lives_on_a_volume(sandbox: Sandbox, kind: str) -> None:
    volume = Volume.on_files(sandbox, SIZE, inject=True)
    disk = FuseDisk(sandbox, volume.socket)
    fs = FileSystem(sandbox, disk.device, kind)
    fs.make()
    tree = FileTree()
    root = fs.mount()
    tree.write(root, 60)
    volume.inject(1, "--freeze", "1s")
    tree.write(root, 60)
    tree.remove(root, 0.4)
    run("fstrim", root)
    tree.check(root)
    fs.unmount()
    fs.check()
    disk.close()

    volume.wait_converged()
    volume.restart()
    disk = FuseDisk(sandbox, volume.socket)
    fs = FileSystem(sandbox, disk.device, kind)
    fs.check()
    root = fs.mount()
    tree.check(root)
    volume.inject(0, "--freeze", "1s")
    tree.write(root, 40)
    tree.check(root)
    fs.unmount()
    fs.check()
    disk.close()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_detached_leg_is_a_plain_disk_image(sandbox: Sandbox, kind: str) -> None:
    """Walks away with a leg (P8), mounts it without hemi, and lets it rejoin later."""
    volume = Volume.on_files(sandbox, SIZE)
    disk = FuseDisk(sandbox, volume.socket)
    fs = FileSystem(sandbox, disk.device, kind)
    fs.make()
    tree = FileTree(seed=2)
    tree.write(fs.mount(), 40)
    fs.unmount()
    disk.close()

    volume.command("leg", "detach", 1)
    assert volume.leg_state(1) in ("out", "absent", "gone")
    offset = data_offset(SIZE)
    seen = hemi("inspect", volume.legs[1])
    assert str(offset) in seen and "detached: the data area is a plain disk image" in seen
    leg = Path(volume.legs[1])
    alone = sandbox.loop(leg, "--offset", offset, "--sizelimit", SIZE)
    outside = FileSystem(sandbox, alone, kind)
    outside.check()
    tree.check(outside.mount())
    outside.unmount()
    run("losetup", "--detach", alone)

    # The volume went on meanwhile, and the leg is drained to when it comes back.
    with volume.client() as client:
        client.write(SIZE - MIB, b"later" + bytes(4091))
    volume.command("leg", "attach", leg, "--wipe")
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)
