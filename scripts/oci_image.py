#!/usr/bin/env python3
"""Builds a container image with hemi alone, as an OCI archive, without root and without a daemon.

    scripts/oci_image.py BINARY OUT

The image has the program, the libraries that it is linked with, the machine's certificate
authorities, and the directories that it uses. `podman load -i OUT`, `docker load -i OUT` (Docker 25
and later) and `skopeo copy oci-archive:OUT …` take it. The same program, libraries and
SOURCE_DATE_EPOCH make the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
PROGRAM = "/usr/bin/hemi"
#: Directories, with their modes.
DIRECTORIES = {"/etc/hemi": 0o755, "/run/hemi": 0o755, "/var/lib/hemi": 0o755, "/tmp": 0o1777}
ACCOUNTS = {
    "/etc/passwd": b"root:x:0:0:root:/:/usr/sbin/nologin\n",
    "/etc/group": b"root:x:0:\n",
    # Names of NBD legs' servers: files first, then DNS.
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
}
#: OCI's names of architectures are Go's.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def libraries(binary: Path) -> list[Path]:
    """Returns the shared libraries of a program and its loader, as the loader finds them."""
    done = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
    if "not a dynamic executable" in done.stderr + done.stdout:
        return []
    if done.returncode != 0 or "not found" in done.stdout:
        raise SystemExit(f"oci_image: ldd {binary}: {done.stdout}{done.stderr}")
    return sorted(Path(found) for found in re.findall(r"(?:=> |^\s)(/\S+) \(0x", done.stdout, re.M))


class Tar:
    """A tar archive in memory, with nothing in it that differs from build to build."""

    def __init__(self, date: int) -> None:
        self._bytes = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._bytes, mode="w", format=tarfile.GNU_FORMAT)
        self._date = date
        self._made: set[str] = set()

    def _entry(self, path: str, mode: int) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(path.lstrip("/"))
        entry.mode, entry.mtime = mode, self._date
        return entry

    def directory(self, path: str, mode: int = 0o755) -> None:
        if path in ("/", "") or path in self._made:
            return
        self.directory(str(Path(path).parent))
        entry = self._entry(path, mode)
        entry.type = tarfile.DIRTYPE
        self._tar.addfile(entry)
        self._made.add(path)

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        if "/" in path.lstrip("/"):
            self.directory("/" + str(Path(path.lstrip("/")).parent))
        entry = self._entry(path, mode)
        entry.size = len(data)
        self._tar.addfile(entry, io.BytesIO(data))

    def finish(self) -> bytes:
        self._tar.close()
        return self._bytes.getvalue()


def layer(binary: Path, date: int) -> bytes:
    tar = Tar(date)
    for path, mode in DIRECTORIES.items():
        tar.directory(path, mode)
    for path, data in ACCOUNTS.items():
        tar.file(path, data)
    if AUTHORITIES.exists():
        tar.file(str(AUTHORITIES), AUTHORITIES.read_bytes())
    for library in libraries(binary):
        tar.file(str(library), library.read_bytes(), 0o755)
    tar.file(PROGRAM, binary.read_bytes(), 0o755)
    return tar.finish()


class Blobs:
    """The files of the image by their digests."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def add(self, kind: str, data: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        self.files[digest] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(self, kind: str, value: Any) -> dict[str, Any]:
        return self.add(kind, json.dumps(value, sort_keys=True).encode())


def version(binary: Path) -> tuple[str, str | None]:
    """Returns the program's version and its commit, if known."""
    text = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.match(r"hemi (\S+) \((?:commit ([0-9a-f]+)\b)?", text)
    if found is None:
        raise SystemExit(f"oci_image: {binary} is no hemi: --version prints {text!r}")
    return found[1], found[2]


def image(binary: Path, date: int) -> bytes:
    number, commit = version(binary)
    created = datetime.fromtimestamp(date, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "hemi",
        "org.opencontainers.image.version": number,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.created": created,
    }
    if commit is not None:
        labels["org.opencontainers.image.revision"] = commit
    machine = platform.machine()
    blobs = Blobs()
    files = layer(binary, date)
    config = {
        "created": created,
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {
            # The second variable tells hemi that its memory does not outlive it (the ledger).
            "Env": ["PATH=/usr/bin", "container=oci"],
            "Entrypoint": [PROGRAM],
            "Cmd": ["help"],
            # Drains and closes the volume. `--stop-timeout` has to allow enough time.
            "StopSignal": "SIGTERM",
            "WorkingDir": "/",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
        "history": [{"created": created, "created_by": "scripts/oci_image.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.add_json(CONFIG, config),
        "layers": [blobs.add(LAYER, gzip.compress(files, compresslevel=6, mtime=0))],
        "annotations": labels,
    }
    entry = blobs.add_json(MANIFEST, manifest)
    entry["annotations"] = {"org.opencontainers.image.ref.name": number}
    # The name in `podman load` and `docker load`.
    entry["annotations"]["io.containerd.image.name"] = f"localhost/hemi:{number}"
    index = {"schemaVersion": 2, "manifests": [entry]}
    tar = Tar(date)
    tar.file("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    tar.file("index.json", json.dumps(index, sort_keys=True).encode())
    for digest, data in sorted(blobs.files.items()):
        tar.file(f"blobs/sha256/{digest}", data)
    return tar.finish()


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    binary, out = Path(sys.argv[1]), Path(sys.argv[2])
    if not binary.exists():
        raise SystemExit(f"oci_image: there is no {binary}: build it, or name another one")
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    date = int(given) if given else int((ROOT / "CHANGELOG.md").stat().st_mtime)
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = out.with_name(f".{out.name}.unfinished")
    unfinished.write_bytes(image(binary, date))
    unfinished.replace(out)
    print(out)


if __name__ == "__main__":
    main()
