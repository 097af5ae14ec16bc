"""Disks with data as legs: adopted in place, with the metadata at the end or elsewhere."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hemi_harness import HEMI, Nbdkit, Sandbox, Volume, run
from hemi_harness.hemi import (
    GIB,
    MIB,
    check_message,
    data_offset,
    hemi,
    hemi_fails,
    leg_bytes,
)
from hemi_harness.journal import Journal
from hemi_harness.mounts import FuseDisk
from hemi_harness.sandbox import Arg, run_any, run_fails

SIZE = 64 * MIB


def tree(sandbox: Sandbox, files: int = 4) -> dict[str, str]:
    """Creates a directory `tree` with files. Returns their hashes by name."""
    folder = sandbox.path("tree")
    folder.mkdir()
    hashes = {}
    for number in range(files):
        content = os.urandom(MIB + 4096 * number + number)
        (folder / f"file{number}").write_bytes(content)
        hashes[f"file{number}"] = hashlib.sha256(content).hexdigest()
    return hashes


def ext4(sandbox: Sandbox, disk: Path, kib: int | None = None) -> dict[str, str]:
    """Makes ext4 with files on all or part of a disk. Returns the files' hashes."""
    hashes = tree(sandbox)
    size = [] if kib is None else [f"{kib}K"]
    # A regular file is never truncated to the file system's size.
    small = ("-J", "size=4")
    run("mke2fs", "-q", "-F", "-t", "ext4", *small, "-d", sandbox.dir / "tree", disk, *size)
    return hashes


def check_files(sandbox: Sandbox, image: str | Path, hashes: dict[str, str]) -> None:
    """Fails unless an ext4 image is sound and its files have their content."""
    code, printed, error = run_any("e2fsck", "-f", "-n", image)
    assert code == 0, printed + error
    for name, expected in hashes.items():
        copy = sandbox.path("copy")
        run("debugfs", "-R", f"dump /{name} {copy}", image)
        assert hashlib.sha256(copy.read_bytes()).hexdigest() == expected, f"{name} on {image}"
        copy.unlink()


def fingerprint(path: Path) -> tuple[int, str]:
    """Returns size and hash of a file without its holes."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    with path.open("rb") as file:
        at = 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            while at < end:
                piece = os.pread(file.fileno(), min(MIB, end - at), at)
                # Data of zeros counts as a hole.
                if piece.strip(b"\0"):
                    digest.update(at.to_bytes(8, "little") + piece)
                at += len(piece)
    return size, digest.hexdigest()


class TestExistingData:
    @pytest.mark.long
    def test_a_large_disk_becomes_a_volume_and_stays_a_disk(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 100 * GIB)
        hashes = ext4(sandbox, disk)
        new = sandbox.path("new.img")
        create: list[Arg] = ["create", "--adopt", disk, "--leg", new, "--name", "home"]
        printed = hemi_fails(*create, says=[disk, "ext4", "resize2fs"])
        # Follow its advice word by word.
        found = re.search(r"Make room: (.*)", printed)
        assert found, printed
        for command in found[1].replace("e2fsck -f", "e2fsck -f -y").split(" && "):
            run(*shlex.split(command))
        before = fingerprint(disk)
        volume = Volume(sandbox, [f"end:{disk}", new])
        said = hemi(*create)
        assert "mounts without hemi" in said and f"hemi serve --leg end:{disk}" in said, said
        size = 100 * GIB - data_offset(100 * GIB)
        assert fingerprint(disk)[0] == before[0]
        check_files(sandbox, disk, hashes)

        volume.start()
        fuse = FuseDisk(sandbox, volume.socket)
        check_files(sandbox, fuse.file, hashes)
        added = os.urandom(3 * MIB + 5)
        extra = sandbox.path("extra")
        extra.write_bytes(added)
        run("debugfs", "-w", "-R", f"write {extra} extra", fuse.file)
        hashes["extra"] = hashlib.sha256(added).hexdigest()
        fuse.close()
        volume.wait_converged()
        volume.stop()

        # Both are disks without hemi, at their offsets.
        check_files(sandbox, disk, hashes)
        check_files(sandbox, f"{new}?offset={data_offset(size)}", hashes)
        point = sandbox.mount(sandbox.loop(disk))
        assert (point / "extra").read_bytes() == added

    def test_a_file_system_that_leaves_room_is_adopted_at_once(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 80 * MIB + 5 * 4096)
        hashes = ext4(sandbox, disk, 64 * 1024)
        printed = hemi("create", "--adopt", disk, "--leg", sandbox.path("new.img"), "--name", "x")
        # The end is the size rounded down to a mebibyte.
        assert f"bytes {78 * MIB} to {80 * MIB - 1} of {disk}" in printed, printed
        check_files(sandbox, disk, hashes)

    def test_metadata_elsewhere_leaves_all_of_the_disk(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 64 * MIB)
        hashes = ext4(sandbox, disk)
        before = disk.read_bytes()
        meta, new = sandbox.path("disk.meta"), sandbox.path("new.img")
        create: list[Arg] = [
            "create",
            "--adopt",
            disk,
            "--metadata",
            meta,
            "--leg",
            new,
            "--name",
            "x",
        ]
        said = hemi(*create)
        assert disk.read_bytes() == before
        leg = f"external:{disk},metadata={meta}"
        assert leg in said
        volume = Volume(sandbox, [leg, new])
        volume.start()
        with volume.client() as client:
            assert client.size() == 64 * MIB
        volume.wait_converged()
        volume.stop()
        assert disk.read_bytes() == before
        check_files(sandbox, f"{new}?offset={data_offset(64 * MIB)}", hashes)
        # The metadata is no leg by itself, and belongs to one.
        hemi_fails("inspect", meta, says=[leg])
        Volume(sandbox, [meta, new]).start_fails(leg)
        Volume(sandbox, [disk, new]).start_fails(leg)
        other = sandbox.path("other.img")
        again: list[Arg] = ["create", "--size", MIB, "--leg", other, "--leg", meta]
        hemi_fails(*again, says=[meta, "metadata of a hemi leg"])
        hemi_fails("create", "--adopt", meta, "--leg", other, says=["metadata of a hemi leg"])
        assert f"of {meta}" in hemi("inspect", leg)

    def test_xfs_cannot_shrink_and_is_told_the_other_way(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 320 * MIB)
        run("mkfs.xfs", "-q", disk)
        new = sandbox.path("new.img")
        create: list[Arg] = ["create", "--adopt", disk, "--leg", new]
        hemi_fails(*create, says=["XFS cannot shrink", "--metadata"])
        hemi(*create, "--metadata", sandbox.path("meta"))
        run("xfs_repair", "-n", disk)

    def test_swap_and_other_sizes_are_read(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 64 * MIB)
        run("mkswap", "-q", disk)
        create: list[Arg] = ["create", "--adopt", disk, "--leg", sandbox.path("new.img")]
        hemi_fails(*create, says=["swap", "--metadata"])
        with disk.open("r+b") as file:
            file.truncate(70 * MIB)
        hemi(*create)

    def test_a_volume_smaller_than_its_content_is_refused(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 80 * MIB)
        ext4(sandbox, disk, 64 * 1024)
        create: list[Arg] = [
            "create",
            "--adopt",
            disk,
            "--leg",
            sandbox.path("new.img"),
            "--size",
            "32M",
        ]
        hemi_fails(*create, says=["64MiB", "32MiB", "--size"])
        hemi_fails(*create, "--metadata", sandbox.path("meta"), says=["32MiB", "--size"])


def blank(sandbox: Sandbox, disk: Path) -> None:
    """Leaves a disk empty."""


def of_ones(sandbox: Sandbox, disk: Path) -> None:
    disk.write_bytes(b"\xff" * (80 * MIB))


def partitions(label: str) -> Callable[[Sandbox, Path], None]:
    def make(sandbox: Sandbox, disk: Path) -> None:
        done = subprocess.run(
            ["sfdisk", "-q", str(disk)], input=f"label: {label}\n,16M\n,16M\n".encode()
        )
        assert done.returncode == 0

    return make


def cut_off(sandbox: Sandbox, disk: Path) -> None:
    with disk.open("r+b") as file:
        file.truncate(96 * MIB)
    ext4(sandbox, disk)
    with disk.open("r+b") as file:
        file.truncate(80 * MIB)


def luks(sandbox: Sandbox, disk: Path) -> None:
    with disk.open("r+b") as file:
        file.write(b"LUKS\xba\xbe\0\x02")


def leg(sandbox: Sandbox, disk: Path) -> None:
    hemi("create", "--size", SIZE, "--leg", disk, "--leg", sandbox.path("x.img"), "--name", "db")


def leg_at_the_end(sandbox: Sandbox, disk: Path) -> None:
    ext4(sandbox, disk, 64 * 1024)
    hemi("create", "--adopt", disk, "--leg", sandbox.path("x.img"), "--name", "db")


def also_of_md(sandbox: Sandbox, disk: Path) -> None:
    """Makes a member of an md mirror, with a superblock of version 0.90 in the last 64 KiB."""
    ext4(sandbox, disk, 64 * 1024)
    with disk.open("r+b") as file:
        file.seek(disk.stat().st_size - 64 * 1024)
        file.write(struct.pack("<3I", 0xA92B4EFC, 0, 90))


# The content of the disk, and parts of the refusal.
REFUSED: list[tuple[Callable[[Sandbox, Path], None], list[str]]] = [
    (blank, ["nothing on it is known", "--metadata", "--leg end:"]),
    (of_ones, ["nothing on it is known", "--metadata"]),
    (partitions("dos"), ["partition table (dos)", "--metadata", "partitions by itself"]),
    (partitions("gpt"), ["partition table (", "--metadata", "partitions by itself"]),
    (cut_off, ["100663296 bytes", "only 83886080"]),
    (luks, ["LUKS", "--metadata"]),
    (also_of_md, ["besides an ext2", "linux_raid_member", "wipefs", "--metadata"]),
    (leg, ["leg 0", '"db"']),
    (leg_at_the_end, ["leg 0", '"db"', "hemi serve --leg end:", "dd if=/dev/zero"]),
]


class TestRefusals:
    @pytest.mark.parametrize(("make", "says"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
    def test_nothing_is_changed(
        self, sandbox: Sandbox, make: Callable[[Sandbox, Path], None], says: list[str]
    ) -> None:
        disk = sandbox.file("disk.img", 80 * MIB)
        make(sandbox, disk)
        before = fingerprint(disk)
        new = sandbox.path("new.img")
        printed = hemi_fails("create", "--adopt", disk, "--leg", new, says=[disk, *says])
        assert "--wipe" not in printed or make is leg, printed
        assert fingerprint(disk) == before
        assert not new.exists()

    def test_a_leg_at_the_end_can_be_forgotten_as_it_says(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 80 * MIB)
        hashes = ext4(sandbox, disk, 64 * 1024)
        create: list[Arg] = ["create", "--adopt", disk, "--leg"]
        hemi(*create, sandbox.path("a.img"))
        printed = hemi_fails(*create, sandbox.path("b.img"), says=["dd if"])
        found = re.search(r"try again: (dd .*)", printed)
        assert found, printed
        run(*shlex.split(found[1]))
        hemi(*create, sandbox.path("b.img"))
        check_files(sandbox, disk, hashes)

    def test_what_is_mounted_or_read_only_is_refused(self, sandbox: Sandbox) -> None:
        backing = sandbox.file("disk.img", 80 * MIB)
        ext4(sandbox, backing, 64 * 1024)
        new = sandbox.path("new.img")
        locked = sandbox.loop(backing, "--read-only")
        before = fingerprint(backing)
        hemi_fails("create", "--adopt", locked, "--leg", new, says=[locked, "read-only"])
        run("losetup", "--detach", locked)
        device = sandbox.loop(backing)
        point = sandbox.mount(device)
        hemi_fails("create", "--adopt", device, "--leg", new, says=[device, "mounted", point])
        meta = sandbox.path("meta")
        create: list[Arg] = ["create", "--adopt", device, "--metadata", meta, "--leg", new]
        hemi_fails(*create, says=[device, "mounted"])
        run("umount", point)
        assert not new.exists() and not meta.exists()
        assert fingerprint(backing)[0] == before[0]

    def test_bad_command_lines(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 80 * MIB)
        ext4(sandbox, disk, 64 * 1024)
        before = fingerprint(disk)
        new = sandbox.path("new.img")
        create: list[Arg] = ["create", "--adopt", disk, "--leg", new]
        refused: list[tuple[list[Arg], list[str]]] = [
            (["--wipe", disk], ["--wipe", "--adopt"]),
            (["--wipe", f"end:{disk}"], ["--wipe", "--adopt"]),
            (["--zero"], ["--zero", "--adopt"]),
            (["--leg", disk], ["same file"]),
            (["--metadata", disk], ["same file"]),
            (["--metadata", "/nowhere/meta"], ["/nowhere"]),
            (["--size", "1G"], ["more"]),
            (["--size", "many"], ["max"]),
        ]
        for options, says in refused:
            hemi_fails(*create, *options, says=says)
        used = sandbox.file("used", 4 * MIB)
        run("mkswap", "-q", used)
        hemi_fails(*create, "--metadata", used, says=[used, "swap", "--wipe"])
        short = sandbox.file("short", MIB)
        hemi_fails(*create, "--metadata", short, says=[short, "no room"])
        hemi_fails(*create, "--metadata", short, "--size", "70M", says=[short, "bytes more"])
        missing = sandbox.path("missing")
        hemi_fails("create", "--adopt", missing, "--leg", new, says=[missing, "nothing"])
        hemi_fails("create", "--adopt", sandbox.dir, "--leg", new, says=["directory"])
        hemi_fails("create", "--metadata", new, "--size", "1G", "--leg", new, says=["--adopt"])
        hemi_fails("create", "--leg", new, "--leg", disk, says=["--size"])
        assert fingerprint(disk) == before
        assert not new.exists()

    def test_a_disk_that_changed_its_size_says_so(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 80 * MIB)
        ext4(sandbox, disk, 64 * 1024)
        new = sandbox.path("new.img")
        hemi("create", "--adopt", disk, "--leg", new)
        volume = Volume(sandbox, [f"end:{disk}", new])
        for size in (96 * MIB, 72 * MIB):
            grown = sandbox.path("copy.img")
            run("cp", "--sparse=always", disk, grown)
            with grown.open("r+b") as file:
                file.truncate(size)
            Volume(sandbox, [f"end:{grown}", new]).start_fails("changed size", "leg replace")
            assert "no hemi superblock" in run_fails(HEMI, "inspect", f"end:{grown}")[1]
        # Less than a mebibyte makes no difference.
        with disk.open("r+b") as file:
            file.truncate(80 * MIB + 4096)
        volume.start()
        volume.stop()
        tiny = sandbox.file("tiny.img", MIB)
        Volume(sandbox, [f"end:{tiny}", new]).start_fails("too few")

    def test_a_path_alone_names_the_right_spec(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 80 * MIB)
        ext4(sandbox, disk, 64 * 1024)
        new = sandbox.path("new.img")
        hemi("create", "--adopt", disk, "--leg", new, "--name", "home")
        spec = f"end:{disk}"
        hemi_fails("inspect", disk, says=[spec, '"home"'])
        hemi_fails("promote", disk, says=[spec])
        Volume(sandbox, [disk, new]).start_fails(spec)
        config = sandbox.path("hemi.toml")
        config.write_text(f'legs = ["{disk}", "{new}"]\n')
        hemi_fails("config", "check", "--probe", config, says=[spec])
        config.write_text(f'legs = ["{spec}", "{new}"]\n')
        hemi("config", "check", "--probe", config)
        shown = hemi("inspect", spec, new)
        assert "at byte 0" in shown and f"last seen as {spec}" in shown, shown
        volume = Volume(sandbox, [spec, new])
        volume.start()
        volume.wait_converged()
        volume.command("leg", "detach", 0)
        _, printed = run_fails(HEMI, "leg", "attach", disk, "--control", volume.control)
        check_message(printed, [spec])
        volume.command("leg", "attach", spec, "--wipe")
        volume.wait_converged()


class TestLegsOfThisKind:
    """Every operation of a leg, on legs whose data begins at byte 0."""

    def legs(self, sandbox: Sandbox) -> list[str]:
        """Returns a leg with metadata at its end, one with it elsewhere, and a usual one."""
        size = leg_bytes(SIZE)
        paths = [sandbox.file(f"leg{i}.img", size) for i in range(3)]
        meta = sandbox.path("meta")
        return [f"end:{paths[0]}", f"external:{paths[1]},metadata={meta}", str(paths[2])]

    def identical(self, legs: list[str]) -> None:
        contents = []
        for spec in legs:
            path = spec.split(",")[0].split(":")[-1]
            with Path(path).open("rb") as file:
                file.seek(data_offset(SIZE) if path == spec else 0)
                contents.append(file.read(SIZE))
        assert all(content == contents[0] for content in contents)

    def test_writes_survive_a_kill(self, sandbox: Sandbox) -> None:
        legs = self.legs(sandbox)
        volume = Volume(sandbox, list(legs))
        volume.create(SIZE)
        volume.start()
        journal = Journal(volume.uri, blocks=2048)
        assert not journal.run(100_000, at={2000: volume.kill})
        volume.start()
        journal.settle()
        with volume.client() as client:
            client.trim(32 * MIB, 4 * MIB)
            client.zero(40 * MIB, 4 * MIB + 4096)
            client.flush()
            assert client.read(40 * MIB, MIB) == bytes(MIB)
        journal.disconnect()
        volume.command("scrub")
        volume.wait_converged()
        volume.stop()
        self.identical(legs)

    def test_legs_come_and_go(self, sandbox: Sandbox) -> None:
        legs = self.legs(sandbox)
        volume = Volume(sandbox, [legs[2], sandbox.file("second.img", leg_bytes(SIZE))])
        volume.create(SIZE)
        volume.start()
        journal = Journal(volume.uri, blocks=1024)
        assert journal.run(500)
        volume.command("leg", "add", legs[0])
        volume.wait_converged()
        volume.command("leg", "detach", 1)
        volume.command("leg", "replace", 1, legs[1])
        assert journal.run(500)
        volume.wait_converged()
        volume.command("leg", "detach", 2)
        volume.command("leg", "attach", legs[0], "--wipe")
        volume.wait_converged()
        journal.disconnect()
        volume.stop()
        self.identical(legs)
        # One of them alone, by the operator's decision.
        hemi("promote", legs[0], "--accept-loss")
        volume.legs = [legs[0]]
        volume.start()
        journal.verify()
        journal.disconnect()
        volume.stop()
        hemi("settle", "--leg", legs[0])

    def test_files_are_made_for_them(self, sandbox: Sandbox) -> None:
        legs = [f"end:{sandbox.path('a')}"]
        legs.append(f"external:{sandbox.path('b')},metadata={sandbox.path('c')}")
        volume = Volume(sandbox, list(legs))
        volume.create(SIZE)
        volume.start()
        with volume.client() as client:
            client.write(SIZE - 4096, b"e" * 4096)
        volume.wait_converged()
        volume.stop()
        self.identical(legs)

    def test_a_disk_with_4k_sectors(self, sandbox: Sandbox) -> None:
        device = sandbox.loop(sandbox.file("disk.img", leg_bytes(SIZE)), "--sector-size", 4096)
        volume = Volume(sandbox, [f"end:{device}", sandbox.path("b.img")])
        volume.create(SIZE)
        volume.start()
        journal = Journal(volume.uri, blocks=1024)
        assert journal.run(500)
        journal.verify()
        journal.disconnect()

    def test_metadata_of_another_leg_is_noticed(self, sandbox: Sandbox) -> None:
        legs = self.legs(sandbox)
        volume = Volume(sandbox, [legs[1], legs[2]])
        volume.create(SIZE)
        data, meta = legs[1].removeprefix("external:").split(",metadata=")
        small = sandbox.file("small.img", 16 * MIB)
        Volume(sandbox, [f"external:{small},metadata={meta}", legs[2]]).start_fails("truncated")
        none = sandbox.file("none", 4 * MIB)
        wrong = f"external:{data},metadata={none}"
        Volume(sandbox, [wrong, legs[2]]).start_fails(none, "does not hold")
        with Path(meta).open("r+b") as file:
            file.seek(20)
            file.write(b"x")
        volume.start_fails(meta, "damaged")

    def test_an_older_leg_at_the_end_does_not_come_back(self, sandbox: Sandbox) -> None:
        disk = sandbox.file("disk.img", 80 * MIB + 512 * 1024)
        other = sandbox.path("other.img")
        hemi("create", "--size", SIZE, "--leg", f"end:{disk}", "--leg", other, "--name", "old")
        again: list[Arg] = [
            "create",
            "--size",
            SIZE,
            "--leg",
            disk,
            "--leg",
            sandbox.path("third.img"),
        ]
        hemi_fails(*again, says=[disk, '"old"', "metadata at the end"])
        device = sandbox.loop(disk)
        again[again.index(disk)] = device
        hemi(*again, "--wipe", device)
        hemi_fails("inspect", f"end:{device}", says=["no leg"])


class TestLargestSize:
    def test_max_is_what_the_smallest_leg_holds(self, sandbox: Sandbox) -> None:
        small = sandbox.file("small.img", 100 * MIB + 4096 + 512)
        large = sandbox.loop(sandbox.file("large.img", 200 * MIB))
        printed = hemi("create", "--size", "max", "--leg", large, "--leg", small, "--json")
        size = int(re.search(r'"size_bytes": (\d+)', printed)[1])  # type: ignore[index]
        assert size == 98 * MIB + 4096
        # One more block has no room.
        legs: list[Arg] = ["--leg", large, "--leg", small, "--wipe", large, "--wipe", small]
        hemi_fails("create", "--size", size + 4096, *legs, says=[small, "more"])
        hemi("create", "--size", size, *legs)

    def test_max_of_a_stripe(self, sandbox: Sandbox) -> None:
        members = [sandbox.file(f"m{i}.img", 41 * MIB + 5000 * i) for i in range(2)]
        stripe = f"stripe:{members[0]},{members[1]},chunk=64K"
        large = sandbox.file("large.img", GIB)
        volume = Volume(sandbox, [stripe, large])
        printed = hemi("create", "--size", "max", *volume.leg_options(), "--json")
        assert f'"size_bytes": {78 * MIB}' in printed, printed
        volume.start()
        with volume.client() as client:
            client.write(78 * MIB - 4096, b"e" * 4096)

    def test_max_of_an_export_is_asked_of_its_server(self, sandbox: Sandbox) -> None:
        server = Nbdkit(sandbox, sandbox.file("remote.img", 70 * MIB))
        local = sandbox.file("local.img", 90 * MIB)
        printed = hemi("create", "--size", "max", "--leg", local, "--leg", server.uri, "--json")
        assert f'"size_bytes": {68 * MIB}' in printed, printed
        # An export shows the signature too.
        assert "LABEL=HEMI_" in run("blkid", "-p", "-o", "export", sandbox.dir / "remote.img")

    def test_max_needs_legs_that_are_there(self, sandbox: Sandbox) -> None:
        there, missing = sandbox.file("there.img", GIB), sandbox.path("missing.img")
        create: list[Arg] = ["create", "--size", "max", "--leg", there, "--leg", missing]
        hemi_fails(*create, says=[missing, "truncate"])
        tiny = sandbox.loop(sandbox.file("tiny.img", 2 * MIB))
        hemi_fails("create", "--size", "max", "--leg", there, "--leg", tiny, says=[tiny, "2 MiB"])
        assert not missing.exists()


class TestSignature:
    """Programs that do not know hemi see a label."""

    def test_a_leg_does_not_look_blank(self, sandbox: Sandbox) -> None:
        device = sandbox.loop(sandbox.file("a.img", 512 * MIB))
        members = [sandbox.file(f"m{i}.img", 80 * MIB) for i in range(2)]
        stripe = f"stripe:{members[0]},{members[1]}"
        hemi("create", "--size", SIZE, "--leg", device, "--leg", stripe, "--name", "db-1")
        for path in (device, *members):
            shown = run("blkid", "-p", "-o", "export", path)
            assert "TYPE=iso9660" in shown and "LABEL=HEMI_DB_1" in shown, shown
            assert "iso9660" in run("wipefs", path)
        assert "already contains" in " ".join(run_fails("mkfs.xfs", device)[1].split()) or (
            "existing filesystem" in run_fails("mkfs.xfs", device)[1]
        )
        # hemi names the leg instead of its signature.
        create: list[Arg] = [
            "create",
            "--size",
            SIZE,
            "--leg",
            sandbox.path("b.img"),
            "--leg",
            device,
        ]
        printed = hemi_fails(*create, says=[device, '"db-1"'])
        assert "iso9660" not in printed, printed

    def test_what_is_left_without_a_superblock_is_not_empty(self, sandbox: Sandbox) -> None:
        one, two = sandbox.file("a.img", leg_bytes(SIZE)), sandbox.file("b.img", leg_bytes(SIZE))
        hemi("create", "--size", SIZE, "--leg", one, "--leg", two, "--name", "db")
        with one.open("r+b") as file:
            file.write(bytes(4096))
            file.seek(64 * 1024)
            file.write(bytes(4096))
        create: list[Arg] = ["create", "--size", SIZE, "--leg", one, "--leg", sandbox.path("c.img")]
        hemi_fails(*create, says=[one, "iso9660", "HEMI_DB", "--wipe"])
        hemi(*create, "--wipe", one, "--name", "new")
        assert "LABEL=HEMI_NEW" in run("blkid", "-p", "-o", "export", one)

    def test_a_leg_that_joins_has_one_and_an_adopted_one_has_not(self, sandbox: Sandbox) -> None:
        volume = Volume.on_files(sandbox, SIZE, create=("--name", "db"))
        new, end = sandbox.path("new.img"), sandbox.path("end.img")
        volume.command("leg", "add", new)
        volume.command("leg", "add", f"end:{end}")
        volume.wait_converged()
        assert "LABEL=HEMI_DB" in run("blkid", "-p", "-o", "export", new)
        assert "iso9660" not in run_any("blkid", "-p", "-o", "export", end)[1]
        volume.stop()

    def test_it_is_a_file_system_with_a_file(self, sandbox: Sandbox) -> None:
        if run_any("which", "bsdtar")[0] != 0:
            pytest.skip("bsdtar is not installed")
        one = sandbox.path("a.img")
        hemi("create", "--size", SIZE, "--leg", one, "--leg", sandbox.path("b.img"), "--name", "db")
        assert run("bsdtar", "-tf", one).split() == [".", "README.TXT"]
        text = run("bsdtar", "-xOf", one, "README.TXT")
        assert 'the hemi volume "db"' in text and "hemi(1)" in text, text
