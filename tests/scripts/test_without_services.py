"""scripts/without_services.sh: packages are installed, and services that come along stay off."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A package with a service, as debhelper makes them.
POSTINST = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
if deb-systemd-helper --quiet was-enabled {name}.service; then
  deb-systemd-helper enable {name}.service
else
  deb-systemd-helper update-state {name}.service
fi
update-rc.d {name} defaults
if [ -n "$2" ]; then action=restart; else action=start; fi
invoke-rc.d {name} $action
"""
INIT = """#!/bin/sh
### BEGIN INIT INFO
# Provides: {name}
# Required-Start:
# Required-Stop:
# Default-Start: 2 3 4 5
# Default-Stop: 0 1 6
# Short-Description: {name}
### END INIT INFO
echo "$1 {version}" >>/did-{name}
"""
UNIT = """[Service]
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
"""
# Runs a script in a copy-on-write root on this machine's, of which nothing remains.
IN_COPY = """
mount -t tmpfs none "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" none "$0/root"
for directory in proc dev; do mount --rbind /$directory "$0/root/$directory"; done
mkdir "$0/root/given"
mount --bind "$1" "$0/root/given"
mount --bind "$2" "$0/root/mnt"
exec chroot "$0/root" bash -euc "$3"
"""


def make_package(folder: Path, name: str, version: int) -> None:
    tree = folder / f"{name}-{version}"
    files = {
        "DEBIAN/control": f"Package: {name}\nVersion: {version}\nArchitecture: all\n"
        "Maintainer: nobody <nobody@packages.invalid>\nDescription: a service\n",
        "DEBIAN/postinst": POSTINST.format(name=name),
        f"etc/init.d/{name}": INIT.format(name=name, version=version),
        f"lib/systemd/system/{name}.service": UNIT,
    }
    for path, text in files.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    subprocess.run(
        ["dpkg-deb", "-Znone", "--build", tree, folder / f"{name}-{version}.deb"],
        check=True,
        capture_output=True,
    )


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    folder.mkdir()
    for name, version in (("hemi-old", 1), ("hemi-old", 2), ("hemi-new", 1)):
        make_package(folder, name, version)
    return folder


def in_copy(tmp_path: Path, packages: Path, script: str) -> str:
    """Returns the output of a script in a copy-on-write root, with the packages in /given and the
    sources in /mnt."""
    if os.geteuid() != 0 or not Path("/usr/bin/deb-systemd-helper").exists():
        pytest.skip("needs root on a Debian system")
    place = tmp_path / "copy"
    place.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-euc", IN_COPY, place, packages, ROOT, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    if "overlay" in done.stdout and "mount:" in done.stdout:
        pytest.skip(f"no overlay here: {done.stdout}")
    assert done.returncode == 0, done.stdout
    return done.stdout


# A machine in runlevel 2, without packages. `show` prints the number of a service's links, of
# systemd and of runlevels, and what its script was told.
MACHINE = """
rm -f /usr/sbin/policy-rc.d /sbin/runlevel
printf '#!/bin/sh\\necho N 2\\n' >/sbin/runlevel
chmod +x /sbin/runlevel
mkdir -p /db/info /db/updates
touch /db/status
install() { dpkg --admindir=/db -i "$@"; }
without() { /mnt/scripts/without_services.sh dpkg --admindir=/db -i "$@" 2>&1; }
show() {
  echo "$1: $(find /etc/systemd/system -name "$1.service" | wc -l)" \\
    "$(find /etc/rc[2345].d -name "S*$1" | wc -l) $([ -e /did-$1 ] && paste -sd, /did-$1)"
}
trace() { find /usr/sbin -name 'policy-rc.d*' -printf 'trace %f\\n'; echo traced; }
"""
OFF = "0 0 "
ON = "1 4 start 1"


def test_a_new_service_is_neither_started_nor_enabled(tmp_path: Path, packages: Path) -> None:
    script = """without /given/hemi-new-1.deb; show hemi-new; trace
install /given/hemi-old-1.deb; show hemi-old
without /given/hemi-old-2.deb; show hemi-old
without /given/none.deb || echo failed $?; trace"""
    said = in_copy(tmp_path, packages, MACHINE + script)
    assert "stay off (systemctl enable --now NAME): hemi-new\n" in said
    assert f"hemi-new: {OFF}\ntraced\n" in said, said
    # The same by itself starts it, and one that was there before is upgraded as ever.
    assert f"hemi-old: {ON}\n" in said and f"hemi-old: {ON},restart 2\n" in said, said
    assert "failed 2\ntraced\n" in said, said


def test_an_upgrade_later_leaves_it_off(tmp_path: Path, packages: Path) -> None:
    script = "without /given/hemi-old-1.deb; install /given/hemi-old-2.deb; show hemi-old"
    assert f"hemi-old: {OFF}" in in_copy(tmp_path, packages, MACHINE + script)


def test_the_administrators_policy_is_asked_and_put_back(tmp_path: Path, packages: Path) -> None:
    script = """install /given/hemi-old-1.deb
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
cp /usr/sbin/policy-rc.d /kept
without /given/hemi-old-2.deb; show hemi-old; cmp /kept /usr/sbin/policy-rc.d; trace"""
    said = in_copy(tmp_path, packages, MACHINE + script)
    assert f"hemi-old: {ON}\ntrace policy-rc.d\ntraced\n" in said, said


def test_a_killed_setup_has_no_effect_on_what_comes_after(tmp_path: Path, packages: Path) -> None:
    script = """/mnt/scripts/without_services.sh sleep 30 &
until [ -s /usr/sbin/policy-rc.d ]; do sleep 0.1; done
kill -KILL $! $(pgrep -P $!); wait $! || true
install /given/hemi-old-1.deb; show hemi-old
without /given/hemi-new-1.deb; show hemi-new; trace"""
    said = in_copy(tmp_path, packages, MACHINE + script)
    assert f"hemi-old: {ON}\n" in said and f"hemi-new: {OFF}\ntraced\n" in said, said
