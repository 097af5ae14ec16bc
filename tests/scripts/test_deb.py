"""The Debian package in a clean root: installed, used, upgraded under a served volume, removed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
HEMI = Path(os.environ.get("HEMI", TARGET / "debug" / "hemi")).resolve()
#: The package's dependencies and programs tested with it.
PACKAGES = ("procps", "man-db", "bash-completion", "systemd", "udev", "fio")
IN_ROOT = 'for d in proc dev; do mount --rbind /$d "$0/$d"; done; exec chroot "$0" "$@"'
FILES = (
    "usr/bin/hemi",
    "usr/lib/systemd/system/hemi@.service",
    "usr/lib/systemd/system/hemi-settle@.service",
    "usr/lib/systemd/system/hemi-scrub@.service",
    "usr/lib/systemd/system/hemi-scrub@.timer",
    "usr/lib/systemd/system/hemi-monitor.service",
    "usr/lib/systemd/system/hemi-exporter.service",
    "usr/lib/udev/rules.d/64-hemi.rules",
    "usr/lib/tmpfiles.d/hemi.conf",
    "usr/share/man/man1/hemi.1.gz",
    "usr/share/man/man5/hemi.toml.5.gz",
    "usr/share/bash-completion/completions/hemi",
    "usr/share/zsh/vendor-completions/_hemi",
    "usr/share/fish/vendor_completions.d/hemi.fish",
    "usr/share/doc/hemi/copyright",
    "usr/share/doc/hemi/libraries.gz",
    "usr/share/doc/hemi/changelog.gz",
    "usr/share/doc/hemi/changelog.Debian.gz",
    "usr/share/doc/hemi/docs/mounting.md",
    "usr/share/doc/hemi/packaging/device.conf",
    "etc/default/hemi",
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not HEMI.exists(), reason=f"{HEMI} has not been built"),
    pytest.mark.skipif(shutil.which("dpkg-shlibdeps") is None, reason="needs Debian's dpkg-dev"),
]


def build(directory: Path, revision: int) -> Path:
    made = {
        "BINARY": str(HEMI),
        "SOURCE_DATE_EPOCH": "1790000000",
        "DEB_REVISION": str(revision),
        "DEB_COMPRESSION": "gzip",
        "CARGO_TARGET_DIR": str(directory),
    }
    done = subprocess.run(
        ["make", "deb"],
        cwd=ROOT,
        env={**os.environ, **made},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [package] = (directory / "deb").glob(f"hemi_*-{revision}_*.deb")
    return package


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("build"), 1)


def mirror() -> str:
    """Returns the mirror of this machine's own packages."""
    files = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    text = "\n".join(file.read_text() for file in files if file.is_file())
    found = re.search(r"https?://\S+/debian/?(?=\s)", text)
    if found is None:
        pytest.skip("this machine has no sources of Debian's packages")
    return found[0]


def codename() -> str:
    text = Path("/etc/os-release").read_text()
    found = re.search(r'^VERSION_CODENAME="?(\w+)"?$', text, re.MULTILINE)
    if found is None:
        pytest.skip("this machine does not say which version of Debian it is")
    return found[1]


class System:
    """A Debian root of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def command(self, *command: str) -> list[str]:
        return ["unshare", "--mount", "sh", "-euc", IN_ROOT, str(self.root), *command]

    def run(self, *command: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*command),
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "MANPAGER": "cat"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )

    def must(self, *command: str, seconds: float = 120) -> str:
        done = self.run(*command, seconds=seconds)
        assert done.returncode == 0, f"{command}: {done.stdout}"
        return done.stdout

    def install(self, package: Path) -> str:
        shutil.copy(package, self.root / "hemi.deb")
        return self.must("dpkg", "-i", "/hemi.deb")

    def path(self, name: str) -> Path:
        return self.root / name


@pytest.fixture(scope="module")
def system(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Yields the root with the package."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("needs root and debootstrap")
    root = tmp_path_factory.mktemp("debian")
    names = ",".join(PACKAGES)
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={names}", codename(), root, mirror()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"debootstrap failed: {done.stdout[-500:]}")
    system = System(root)
    system.install(package)
    yield system
    shutil.rmtree(root, ignore_errors=True)


def test_the_same_program_makes_the_same_package(package: Path, tmp_path: Path) -> None:
    assert build(tmp_path, 1).read_bytes() == package.read_bytes()


def test_lintian_has_no_complaint(package: Path) -> None:
    if shutil.which("lintian") is None:
        pytest.skip("lintian is not installed")
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on=error,warning", package],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_files_are_in_their_places(system: System) -> None:
    for name in FILES:
        assert system.path(name).is_file(), name
    assert system.must("dpkg", "--verify", "hemi") == ""
    listed = system.must("dpkg", "--listfiles", "hemi").split()
    assert not [name for name in listed if name.startswith(("/usr/local", "/opt", "/run"))]


def test_the_program_is_stripped(system: System) -> None:
    said = subprocess.run(
        ["readelf", "--sections", system.path("usr/bin/hemi")], capture_output=True, text=True
    )
    assert ".debug_line" not in said.stdout and ".text" in said.stdout


def test_systemd_verifies_the_units(system: System) -> None:
    of_volume = ("hemi@db.service", "hemi-settle@db.service", "hemi-scrub@db.timer")
    units = (*of_volume, "hemi-monitor.service", "hemi-exporter.service")
    said = system.run("systemd-analyze", "verify", "--man=yes", *units).stdout
    newer = ("RestartSteps", "RestartMaxDelaySec", "SurviveFinalKillSignal")
    lines = [line for line in said.splitlines() if "hemi" in line]
    assert [line for line in lines if not any(key in line for key in newer)] == []


def test_man_shows_the_pages(system: System) -> None:
    assert "serve a volume" in system.must("man", "hemi-serve")
    assert "buffer_budget" in system.must("man", "5", "hemi.toml")
    system.must("mandb", "--quiet")
    assert "compare all legs" in system.must("whatis", "hemi-scrub")


def test_bash_completes(system: System) -> None:
    script = (
        "source /usr/share/bash-completion/bash_completion; _completion_loader hemi;"
        ' COMP_WORDS=(hemi se); COMP_CWORD=1; _hemi hemi se hemi; echo "$COMPREPLY"'
    )
    assert system.must("bash", "-c", script).strip() == "serve"


def test_the_demonstration_runs(system: System) -> None:
    said = system.must(
        "hemi", "demo", "--seconds", "5", "--inject", "--dir", "/var/tmp", seconds=500
    )
    assert "verified" in said, said
    assert not list(system.path("var/lib").glob("hemi/*")), "nothing outlives its volumes"


class Served:
    """A volume that is served in the root."""

    def __init__(self, system: System) -> None:
        self.system = system
        legs = ("--leg", "/srv/a.img", "--leg", "/srv/b.img")
        system.must("hemi", "create", "--size", "64M", "--name", "db", *legs)
        with (system.root / "log").open("w") as log:
            self.process = subprocess.Popen(system.command("hemi", "serve", *legs), stderr=log)
        deadline = time.monotonic() + 60
        while system.run("hemi", "status").returncode != 0:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.2)

    def log(self) -> str:
        return (self.system.root / "log").read_text()

    def program(self) -> str:
        return str(Path(f"/proc/{self.process.pid}/exe").readlink())


@pytest.fixture
def served(system: System) -> Iterator[Served]:
    served = Served(system)
    yield served
    served.process.terminate()
    served.process.wait(60)


def test_an_upgrade_of_the_package_keeps_volumes_served(
    system: System, served: Served, tmp_path: Path
) -> None:
    assert "(deleted)" not in served.program()
    said = system.install(build(tmp_path, 2))
    # The earlier program goes on, from a deleted file.
    assert "volume db is still served by" in said and "systemctl restart hemi@db" in said, said
    assert served.process.poll() is None and "(deleted)" in served.program()
    system.must("hemi", "status")
    default = system.path("etc/default/hemi")
    default.write_text(default.read_text().replace("=no", "=yes"))
    said = system.install(build(tmp_path, 3))
    assert "went on for hemi" in said, said
    assert served.process.poll() is None and "(deleted)" not in served.program()
    served.process.terminate()
    assert served.process.wait(60) == 0, served.log()


def test_a_removal_and_a_purge_leave_the_volumes(system: System) -> None:
    configuration = system.path("etc/hemi/db.toml")
    configuration.write_text('legs = ["/srv/a.img", "/srv/b.img"]\n')
    legs = {name: system.path(f"srv/{name}.img").read_bytes() for name in "ab"}
    system.must("dpkg", "--remove", "hemi")
    assert not system.path("usr/bin/hemi").exists() and system.path("etc/default/hemi").exists()
    wanted = system.path("etc/systemd/system/multi-user.target.wants")
    wanted.mkdir(exist_ok=True, parents=True)
    units = {"hemi@db": "hemi@", "hemi-monitor": "hemi-monitor", "hemi-exporter": "hemi-exporter"}
    for link, unit in units.items():
        (wanted / f"{link}.service").symlink_to(f"/usr/lib/systemd/system/{unit}.service")
    system.must("dpkg", "--purge", "hemi")
    assert not system.path("etc/default/hemi").exists()
    assert not any((wanted / f"{link}.service").is_symlink() for link in units)
    assert not system.path("usr/share/doc/hemi").exists()
    assert configuration.exists()
    for name, content in legs.items():
        assert system.path(f"srv/{name}.img").read_bytes() == content
