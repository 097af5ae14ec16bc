"""Checks the files in packaging/ with systemd and udev, if installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
RULES = PACKAGING / "64-hemi.rules"
#: Options for newer versions of systemd. Supported older ones ignore them.
NEWER = ("RestartSteps", "RestartMaxDelaySec", "SurviveFinalKillSignal")
DROP_INS = ("device.conf", "root.conf", "drive-health.conf")
HEMI = Path(
    os.environ.get(
        "HEMI",
        Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "hemi",
    )
)


def program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def complaints(units: Path, *names: str) -> list[str]:
    """Returns systemd's complaints about units, except for options that it is too old for."""
    done = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", *(str(units / name) for name in names)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:", "SYSTEMD_LOG_COLOR": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "hemi" in line]
    newer = re.compile(rf"Unknown key (name )?'({'|'.join(NEWER)})' in section")
    return [line for line in lines if not newer.search(line)]


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Returns the units with an existing program in hemi's place."""
    for path in [*PACKAGING.glob("*.service"), *PACKAGING.glob("*.timer")]:
        text = path.read_text().replace("/usr/bin/hemi", "/bin/true")
        (tmp_path / path.name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("drop_ins", [(), DROP_INS[:1], DROP_INS])
def test_systemd_understands_the_units(units: Path, drop_ins: tuple[str, ...]) -> None:
    directory = units / "hemi@.service.d"
    directory.mkdir()
    for name in drop_ins:
        text = (PACKAGING / name).read_text().replace("/usr/bin/hemi", "/bin/true")
        (directory / name).write_text(text)
    others = ("hemi-settle@.service", "hemi-monitor.service", "hemi-exporter.service")
    assert complaints(units, "hemi@.service", *others) == []


@pytest.mark.parametrize("unit", sorted(PACKAGING.glob("*.service")), ids=lambda unit: unit.name)
def test_a_unit_says_nothing_twice(unit: Path) -> None:
    said = [line for line in unit.read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in said if said.count(line) > 1] == []


def test_systemd_understands_the_units_of_scrubs(units: Path) -> None:
    names = ("hemi-scrub@db.service", "hemi-scrub@db.timer", "hemi@db.service")
    assert complaints(units, *names) == []
    timer = units / "hemi-scrub@.timer"
    when = re.findall(r"^OnCalendar=(.*)$", timer.read_text(), re.M)
    assert len(when) == 1
    done = subprocess.run(
        [program("systemd-analyze"), "calendar", "--iterations=12", when[0]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    days = re.findall(r"(?:elapse|Iter(?:\.|ation) #\d+): (\w+) (\d+)-(\d+)-(\d+)", done.stdout)
    assert len({(year, month) for _, year, month, _ in days}) == 12, "once a month"
    assert all(day == "Sun" and int(of_month) <= 7 for day, _, _, of_month in days)


def test_a_mistake_in_a_unit_would_be_seen(units: Path) -> None:
    unit = units / "hemi@.service"
    unit.write_text(unit.read_text().replace("Type=notify", "Type=notified"))
    assert complaints(units, "hemi@.service") != []


def mount_units() -> Iterator[str]:
    for block in re.findall(r"```ini\n(.*?)```", (ROOT / "docs/mounting.md").read_text(), re.S):
        if "[Mount]" in block:
            yield block


def test_the_mount_units_that_are_shown_are_understood(units: Path) -> None:
    shown = list(mount_units())
    assert shown, "docs/mounting.md shows one"
    for block in shown:
        name = block.splitlines()[0].rsplit("/", 1)[1]
        (units / name).write_text(block)
        lines = [line for line in complaints(units, name) if "/dev/hemi" not in line]
        assert lines == [], name


def rule(hemi: Path, directory: Path) -> Path:
    path = directory / RULES.name
    path.write_text(RULES.read_text().replace("/usr/bin/hemi", str(hemi)))
    return path


def test_udev_understands_the_rules(tmp_path: Path) -> None:
    udevadm = program("udevadm")
    if "verify" not in subprocess.run([udevadm, "--help"], capture_output=True, text=True).stdout:
        pytest.skip("udevadm has no verify (before systemd 254)")
    path = rule(Path("/bin/true"), tmp_path)
    done = subprocess.run([udevadm, "verify", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def udev_test(rules: Path, device: str, links: Path | None = None) -> str:
    """Has udev test a device by these rules alone, in mounts of its own. Returns its output."""
    hide = "mount -t tmpfs none /etc/udev && mkdir -p /etc/udev/rules.d /run/udev/rules.d"
    hide += " && mount -t tmpfs none /run/udev && mkdir -p /run/udev/rules.d"
    hide += f" && cp {rules} /run/udev/rules.d/"
    if links is not None:
        hide += f" && mkdir -p /dev/hemi && mount --bind {links} /dev/hemi"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{hide} && {program('udevadm')} test {device} 2>&1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for loop devices and mounts")
def test_udev_marks_a_leg(tmp_path: Path) -> None:
    program("udevadm")
    if not HEMI.exists():
        pytest.skip(f"{HEMI} has not been built")
    legs = [tmp_path / f"leg{i}.img" for i in range(2)]
    for leg in legs:
        with leg.open("wb") as file:
            file.truncate(48 << 20)
    named = [part for leg in legs for part in ("--leg", str(leg))]
    subprocess.run([HEMI, "create", "--size", "32M", "--name", "db", *named], check=True)
    loop = subprocess.run(
        ["losetup", "--find", "--show", str(legs[0])], capture_output=True, text=True, check=False
    )
    if loop.returncode != 0:
        pytest.skip(f"no loop device: {loop.stderr}")
    device = loop.stdout.strip()
    try:
        said = udev_test(rule(HEMI, tmp_path), f"/sys/class/block/{Path(device).name}")
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)
    bad = [line for line in said.splitlines() if RULES.name in line and "nvalid" in line]
    assert bad == [], said
    for line in ("ID_FS_TYPE=hemi_leg", "ID_FS_USAGE=raid", "ID_FS_LABEL=db", "UDISKS_IGNORE=1"):
        assert line in said, f"no {line} in\n{said}"
