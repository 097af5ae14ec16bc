"""The host's systemd boots in a user-mode kernel, with a volume's units, rules and /etc/fstab line.

The guest has two drives, files of the host. Its /etc has the files that docs/mounting.md says to
copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hemi_harness import HEMI, Sandbox, Volume, hemi
from hemi_harness.hemi import MIB
from hemi_harness.sandbox import run
from hemi_harness.user_mode import kernel_arguments

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PACKAGING = ROOT / "packaging"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
KERNELS = [directory / "kernel/linux" for directory in (TARGET, ROOT / "target")]
SYSTEMD = Path("/lib/systemd/systemd")
#: More than a boot and a shutdown take on a machine that stalls, in seconds.
PATIENCE = 240
SIZE = 128 * MIB
#: Offset of a leg's data.
OFFSET = 2 * MIB

#: The guest's commands once it is up, after those of the test.
CHECK = """
systemctl show -p ActiveState,ExecMainStatus,StatusText,NRestarts hemi@db
findmnt -n -o SOURCE,FSTYPE /srv/db
journalctl -b --no-pager -o cat -u hemi@db
systemctl --no-block poweroff
"""
#: Waits until every leg is whole.
WHOLE = """timeout 60 sh -c "until /hemi/hemi status --json --volume db | grep -q 'converged.*true'
do sleep 0.2; done"
"""
CHECK_UNIT = """
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /results/check.sh
StandardOutput=file:/results/check.log
StandardError=inherit
"""


def kernel() -> Path:
    for path in KERNELS:
        if path.exists():
            return path
    pytest.skip("no user-mode kernel has been built (make kernel-test)")


@pytest.fixture(autouse=True)
def able() -> None:
    kernel()
    if os.geteuid() != 0:
        pytest.skip("needs root, for a file system that belongs to root")
    for program in (SYSTEMD, *map(shutil.which, ("udevadm", "mkfs.ext4", "nbdcopy"))):
        if program is None or not Path(program).exists():
            pytest.skip("needs systemd, udev, mkfs.ext4 and nbdcopy")


@dataclass
class Machine:
    """Two drives with a volume `db` that holds an ext4, and an /etc that mounts it."""

    sandbox: Sandbox
    config: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        work = self.sandbox.dir
        self.drives = [self.sandbox.file(f"drive{i}.img", SIZE + 32 * MIB) for i in range(2)]
        volume = Volume(self.sandbox, list(self.drives))
        volume.create(SIZE, "--name", "db")
        volume.start()
        image = self.sandbox.file("fs.img", SIZE)
        run("mkfs.ext4", "-q", image)
        run("nbdcopy", image, volume.uri)
        volume.wait_converged()
        volume.stop()
        image.unlink()
        (work / "results").mkdir()
        self.etc = work / "etc"
        self._write_etc()

    def _write_etc(self) -> None:
        units = self.etc / "systemd/system"
        for name in ("hemi@db.service.d", "multi-user.target.wants"):
            (units / name).mkdir(parents=True)
        for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache"):
            shutil.copy(f"/etc/{name}", self.etc)
        (self.etc / "machine-id").touch()
        (self.etc / "hostname").write_text("guest\n")
        for path in PACKAGING.glob("*.service"):
            # Without a network, or a unit that would start it.
            text = path.read_text().replace("Wants=network-online.target", "Wants=")
            (units / path.name).write_text(text.replace("/usr/bin/hemi", "/hemi/hemi"))
        rules = self.etc / "udev/rules.d/64-hemi.rules"
        rules.parent.mkdir(parents=True)
        text = (PACKAGING / rules.name).read_text()
        rules.write_text(text.replace("/usr/bin/hemi", "/hemi/hemi"))
        (units / "check.service").write_text(CHECK_UNIT)
        wants = units / "multi-user.target.wants"
        (wants / "hemi@db.service").symlink_to("../hemi@.service")
        (wants / "check.service").symlink_to("../check.service")
        (wants / "remote-fs.target").symlink_to("/lib/systemd/system/remote-fs.target")
        self.drop_in("device.conf")
        (self.etc / "fstab").write_text(shown("/etc/fstab"))
        (self.etc / "hemi").mkdir()
        self.configure()

    def drop_in(self, name: str) -> None:
        text = (PACKAGING / name).read_text().replace("/usr/bin/hemi", "/hemi/hemi")
        (self.etc / "systemd/system/hemi@db.service.d" / name).write_text(text)

    def configure(self, **options: str) -> None:
        """Writes the configuration of the page, with some options changed."""
        lines = dict(line.split(" = ", 1) for line in shown("/etc/hemi/db.toml").splitlines())
        lines.update(options)
        text = "".join(f"{key} = {value}\n" for key, value in lines.items())
        (self.etc / "hemi/db.toml").write_text(text)

    def boot(self, asked: str = "", drives: list[Path] | None = None) -> str:
        """Boots, runs the commands once everything is up, and shuts down. Returns their output."""
        results = self.sandbox.dir / "results"
        (results / "check.log").unlink(missing_ok=True)
        (results / "check.sh").write_text(asked + CHECK)
        named = self.drives if drives is None else drives
        console = self.sandbox.path("console.log")
        with console.open("wb") as out:
            done = subprocess.run(
                [
                    str(kernel()),
                    *kernel_arguments("1G"),
                    *(f"ubd{letter}={path}" for letter, path in zip("bcd", named, strict=False)),
                    f"init={HERE / 'boot_init.sh'}",
                    f"WORK={self.sandbox.dir}",
                    f"HEMI_DIR={HEMI.resolve().parent}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=PATIENCE,
                check=False,
            )
        text = console.read_text(errors="replace")
        log = results / "check.log"
        assert log.exists() and done.returncode == 0, text[-4000:]
        assert "reboot: Power down" in text, text[-4000:]
        return log.read_text(errors="replace")

    def closed(self) -> list[bool]:
        """Returns for each drive true if the volume was closed, as far as the drive knows."""
        text = hemi("inspect", *self.drives)
        return [state == "closed" for state in re.findall(r"^  state +(\w+)", text, re.M)]


def shown(path: str) -> str:
    """Returns a file that docs/mounting.md shows, without the line that names it."""
    page = (ROOT / "docs/mounting.md").read_text()
    (text,) = re.findall(rf"```\w*\n# {re.escape(path)}\n(.*?)```", page, re.S)
    return str(text)


@pytest.mark.long
def test_a_volume_is_mounted_at_boot_and_closed_at_shutdown(sandbox: Sandbox) -> None:
    machine = Machine(sandbox)
    said = machine.boot("echo one >>/srv/db/boots; udevadm info /dev/ubdb /dev/hemi/db")
    assert "ActiveState=active\n" in said
    assert "/dev/ublkb0 ext4" in said
    for part in ("ID_FS_TYPE=hemi_leg", "UDISKS_IGNORE=1", "DEVLINKS=/dev/hemi/db"):
        assert part in said, f"no {part} in\n{said}"
    assert machine.closed() == [True, True]
    # The drives have changed places.
    said = machine.boot("cat /srv/db/boots", drives=machine.drives[::-1])
    assert said.startswith("one\n"), said
    assert machine.closed() == [True, True]


@pytest.mark.long
def test_a_missing_disk_fails_the_mount_and_not_the_boot(sandbox: Sandbox) -> None:
    machine = Machine(sandbox)
    fstab = machine.etc / "fstab"
    fstab.write_text(fstab.read_text().replace("device-timeout=10min", "device-timeout=40s"))
    # hemi extends the time that systemd allows.
    limit = machine.etc / "systemd/system/hemi@db.service.d/limit.conf"
    limit.write_text("[Service]\nTimeoutStartSec=10s\n")
    machine.configure(wait_for_legs='"20s"')
    said = machine.boot(drives=machine.drives[:1])
    for part in ("ActiveState=failed", "ExecMainStatus=3", "NRestarts=0", "waiting for absent"):
        assert part in said, f"no {part} in\n{said}"
    assert "leg 1 (last seen as" in said and "hemi promote" in said
    assert "/dev/ublkb0 ext4" not in said
    # The operator has permitted giving it up.
    machine.configure(wait_for_legs='"5s"', start_degraded="true")
    said = machine.boot("echo alone >/srv/db/alone", drives=machine.drives[:1])
    for part in ("ActiveState=active", "missing legs are given up", "/dev/ublkb0 ext4"):
        assert part in said, f"no {part} in\n{said}"
    # With both again, the other is drained to.
    said = machine.boot(f"cat /srv/db/alone; {WHOLE}")
    assert said.startswith("alone\n"), said
    assert machine.closed() == [True, True]


@pytest.mark.long
def test_what_is_unmounted_last_is_served_to_the_end(sandbox: Sandbox) -> None:
    machine = Machine(sandbox)
    machine.drop_in("root.conf")
    # Nothing unmounts it before the very end of a shutdown.
    (machine.etc / "fstab").write_text("")
    units = machine.etc / "systemd/system"
    (units / "srv-db.mount").write_text(
        "[Unit]\nDefaultDependencies=no\nRequires=hemi@db.service\nAfter=hemi@db.service\n"
        "Before=multi-user.target\n[Mount]\nWhat=/dev/hemi/db\nWhere=/srv/db\nType=ext4\n"
    )
    (units / "multi-user.target.wants/srv-db.mount").symlink_to("../srv-db.mount")
    (units / "hemi-settle@db.service").symlink_to("/dev/null")
    said = machine.boot("dd if=/dev/urandom of=/srv/db/late bs=1M count=20; ls /srv/db")
    assert "late" in said and "/dev/ublkb0 ext4" in said
    assert machine.closed() == [False, False], "it was served to the end"
    # The file system was unmounted, not cut off.
    for drive in machine.drives:
        header = run("dumpe2fs", "-h", f"{drive}?offset={OFFSET}")
        assert "needs_recovery" not in header and re.search(r"state: +clean\n", header), header
    said = machine.boot("stat -c %s /srv/db/late")
    assert said.startswith(f"{20 * MIB}\n"), said


@pytest.mark.long
def test_a_server_that_ends_is_started_again_under_the_mount(sandbox: Sandbox) -> None:
    machine = Machine(sandbox)
    said = machine.boot(
        """
        for way in "kill -s KILL hemi@db" "restart hemi@db"; do
            echo before >/srv/db/file
            timeout 60 systemctl $way || echo "failed: $way"
            echo after >/srv/db/file
            timeout 30 sync /srv/db/file && echo written
            timeout 30 sh -c 'until systemctl -q is-active hemi@db; do sleep 0.2; done'
        done
        journalctl -b --no-pager -o cat -u srv-db.mount
        """
    )
    assert said.count("written\n") == 2, said
    assert "failed" not in said and "Unmounting" not in said, said
    assert machine.closed() == [True, True]


@pytest.mark.long
def test_an_adopted_disk_is_marked_and_what_is_on_it_stays_visible(sandbox: Sandbox) -> None:
    machine = Machine(sandbox)
    disk = sandbox.file("adopted.img", SIZE)
    run("mkfs.ext4", "-q", "-F", "-L", "home", disk, "64M")
    other = sandbox.path("other.img")
    hemi("create", "--adopt", disk, "--leg", other, "--name", "home")
    said = machine.boot("udevadm info /dev/ubdd", drives=[*machine.drives, disk])
    for part in (
        "ID_FS_TYPE=ext4",
        "ID_FS_LABEL=home",
        "HEMI_ADOPTED=home",
        "UDISKS_AUTO=0",
        "L: -100",
    ):
        assert part in said, f"no {part} in\n{said}"
    assert "UDISKS_IGNORE" not in said.partition("ActiveState")[0], said
