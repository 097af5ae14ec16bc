"""The volume as a block device: its properties in the kernel, and refused operations."""

from __future__ import annotations

import os
from pathlib import Path

from kernel_guest import DEVICE, SIZE, Volume, hemi, messages, run, wait_until


def queue(key: str) -> str:
    name = DEVICE.resolve().name
    return Path(f"/sys/block/{name}/queue/{key}").read_text().strip()


def is_device(path: Path) -> bool:
    """Returns true if a device is connected. An NBD client's node exists in any case."""
    pid = Path("/sys/block") / path.name / "pid"
    return path.exists() and (not path.name.startswith("nbd") or pid.exists())


def test_the_kernel_knows_the_volumes_limits(volume: Volume) -> None:
    volume.start("--device")
    assert int(run("blockdev", "--getsize64", str(DEVICE))) == SIZE
    assert queue("logical_block_size") == "512"
    # The NBD client cannot report the block size of the legs.
    grain = "4096" if volume.driver == "ublk" else "512"
    assert queue("physical_block_size") == grain
    assert queue("minimum_io_size") == grain
    assert queue("write_cache") == "write back"
    assert queue("fua") == "1"
    assert queue("rotational") == "0"
    assert queue("max_sectors_kb") == "1024"
    assert int(queue("discard_max_bytes")) >= 1 << 30
    assert int(queue("write_zeroes_max_bytes")) >= 1 << 30
    assert queue("scheduler").startswith("[none]")
    if volume.driver == "ublk":
        assert queue("max_hw_sectors_kb") == "1024"
        assert queue("discard_granularity") == "4096"
    assert f"device    {DEVICE.resolve()}" in hemi("status")
    assert DEVICE.resolve().name.startswith("nbd" if volume.driver == "nbd" else "ublkb")


def test_data_is_where_it_was_written(volume: Volume) -> None:
    volume.start("--device")
    run(
        "fio",
        "--name=verify",
        f"--filename={DEVICE}",
        "--rw=randwrite",
        "--bsrange=512-1m",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=32",
        f"--size={SIZE}",
        "--io_size=64m",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
    )
    run("blkdiscard", "-z", "-o", "4096", "-l", str(1 << 20), str(DEVICE))
    run("blkdiscard", "-o", str(8 << 20), "-l", str(16 << 20), str(DEVICE))
    with DEVICE.open("rb", buffering=0) as device:
        os.posix_fadvise(device.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert os.pread(device.fileno(), 1 << 20, 4096) == bytes(1 << 20)
    assert hemi("scrub").strip() == "all legs of vol are alike"
    assert messages() == []


def test_a_device_in_use_is_not_removed(volume: Volume) -> None:
    volume.start("--device")
    run("mkfs.ext4", "-q", str(DEVICE))
    mount = Path("/run/mount")
    mount.mkdir(exist_ok=True)
    run("mount", str(DEVICE), str(mount))
    assert "is in use" in hemi("detach-device", expect=3)
    (mount / "file").write_bytes(b"x" * 100_000)
    run("umount", str(mount))
    hemi("detach-device")
    assert not DEVICE.exists()
    assert "is no block device" in hemi("detach-device", expect=1)
    assert "/dev/hemi/vol is /dev/" in hemi("attach", "--driver", volume.driver)
    run("fsck.ext4", "-fn", str(DEVICE))
    assert messages() == []


def test_attaching_twice_changes_nothing(volume: Volume) -> None:
    volume.start("--device")
    device = DEVICE.resolve()
    assert hemi("attach").strip() == f"{DEVICE} is {device}"
    assert DEVICE.resolve() == device
    run("dd", f"if={DEVICE}", "of=/dev/null", "bs=1M", "count=4", "iflag=direct")


def test_a_stopped_volumes_device_is_taken_over_or_removed(volume: Volume) -> None:
    volume.start("--device")
    device = DEVICE.resolve()
    volume.stop()
    assert "the block device stays" in volume.log()
    # Without --device the volume is still a device.
    volume.start()
    assert DEVICE.resolve() == device
    run("dd", f"if={DEVICE}", "of=/dev/null", "bs=1M", "count=4", "iflag=direct")
    volume.stop()
    hemi("detach-device", "--volume", "vol")
    assert not DEVICE.exists() and not is_device(device)
    assert messages() == []


def test_a_start_without_the_right_is_refused(volume: Volume) -> None:
    legs = [part for leg in volume.legs for part in ("--leg", leg)]
    words = " ".join([os.environ["HEMI"], "serve", *legs, "--device"])
    for leg in volume.legs:
        Path(leg).chmod(0o666)
    output = run("setpriv", "--reuid=1", "--clear-groups", "sh", "-c", words, expect=1)
    assert "not allowed to make block devices" in output


def test_a_device_that_nobody_serves_is_given_up_by_force(volume: Volume) -> None:
    volume.start("--device")
    run("mkfs.ext4", "-q", str(DEVICE))
    mount = Path("/run/mount")
    mount.mkdir(exist_ok=True)
    run("mount", str(DEVICE), str(mount))
    volume.kill()
    detach = ("detach-device", "--volume", "vol")
    assert "is in use" in hemi(*detach, expect=3)
    hemi(*detach, "--force")
    # The waiting requests have failed, so that it can be unmounted.
    run("umount", str(mount))
    messages()
    volume.start("--device")
    run("fsck.ext4", "-fp", str(DEVICE), expect=None)
    run("fsck.ext4", "-fn", str(DEVICE))


def test_a_device_of_another_volume_is_left_alone(volume: Volume) -> None:
    volume.start("--device")
    device = DEVICE.resolve()
    volume.stop()
    # The same legs as another volume of the same name.
    volume.create()
    volume.start("--device")
    assert DEVICE.resolve() != device and is_device(device)
    run("dd", f"if={DEVICE}", "of=/dev/null", "bs=1M", "count=4", "iflag=direct")
    hemi("detach-device")
    DEVICE.symlink_to(device)
    volume.stop()
    hemi("detach-device", "--volume", "vol")


def test_a_mounted_volume_grows(volume: Volume) -> None:
    """Grows the devices that hemi sees, since RAM disks cannot grow."""
    half = int(run("blockdev", "--getsz", "/dev/ram0")) // 2
    names = [f"grown{number}" for number in range(2)]
    for number, name in enumerate(names):
        run("dmsetup", "create", name, "--table", f"0 {half} linear /dev/ram{number} 0")
    run("dmsetup", "mknodes")
    volume.legs = [f"/dev/mapper/{name}" for name in names]
    mount = Path("/run/mount")
    mount.mkdir(exist_ok=True)
    try:
        volume.create("16MiB")
        volume.start("--device", "--ledger", "/run")
        run("mkfs.ext4", "-q", str(DEVICE))
        run("mount", str(DEVICE), str(mount))
        (mount / "file").write_bytes(b"x" * 1_000_000)
        for number, name in enumerate(names):
            run("dmsetup", "reload", name, "--table", f"0 {2 * half} linear /dev/ram{number} 0")
            run("dmsetup", "resume", name)
        assert "has grown from 16MiB to 62MiB" in hemi("grow")
        volume.programs += 1
        volume.wait_attached()
        size = int(run("blockdev", "--getsize64", str(DEVICE)))
        # The kernel's ublk cannot, before 6.16.
        assert size == (62 << 20 if volume.driver == "nbd" else 16 << 20)
        if volume.driver == "nbd":
            run("resize2fs", str(DEVICE))
            (mount / "large").write_bytes(bytes(40 << 20))
        assert (mount / "file").read_bytes() == b"x" * 1_000_000
        run("umount", str(mount))
        run("fsck.ext4", "-fn", str(DEVICE))
        wait_until("the legs are whole", lambda: "healthy" in hemi("status").splitlines()[0])
        assert hemi("scrub").strip() == "all legs of vol are alike"
        assert messages() == []
    finally:
        if volume.server is not None:
            volume.kill()
        run("umount", str(mount), expect=None)
        for name in names:
            run("dmsetup", "remove", "--retry", name, expect=None)
