"""The `hemi` binary under test: its commands, and a served volume that can be killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .client import Client
from .sandbox import (
    COMMAND_PATIENCE,
    PATIENCE,
    Arg,
    Process,
    Sandbox,
    answers,
    run,
    run_any,
    run_fails,
    wait_until,
)

MIB = 1 << 20
GIB = 1 << 30

HEMI = Path(
    os.environ.get(
        "HEMI",
        Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[3] / "target"))
        / "debug"
        / "hemi",
    )
)


# hemi's message while the I/O of a killed one has not ended, and the longest time for that.
LOCKED = "is in use by another hemi"
LOCK_LIMIT = 120.0


class CommandFailed(AssertionError):
    """`hemi serve` ended although it was expected to serve."""


def hemi(*argv: Arg, timeout: float = COMMAND_PATIENCE) -> str:
    """Runs a hemi command that must succeed. Returns its standard output."""
    return run(HEMI, *argv, timeout=timeout)


def hemi_fails(*argv: Arg, says: Sequence[str | Path] = (), timeout: float = PATIENCE) -> str:
    """Runs a hemi command that must be refused. Returns its output.

    The message must contain every string of `says`, in any case."""
    _, printed = run_fails(HEMI, *argv, timeout=timeout)
    check_message(printed, says)
    return printed


def check_message(printed: str, says: Sequence[str | Path]) -> None:
    """Fails unless a message contains these strings, and is no crash."""
    low = printed.lower()
    for crash in ("panicked at", "rust_backtrace", "stack backtrace"):
        assert crash not in low, f"a crash, not a message:\n{printed}"
    missing = [str(s) for s in says if str(s).lower() not in low]
    assert not missing, f"the message lacks {missing}:\n{printed}"


class Volume:
    """A volume on some legs, created, served, killed, stopped and served again.

    `legs` are arguments of `--leg`: paths, `stripe:…`, NBD URIs. They may be changed between a stop
    and a start.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        legs: Sequence[str | Path],
        *,
        options: Sequence[Arg] = (),
        inject: bool = False,
        env: Mapping[str, str] | None = None,
        quarantine: str | None = None,
    ) -> None:
        """Takes the legs' `quarantine`, for which all of them must be remote."""
        self.sandbox = sandbox
        self.legs: list[str | Path] = list(legs)
        self.socket = sandbox.path("vol.sock")
        self.control = sandbox.path("vol.ctl")
        self.options: list[Arg] = list(options)
        if inject:
            self.options.append("--allow-inject")
        self.env = env
        # Command that runs `hemi serve`, such as `unshare …`.
        self.prefix: list[Arg] = []
        self._quarantine = quarantine
        self._config: Path | None = None
        self._process: Process | None = None
        self._killed = False

    def serve_with(self, config: Path) -> None:
        """Serves from a configuration file instead of flags."""
        self._config = config

    @staticmethod
    def on_files(
        sandbox: Sandbox,
        size: int,
        *,
        legs: int = 2,
        options: Sequence[Arg] = (),
        inject: bool = False,
        start: bool = True,
        create: Sequence[Arg] = (),
    ) -> Volume:
        """Creates a volume on sparse files with additional room for the metadata."""
        paths: list[str | Path] = [
            sandbox.file(f"leg{i}.img", leg_bytes(size)) for i in range(legs)
        ]
        volume = Volume(sandbox, paths, options=options, inject=inject)
        volume.create(size, *create)
        if start:
            volume.start()
        return volume

    @property
    def uri(self) -> str:
        return f"nbd+unix:///?socket={self.socket}"

    @property
    def process(self) -> Process:
        assert self._process is not None, "the volume has not been started"
        return self._process

    def leg_options(self, legs: Sequence[str | Path] | None = None) -> list[Arg]:
        return [a for leg in (legs or self.legs) for a in ("--leg", leg)]

    def create(self, size: int, *options: Arg) -> str:
        return hemi("create", "--size", size, *self.leg_options(), *options)

    def serve_argv(self) -> list[Arg]:
        hemi = [*self.prefix, HEMI]
        if self._config:
            return [*hemi, "serve", self._config, *self.options]
        if self._quarantine:
            return [*hemi, "serve", self._quarantined(), *self.options]
        return [
            *hemi,
            "serve",
            *self.leg_options(),
            "--nbd",
            f"unix:{self.socket}",
            "--control",
            self.control,
            *self.options,
        ]

    def _quarantined(self) -> Path:
        """Returns a configuration with the legs' quarantine, for which there is no flag."""
        path = self.sandbox.path("hemi.toml")
        # A JSON string is a TOML string.
        legs = [
            f"{{ path = {json.dumps(str(leg))}, quarantine = {json.dumps(self._quarantine)} }}"
            for leg in self.legs
        ]
        path.write_text(
            f"control = {json.dumps(str(self.control))}\n"
            f"legs = [{', '.join(legs)}]\n"
            f"exports = [{{ nbd = {json.dumps(f'unix:{self.socket}')} }}]\n"
        )
        return path

    def start(self, timeout: float = PATIENCE) -> None:
        """Serves, and waits until NBD and control answer.

        The legs stay locked until the last I/O of a killed hemi has ended.
        """
        deadline = time.monotonic() + LOCK_LIMIT
        while True:
            self.launch()
            try:
                self.wait_serving(timeout)
                break
            except CommandFailed as error:
                is_locked = self._killed and LOCKED in str(error)
                if not is_locked or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._killed = False

    def launch(self) -> None:
        """Serves without waiting for anything."""
        assert self._process is None or not self._process.running, "already serving"
        self._process = self.sandbox.start(*self.serve_argv(), name="hemi", env=self.env)

    def wait_serving(self, timeout: float = PATIENCE) -> None:
        """Waits until NBD and control answer, and hemi listens on every export."""
        process = self.process

        def ready() -> bool:
            if not process.running:
                raise CommandFailed(
                    f"`{' '.join(process.argv)}` ended with {process.returncode}:\n"
                    f"{process.output()}"
                )
            return answers(self.socket) and self._tells_status()

        wait_until("hemi serves", ready, timeout)

    def _tells_status(self) -> bool:
        """Returns true if control answers a request.

        By then hemi listens on every export. The first export may accept connections before the
        others do."""
        try:
            self.status()
        except AssertionError:
            return False
        return True

    def start_fails(self, *says: str | Path, timeout: float = PATIENCE) -> str:
        """Serves, which must be refused with a message that contains every string of `says`."""
        process = self.sandbox.start(*self.serve_argv(), name="hemi-refused", env=self.env)
        code = process.wait(timeout)
        assert code > 0, f"exited {code}, expected a refusal:\n{process.output()}"
        check_message(process.output(), says)
        return process.output()

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._killed = True
        self.process.kill()

    def stop(self, timeout: float = PATIENCE) -> None:
        """Sends SIGTERM: hemi drains, closes clean and exits 0."""
        code = self.process.terminate(timeout)
        assert code == 0, f"hemi serve exited {code} after SIGTERM:\n{self.process.output()}"

    def signal(self, number: signal.Signals) -> None:
        self.process.signal(number)

    def restart(self) -> None:
        self.stop()
        self.start()

    def client(self, **options: Any) -> Client:
        return Client(self.uri, **options)

    def command(self, *argv: Arg, timeout: float = COMMAND_PATIENCE) -> str:
        """Runs a hemi command on this volume's control socket."""
        return hemi(*argv, "--control", self.control, timeout=timeout)

    def curl(self, path: str, *options: str) -> tuple[int, str]:
        """Asks the control API with curl. Returns the answer's code and body."""
        out = run(
            "curl",
            "--silent",
            "--max-time",
            str(PATIENCE),
            "--unix-socket",
            self.control,
            "--write-out",
            "\n%{http_code}",
            *options,
            f"http://hemi{path}",
        )
        body, _, code = out.rpartition("\n")
        return int(code), body

    def status(self) -> dict[str, Any]:
        """Returns the control API's status.

        `hemi status` gives up after ten seconds, which is short on a busy machine, and is another
        process."""
        api = _Control(self.control)
        try:
            api.request("GET", "/v1/status", headers={"Host": "hemi"})
            answer = api.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise AssertionError(f"no status from {self.control}: {error!r}") from error
        finally:
            api.close()
        assert answer.status == 200, f"status {answer.status}: {body!r}"
        status: dict[str, Any] = json.loads(body)
        return status

    def shown(self) -> str:
        """Returns the output of `hemi status`, once hemi has the time to answer."""
        text = ""

        def answered() -> bool:
            nonlocal text
            code, out, err = run_any(HEMI, "status", "--control", self.control)
            text = out
            assert code == 0 or "did not answer within" in err, err
            return code == 0

        wait_until("hemi answers", answered)
        return text

    def leg_state(self, leg: int) -> str:
        """Returns the state of the leg in a slot, or `absent` if the slot is empty."""
        for entry in self.status()["legs"]:
            if entry["leg"] == leg:
                return str(entry["state"])
        return "absent"

    def wait_converged(self, timeout: float = COMMAND_PATIENCE) -> None:
        """Waits until hemi knows that all legs are whole and identical."""

        def converged() -> bool:
            self.process.check_running()
            return self.status()["converged"] is True

        wait_until("the legs converge", converged, timeout)

    def wait_leg_state(self, leg: int, *states: str, timeout: float = PATIENCE) -> None:
        wait_until(
            f"leg {leg} is {' or '.join(states)}",
            lambda: self.leg_state(leg) in states,
            timeout,
        )

    def inject(self, leg: int, *what: Arg) -> None:
        """Injects a fault, as in `inject(0, "--freeze", "2s")`."""
        self.command("inject", "--leg", leg, *what)


class _Control(http.client.HTTPConnection):
    """HTTP over a control socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("hemi", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(self._path))


def leg_bytes(volume_bytes: int) -> int:
    """Returns the size of a leg with room for the volume and its metadata."""
    return volume_bytes + 16 * MIB + volume_bytes // 1024


def data_offset(volume_bytes: int, region_bytes: int | None = None) -> int:
    """Returns the offset of a leg's data area, computed from docs/design/disk-format.md."""
    if region_bytes is None:
        region_bytes = MIB
        while -(-volume_bytes // region_bytes) > 262_144 and region_bytes < GIB:
            region_bytes *= 2
    regions = -(-volume_bytes // region_bytes)
    pages = -(-regions // 1736)
    return -(-(MIB + 8192 * pages) // MIB) * MIB


def data_area(leg: Path, volume_bytes: int) -> bytes:
    """Returns a leg file's copy of the volume."""
    with leg.open("rb") as f:
        f.seek(data_offset(volume_bytes))
        data = f.read(volume_bytes)
    assert len(data) == volume_bytes, f"{leg} is shorter than the volume"
    return data


def assert_identical(legs: Sequence[str | Path], volume_bytes: int) -> None:
    """Fails unless all leg files hold the same data area."""
    first = data_area(Path(legs[0]), volume_bytes)
    for leg in legs[1:]:
        other = data_area(Path(leg), volume_bytes)
        if other != first:
            at = next(
                i for i in range(0, volume_bytes, 512) if first[i : i + 512] != other[i : i + 512]
            )
            raise AssertionError(f"{legs[0]} and {leg} differ at byte {at} of the volume")
