"""A disk with data that becomes a leg: the volume mounts, and so does the disk afterwards."""

from __future__ import annotations

from pathlib import Path

from kernel_guest import DEVICE, LEGS, SIZE, Volume, hemi, messages, run, wait_until


def test_a_disk_with_data_is_a_volume_and_stays_a_disk(volume: Volume) -> None:
    disk, other = LEGS
    point = Path("/run/mount")
    point.mkdir(exist_ok=True)
    run("dd", "if=/dev/zero", f"of={disk}", "bs=1M", "count=2")
    run("mkfs.ext4", "-q", "-F", disk, f"{SIZE // 1024}K")
    run("mount", disk, str(point))
    (point / "before").write_bytes(b"b" * 100_000)
    create = ("create", "--adopt", disk, "--leg", other, "--wipe", other, "--name", "vol")
    assert "is mounted on" in hemi(*create, expect=3)
    run("umount", str(point))
    hemi(*create)
    volume.legs = [f"end:{disk}", other]
    volume.start("--device")
    run("mount", str(DEVICE), str(point))
    assert (point / "before").read_bytes() == b"b" * 100_000
    (point / "after").write_bytes(b"a" * 100_000)
    # Nobody can mount the disk beside the volume.
    assert "busy" in run("mount", disk, "/mnt", expect=32)
    run("umount", str(point))
    wait_until("the legs are alike", lambda: '"converged": true' in hemi("status", "--json"))
    volume.stop()
    hemi("detach-device", "--volume", "vol")
    run("mount", disk, str(point))
    assert (point / "before").read_bytes() == b"b" * 100_000
    assert (point / "after").read_bytes() == b"a" * 100_000
    run("umount", str(point))
    run("fsck.ext4", "-fn", disk)
    assert messages() == []
