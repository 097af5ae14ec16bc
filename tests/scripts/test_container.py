"""The container image, and its profile of system calls."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
HEMI = Path(os.environ.get("HEMI", TARGET / "debug" / "hemi")).resolve()
PROFILE = ROOT / "packaging" / "seccomp.json"
IO_URING = {"io_uring_setup", "io_uring_enter", "io_uring_register"}
#: Podman's profile in Debian's golang-github-containers-common.
PODMAN = Path("/usr/share/containers/seccomp.json")
ALLOW = "SCMP_ACT_ALLOW"
#: Runs a program in another root, with the system calls that a profile allows in a container.
CONFINED = """
import json, os, subprocess, sys
import seccomp
profile, root, *command = sys.argv[1:]
actions = {"SCMP_ACT_ALLOW": seccomp.ALLOW}
profile = json.load(open(profile))
rules = seccomp.SyscallFilter(defaction=seccomp.ERRNO(profile["defaultErrnoRet"]))
for rule in profile["syscalls"]:
    if "caps" in rule.get("includes", {}):
        continue
    action = actions.get(rule["action"]) or seccomp.ERRNO(rule["errnoRet"])
    where = []
    for one in rule.get("args", []):
        compare = getattr(seccomp, one["op"].removeprefix("SCMP_CMP_"))
        values = [one["value"]] + ([one["valueTwo"]] if "valueTwo" in one else [])
        where.append(seccomp.Arg(one["index"], compare, *values))
    for name in rule["names"]:
        if seccomp.resolve_syscall(seccomp.Arch(), name) >= 0:
            rules.add_rule(action, name, *where)
for name in ("proc", "dev"):
    subprocess.run(["mount", "--rbind", "/" + name, f"{root}/{name}"], check=True)
os.chroot(root)
os.chdir("/var/lib/hemi")
rules.load()
os.execve(command[0], command, {"PATH": "/usr/bin"})
"""

pytestmark = pytest.mark.skipif(not HEMI.exists(), reason=f"{HEMI} has not been built")


def build(directory: Path) -> Path:
    out = directory / "hemi.oci.tar"
    subprocess.run(
        [sys.executable, ROOT / "scripts/oci_image.py", HEMI, out],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1790000000"},
        stdout=subprocess.DEVNULL,
        timeout=120,
        check=True,
    )
    return out


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("image"))


class Image:
    """An OCI archive, read as a runtime reads it: each blob by its digest."""

    def __init__(self, archive: Path) -> None:
        with tarfile.open(archive) as tar:
            self._files = {
                member.name: tar.extractfile(member).read()  # type: ignore[union-attr]
                for member in tar.getmembers()
                if member.isfile()
            }

    def json(self, name: str) -> Any:
        return json.loads(self._files[name])

    def blob(self, entry: dict[str, Any]) -> bytes:
        kind, digest = entry["digest"].split(":")
        data = self._files[f"blobs/{kind}/{digest}"]
        assert hashlib.sha256(data).hexdigest() == digest and len(data) == entry["size"]
        return data

    def manifest(self) -> Any:
        return json.loads(self.blob(self.json("index.json")["manifests"][0]))

    def config(self) -> Any:
        return json.loads(self.blob(self.manifest()["config"]))

    def layer(self) -> bytes:
        return gzip.decompress(self.blob(self.manifest()["layers"][0]))


def test_the_image_is_whole_and_the_same_again(archive: Path, tmp_path: Path) -> None:
    image = Image(archive)
    assert image.json("oci-layout") == {"imageLayoutVersion": "1.0.0"}
    diff = "sha256:" + hashlib.sha256(image.layer()).hexdigest()
    assert image.config()["rootfs"]["diff_ids"] == [diff]
    assert image.config()["config"]["Entrypoint"] == ["/usr/bin/hemi"]
    assert image.config()["created"] == "2026-09-21T14:13:20Z"
    assert build(tmp_path).read_bytes() == archive.read_bytes()


def test_skopeo_reads_the_image(archive: Path) -> None:
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        pytest.skip("skopeo is not installed")
    done = subprocess.run(
        [skopeo, "inspect", f"oci-archive:{archive}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["Labels"]["org.opencontainers.image.title"] == "hemi"


def allowed(profile: Path) -> set[str]:
    """Returns the calls that a profile allows a container without additional capabilities."""
    rules = json.loads(profile.read_text())["syscalls"]
    plain = [rule for rule in rules if "caps" not in (rule.get("includes") or {})]
    return {name for rule in plain if rule["action"] == ALLOW for name in rule["names"]}


def test_the_profile_allows_io_uring_and_nothing_else_beyond_the_default() -> None:
    assert allowed(PROFILE) >= IO_URING
    if not PODMAN.exists():
        pytest.skip(f"no {PODMAN} to compare with (golang-github-containers-common)")
    assert allowed(PROFILE) - IO_URING <= allowed(PODMAN)


class Container:
    """The image's files, and commands among them with the profile's system calls only."""

    def __init__(self, archive: Path, root: Path) -> None:
        self.root = root
        with tarfile.open(fileobj=io.BytesIO(Image(archive).layer())) as tar:
            tar.extractall(root)
        for name in ("proc", "dev"):
            (root / name).mkdir()

    def command(self, *arguments: str, profile: Path = PROFILE) -> list[str]:
        python = ["unshare", "--mount", sys.executable, "-c", CONFINED]
        return [*python, str(profile), str(self.root), "/usr/bin/hemi", *arguments]

    def run(self, *arguments: str, profile: Path = PROFILE) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments, profile=profile),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def must(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def container(archive: Path, tmp_path: Path) -> Container:
    if os.geteuid() != 0:
        pytest.skip("needs root, for another root")
    pytest.importorskip("seccomp", reason="needs libseccomp's python3-seccomp")
    return Container(archive, tmp_path / "root")


LEGS = ("--leg", "a.img", "--leg", "b.img")


def test_a_volume_is_served_in_the_image_under_the_profile(container: Container) -> None:
    assert container.must("--version").startswith("hemi ")
    container.must("create", "--size", "64M", *LEGS, "--name", "db")
    address = ("--nbd", "unix:/run/hemi/db.nbd", "--nbd", "tcp:127.0.0.1:0", "--vhost", "vm")
    log = (container.root / "log").open("w")
    server = subprocess.Popen(container.command("serve", *LEGS, *address), stderr=log)
    try:
        deadline = time.monotonic() + 60
        while container.run("status").returncode != 0:
            assert server.poll() is None and time.monotonic() < deadline, said(container)
        assert "alike" in container.must("scrub")
        socket = container.root / "run/hemi/db.nbd"
        size = subprocess.run(
            ["nbdinfo", "--size", f"nbd+unix:///?socket={socket}"], capture_output=True, text=True
        )
        assert size.stdout.strip() == str(64 << 20), size.stderr
        assert "went on" in container.must("upgrade")
        server.terminate()
        assert server.wait(60) == 0, said(container)
    finally:
        server.kill()
        server.wait()
        log.close()
    assert "closed" in container.must("inspect", "a.img")


def said(container: Container) -> str:
    return (container.root / "log").read_text()


def test_without_io_uring_hemi_names_the_profile(container: Container, tmp_path: Path) -> None:
    profile = json.loads(PROFILE.read_text())
    profile["syscalls"] = [one for one in profile["syscalls"] if not IO_URING & {*one["names"]}]
    strict = tmp_path / "strict.json"
    strict.write_text(json.dumps(profile))
    container.must("create", "--size", "64M", *LEGS, "--name", "db")
    done = container.run("serve", *LEGS, profile=strict)
    assert done.returncode == 1 and "seccomp" in done.stderr, done.stderr
