"""An export as a block device, through nbdfuse and a loop device, with a file system on it."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import subprocess
from pathlib import Path

from .sandbox import Sandbox, detach_loop, run, unmount, wait_until


class FuseDisk:
    """A loop device over an NBD export."""

    def __init__(self, sandbox: Sandbox, socket: Path) -> None:
        self._sandbox = sandbox
        self.directory = sandbox.path("fuse")
        self.directory.mkdir()
        self.file = self.directory / "disk"
        self._process = sandbox.start("nbdfuse", self.file, "--unix", socket, name="nbdfuse")
        sandbox.defer(self._unmount)
        wait_until("nbdfuse serves the file", self._ready)
        self.device = sandbox.loop(self.file)

    def _ready(self) -> bool:
        self._process.check_running()
        return os.path.ismount(self.directory) and self.file.exists()

    def _unmount(self) -> None:
        if os.path.ismount(self.directory):
            subprocess.run(["fusermount3", "-u", "-z", str(self.directory)], capture_output=True)

    def close(self) -> None:
        """Releases the loop device and the file."""
        detach_loop(self.device, self.file)
        wait_until("the loop device is gone", lambda: not self._attached())
        run("fusermount3", "-u", self.directory)
        self._process.wait()

    def abandon(self) -> None:
        """Gives up a disk whose server has died."""
        detach_loop(self.device, self.file)
        self._unmount()
        self._process.kill()

    def _attached(self) -> bool:
        return Path(f"/sys/block/{self.device.name}/loop").exists()


class FileSystem:
    """ext4 or XFS on a block device."""

    def __init__(self, sandbox: Sandbox, device: Path, kind: str) -> None:
        self._sandbox = sandbox
        self.device = device
        self.kind = kind
        self._point: Path | None = None

    def make(self) -> None:
        options = {"ext4": ["-q", "-F"], "xfs": ["-q", "-f"]}[self.kind]
        run(f"mkfs.{self.kind}", *options, self.device, timeout=300)

    def mount(self) -> Path:
        self._point = self._sandbox.mount(self.device)
        return self._point

    def unmount(self) -> None:
        """Unmounts, and waits until the file system has released the device.

        A mount namespace created meanwhile holds copies of all mounts until it ends.
        """
        assert self._point is not None
        run("umount", self._point)
        wait_until("the device is free", self._is_free, timeout=120)

    def _is_free(self) -> bool:
        try:
            os.close(os.open(self.device, os.O_RDONLY | os.O_EXCL))
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
        return True

    def abandon(self) -> None:
        """Detaches a mount whose device has failed."""
        assert self._point is not None
        unmount(self._point)

    def check(self) -> str:
        """Fails unless the unmounted file system is clean. Repairs nothing."""
        if self.kind == "ext4":
            return run("e2fsck", "-f", "-n", self.device, timeout=300)
        return run("xfs_repair", "-n", self.device, timeout=300)


class FileTree:
    """Files of random content whose checksums are remembered."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self.sums: dict[str, str] = {}

    def write(self, root: Path, files: int, largest: int = 256 << 10) -> None:
        """Writes files, each fsynced, some over earlier ones."""
        for _ in range(files):
            name = f"d{self._random.randrange(8)}/f{self._random.randrange(4 * files)}"
            data = self._random.randbytes(self._random.randrange(1, largest))
            path = root / name
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            self.sums[name] = hashlib.sha256(data).hexdigest()

    def remove(self, root: Path, share: float) -> None:
        for name in sorted(self.sums):
            if self._random.random() < share:
                (root / name).unlink()
                del self.sums[name]

    def check(self, root: Path) -> None:
        """Fails unless exactly these files exist with their content."""
        found = {
            str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in root.rglob("f*")
            if path.is_file()
        }
        changed = {name for name, digest in self.sums.items() if found.get(name) != digest}
        assert (
            not changed
        ), f"{len(changed)} of {len(self.sums)} files differ: {sorted(changed)[:5]}"
        extra = set(found) - set(self.sums)
        assert not extra, f"unexpected files: {sorted(extra)[:5]}"
