"""A hemi volume on new files, served by a process that does not outlive the lab."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from hemi_lab import tool
from hemi_lab.drivers.simulated import INSTALL
from hemi_lab.errors import LabError, ToolError

METADATA_BYTES = 8 << 20
"""Room on a leg for metadata, besides the volume. hemi needs 2 MiB for small volumes."""

_MEMORY = "/dev/shm"
_START_SECONDS = 60.0
_CONVERGE_SECONDS = 600.0
_STOP_SECONDS = 60.0
_ASK_SECONDS = 0.05


class ServedVolume:
    """A volume from `hemi create` and `hemi serve` on new files. `remove` deletes all of it."""

    def __init__(
        self,
        size: int,
        delays: list[float],
        policy: str,
        direct: bool,
        settings: dict[str, str | int | float | bool],
        folders: list[str | None],
    ) -> None:
        """Takes a delay and a parent directory for each leg. A parent of `None` is the system's
        temporary directory."""
        self._hemi = tool.find("hemi", "HEMI", INSTALL)
        self._delays = delays
        made: dict[str | None, Path] = {}
        for folder in folders:
            try:
                made[folder] = made.get(folder) or Path(
                    tempfile.mkdtemp(prefix="hemi-lab-volume-", dir=folder)
                )
            except OSError as error:
                raise LabError(
                    f"folder = {folder}: {error.strerror}", "Name one that is there."
                ) from error
        self._folders = list(made.values())
        # In another directory, since the path of a unix socket is limited to 107 bytes.
        self._sockets = Path(tempfile.mkdtemp(prefix="hemi-lab-"))
        self.control = self._sockets / "volume.sock"
        self._socket = self._sockets / "volume.nbd"
        self.uri = f"nbd+unix:///?socket={self._socket}"
        legs = [made[folder] / f"leg{number}.img" for number, folder in enumerate(folders)]
        named = [part for leg in legs for part in ("--leg", str(leg))]
        cached = [] if direct else ["--no-direct"]
        self._create = [self._hemi, "create", "--size", str(size), "--reserve", *named, *cached]
        self._serve = [self._hemi, "serve", *named, *cached, "--nbd", f"unix:{self._socket}"]
        self._serve += ["--control", str(self.control), "--policy", policy, "--allow-inject"]
        self._ledger = None if "ledger" in settings else _folder_in_memory()
        if self._ledger:
            self._serve += ["--ledger", str(self._ledger)]
        # A history would outlive the volume.
        if "state" not in settings:
            self._serve += ["--set", "state=none"]
        # Debts left at the end are deleted with the files.
        self._serve += ["--drain-on-stop", "0s"]
        for key, value in settings.items():
            text = json.dumps(value) if isinstance(value, bool) else str(value)
            self._serve += ["--set", f"{key}={text}"]
        self._process: subprocess.Popen[str] | None = None

    def shown(self) -> str:
        """Returns the commands that repeat it."""
        lines = [self._create, self._serve]
        lines += [
            [*self._inject(number), "--delay", _duration(delay)]
            for number, delay in enumerate(self._delays)
            if delay
        ]
        return " && ".join(shlex.join(line) for line in lines)

    def start(self) -> None:
        """Creates and serves it, waits until its legs are identical, and injects the legs'
        delays."""
        tool.run(self._create)
        log = (self._sockets / "serve.log").open("w")
        command = self._serve
        setpriv = shutil.which("setpriv")
        if setpriv:
            # The kernel ends it if the lab is killed.
            command = [setpriv, "--pdeathsig", "TERM", *command]
        with log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._wait("phase", _START_SECONDS, lambda status: status["phase"] == "serving")
        self._wait("legs alike", _CONVERGE_SECONDS, lambda status: bool(status["converged"]))
        for number, delay in enumerate(self._delays):
            if delay:
                tool.run([*self._inject(number), "--delay", _duration(delay)])

    def stop(self) -> None:
        """Stops it. Raises if it does not end in order."""
        code = self._stop()
        if code:
            text = (self._sockets / "serve.log").read_text()[-4000:]
            raise ToolError(self._serve, text, code=code)

    def remove(self) -> None:
        """Stops it and removes its files. Ignores failures to remove them."""
        self._stop()
        for folder in (*self._folders, self._sockets, self._ledger):
            if folder:
                shutil.rmtree(folder, ignore_errors=True)

    def _stop(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                process.kill()
                process.wait()
        return process.returncode

    def _inject(self, leg: int) -> list[str]:
        return [self._hemi, "inject", "--control", str(self.control), "--leg", str(leg)]

    def _wait(self, what: str, seconds: float, ready: Any) -> None:
        until = time.monotonic() + seconds
        said = ""
        while time.monotonic() < until:
            assert self._process is not None
            if self._process.poll() is not None:
                text = (self._sockets / "serve.log").read_text()[-4000:]
                raise ToolError(self._serve, text)
            try:
                command = [self._hemi, "status", "--json", "--control", str(self.control)]
                if ready(json.loads(tool.run(command).output)):
                    return
            except (ToolError, ValueError) as error:
                said = str(error)
            time.sleep(_ASK_SECONDS)
        raise LabError(
            f"the volume is not ready within {seconds:g} s ({what}) {said}", "Try again."
        )


def _folder_in_memory() -> Path | None:
    """Returns a new directory on tmpfs for the ledger. In a container hemi keeps none by itself."""
    mounts = (
        line.split() for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    )
    if not any(mount[1:3] == [_MEMORY, "tmpfs"] for mount in mounts):
        return None
    return Path(tempfile.mkdtemp(prefix="hemi-lab-", dir=_MEMORY))


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:.0f}us"
