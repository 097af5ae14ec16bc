"""The exporter: the metrics of all volumes of a machine, whatever state each is in."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from hemi_harness import HEMI, Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB, hemi_fails
from hemi_harness.sandbox import PATIENCE, Process, free_port, run_any

SIZE = 32 * MIB
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Machine:
    """A run directory with volumes, and an exporter of their metrics."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.run = sandbox.path("run") / "hemi"
        self.run.mkdir(parents=True)
        self.port = free_port()
        self.process: Process | None = None

    def export(self) -> None:
        env = {"XDG_RUNTIME_DIR": str(self.run.parent)}
        argv = (HEMI, "exporter", "--http", f"127.0.0.1:{self.port}")
        self.process = self.sandbox.start(*argv, name="exporter", env=env)
        wait_until("the exporter listens", self.listens)

    def listens(self) -> bool:
        assert self.process is not None
        self.process.check_running()
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def volume(self, name: str, file: str | None = None) -> Volume:
        """Creates a volume whose control socket is in the run directory."""
        folder = self.sandbox.path(f"legs of {name}")
        folder.mkdir()
        volume = Volume(self.sandbox, [folder / f"leg{i}.img" for i in range(2)])
        volume.create(SIZE, "--name", name)
        volume.control = self.run / f"{file or name}.sock"
        volume.socket = self.sandbox.path(f"{name}.nbd")
        return volume

    def scrape(self, accept: str = "*/*") -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/metrics", headers={"Accept": accept}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            kind = answer.headers["Content-Type"]
            assert kind.startswith("text/plain" if accept == "*/*" else accept.split(";")[0])
            return str(answer.read().decode())

    def up(self) -> dict[str, int]:
        """Returns each volume's `hemi_up`, of those in this run directory."""
        found = re.findall(r'^hemi_up\{volume="(.*?)",control="(.*?)"\} (\d)', self.scrape(), re.M)
        return {
            volume: int(up) for volume, control, up in found if control.startswith(str(self.run))
        }


@pytest.fixture
def machine(sandbox: Sandbox) -> Iterator[Machine]:
    yield Machine(sandbox)


def check_sound(machine: Machine) -> None:
    """Fails unless each family is told once, in one piece, and Prometheus understands all."""
    text = machine.scrape()
    for described in ("HELP", "TYPE"):
        names = re.findall(rf"^# {described} (\S+)", text, re.M)
        assert len(names) == len(set(names)), f"a family is told twice: {names}"
    series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series)), "a series is told twice"
    family = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            family = line.split()[2]
        elif not line.startswith("#"):
            assert line.startswith(family), f"{line} is not of {family}"
    open_metrics = machine.scrape(OPEN_METRICS)
    assert open_metrics.endswith("# EOF\n") and open_metrics.count("# EOF") == 1
    if program := shutil.which("promtool"):
        given = machine.sandbox.path("metrics")
        given.write_text(text)
        code, printed, error = run_any("sh", "-c", f"{program} check metrics < '{given}'")
        assert code == 0, printed + error


def value(text: str, metric: str, **labels: str) -> float | None:
    for line in text.splitlines():
        if line.startswith(f"{metric}{{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    return None


def test_all_volumes_are_told_and_those_that_do_not_answer_named(machine: Machine) -> None:
    served, killed, hangs = (machine.volume(name) for name in ("served", "killed", "hangs"))
    waits = machine.volume("my waits", file="my_waits")
    for volume in (served, killed, hangs):
        volume.start()
    away = Path(waits.legs[1])
    away.rename(away.with_suffix(".away"))
    waits.options += ["--wait-for-legs", "10min", "--set", 'volume="my waits"']
    waits.launch()
    # Other sockets and files in the directory are no volumes.
    (machine.run / "note.sock").write_text("not a socket")
    machine.export()
    all_up = {"served": 1, "killed": 1, "hangs": 1, "my waits": 1}
    wait_until("all answer", lambda: machine.up() == all_up)
    check_sound(machine)
    text = machine.scrape()
    for name, serving in (("served", 1), ("killed", 1), ("hangs", 1), ("my waits", 0)):
        assert value(text, "hemi_serving", volume=name) == serving, name
        not_open = value(text, "hemi_condition", volume=name, condition="not-open")
        assert not_open == 1 - serving, name
    assert value(text, "hemi_size_bytes", volume="served") == SIZE

    killed.kill()
    hangs.signal(signal.SIGSTOP)
    # A process that is being stopped may still answer.
    some_up = {**all_up, "killed": 0, "hangs": 0}
    wait_until("those that do not answer are named", lambda: machine.up() == some_up)
    began = time.monotonic()
    assert machine.up() == some_up
    assert time.monotonic() - began < 6, "one limit for all, not one after the other"
    check_sound(machine)
    text = machine.scrape()
    assert value(text, "hemi_serving", volume="served") == 1
    assert value(text, "hemi_serving", volume="hangs") is None, "no old figures are told"

    hangs.signal(signal.SIGCONT)
    killed.start()
    wait_until("all answer again", lambda: machine.up() == all_up)
    served.stop()
    assert machine.up() == {name: 1 for name in all_up if name != "served"}


def test_a_volume_keeps_its_name_and_another_of_that_name_is_not_mixed_in(
    machine: Machine,
) -> None:
    first = machine.volume("my db", file="my_db")
    first.start()
    machine.export()
    wait_until("it answers", lambda: machine.up() == {"my db": 1})
    first.signal(signal.SIGSTOP)
    assert machine.up() == {"my db": 0}, "its file's name is another"
    first.signal(signal.SIGCONT)
    second = Volume(machine.sandbox, [machine.sandbox.path(f"other{i}.img") for i in range(2)])
    second.create(SIZE, "--name", "my db")
    second.control = machine.run / "other.sock"
    second.socket = machine.sandbox.path("other.nbd")
    second.start()
    text = machine.scrape()
    assert value(text, "hemi_up", control=str(first.control)) == 1
    assert value(text, "hemi_up", control=str(second.control)) == 0
    check_sound(machine)


def test_an_nbd_export_in_the_directory_is_no_volume(machine: Machine) -> None:
    volume = machine.volume("db")
    volume.socket = machine.run / "export.sock"
    volume.start()
    machine.export()
    wait_until("the volume alone answers", lambda: machine.up() == {"db": 1})


def test_other_machines_are_let_in_only_if_that_is_said() -> None:
    port = free_port()
    says = [f"0.0.0.0:{port}", "--http-public", f"127.0.0.1:{port}"]
    hemi_fails("exporter", "--http", f"0.0.0.0:{port}", says=says)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        hemi_fails("exporter", "--http", address, says=[address, "in use"])
