"""Runs the commands that README.md and docs/commands/ show as they stand.

Each page's shell blocks run in order in one shell, on a stage where the paths that the page names
are small devices and files (hemi_harness/stage.py). A command succeeds unless the page shows its
error, and warns of nothing unless the page shows the warning. If the page shows output, the command
prints it, except for ids, dates, sizes, times and counts (hemi_harness/pages.py). Each command is
run or listed in `NOT_RUN`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hemi_harness import Sandbox, wait_until
from hemi_harness.pages import Command, blocks, commands, matches
from hemi_harness.stage import LIMIT, Background, Stage, unavailable

from bench.report import page as page_of

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs" / "commands").glob("*.md"))]
}
MIB = 1 << 20
GIB = 1 << 30

BUILDS = "builds hemi or installs packages, which takes minutes; the test has a build already"
SCAN = "looks at the machine's devices, which have other names on the stage; test_scan.py does it"
UBLK = (
    "needs the kernel's ublk driver, which is not in every kernel; in `make kernel-test`, "
    "guest/test_transcripts.py does it"
)
# Commands that are shown and not run, without a comment behind, each with the reason.
NOT_RUN = {
    ("README.md", "make demo"): BUILDS,
    ("README.md", "make test"): "runs this test",
    (
        "README.md",
        "make setup release && sudo make install",
    ): BUILDS,
    (
        "README.md",
        "modprobe ublk_drv && hemi serve --leg fast.img --leg slow.img --device",
    ): UBLK,
    ("docs/commands/attach.md", "hemi attach --volume db"): UBLK,
    ("docs/commands/attach.md", "mount /dev/hemi/db /srv/db"): UBLK,
    ("docs/commands/detach-device.md", "umount /srv/db"): UBLK,
    ("docs/commands/detach-device.md", "hemi detach-device --volume db"): UBLK,
    ("docs/commands/demo.md", "hemi demo"): "takes more than a minute",
    (
        "docs/commands/demo.md",
        "hemi demo --seconds 30 --dir /srv --keep",
    ): "takes more than four minutes",
    ("docs/commands/inspect.md", "hemi inspect --scan"): SCAN,
    ("docs/commands/serve.md", "hemi serve --scan db --device"): SCAN,
    (
        "docs/commands/sim.md",
        "hemi sim presets --cards --markdown > docs/drives.md",
    ): "takes minutes; `make validate` holds the models against their cards",
    (
        "docs/commands/create.md",
        "e2fsck -f /dev/sdd && resize2fs /dev/sdd 20969472K",
    ): "asks at a terminal; what it does is done before the next command",
    (
        "docs/commands/sim.md",
        "hemi sim reproduce modern-pairs",
    ): "takes minutes, and writes into the source tree",
    (
        "docs/commands/upgrade.md",
        "hemi upgrade --volume db --binary /usr/bin/hemi",
    ): "names a file that is there where hemi is installed; test_upgrades.py names another",
}

DB = "--leg /dev/nvme0n1p3 --leg /dev/sdb --nbd unix:/run/hemi/db.nbd"
WRITE = (
    "fio --name=w --ioengine=nbd --uri='nbd+unix:///?socket=/run/hemi/db.nbd' --rw=randwrite "
    "--bs=4k --iodepth=4 --size=4m --minimal"
)


@dataclass
class Scene:
    """The environment that a page assumes."""

    devices: dict[str, int] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    # Creates files and serves volumes.
    prepare: Callable[[Stage], None] | None = None
    # Actions between two of the page's commands, by the later one.
    before: dict[str, Callable[[Stage], None]] = field(default_factory=dict)
    # Message of a command that may fail on a busy machine.
    excuse: str | None = None


def serve(stage: Stage, arguments: str) -> Background:
    """Serves as in another terminal, and waits until hemi serves."""
    process = stage.start(f"hemi serve {arguments}")
    process.wait_output("control socket")
    return process


def create_db(stage: Stage, options: str = "") -> None:
    stage.must(f"hemi create --size 64M --leg /dev/nvme0n1p3 --leg /dev/sdb --name db {options}")


def served_db(options: str = "") -> Callable[[Stage], None]:
    """Returns a function that serves the volume "db" on two devices."""

    def prepare(stage: Stage) -> None:
        open_db(stage, options)

    return prepare


def open_db(stage: Stage, options: str = "") -> Background:
    """Creates the volume "db" on two devices and serves it. Both legs are whole."""
    create_db(stage)
    process = serve(stage, f"{DB} {options}")
    wait_healthy(stage)
    return process


def configured_db(stage: Stage) -> None:
    """Serves the volume "db" from a configuration file."""
    create_db(stage)
    (stage.srv / "db.toml").write_text(
        'volume = "db"\nlegs = ["/dev/nvme0n1p3", "/dev/sdb"]\n\n'
        '[engine.exposure]\nbytes = "256MiB"\n'
    )
    stage.must("cp db.toml /etc/hemi/db.toml")
    serve(stage, "/etc/hemi/db.toml")
    wait_healthy(stage)


def wait_healthy(stage: Stage) -> None:
    stage.until("every leg is healthy and whole", "hemi status --json | jq -e .converged")


def storage(stage: Stage) -> None:
    """Serves the export "db" of the host "storage" at a client's default port."""
    stage.must("truncate -s 80M storage.img")
    stage.must("nbdkit --ipaddr 127.0.0.2 --port 10809 file storage.img")


def spec_of(page: str, part: str) -> str:
    """Returns the TOML file on a page that has this table."""
    found = [text for text in blocks(PAGES[page], "toml") if part in text]
    assert len(found) == 1, f"{page} has {len(found)} TOML blocks with {part}"
    return found[0]


def config_page(stage: Stage) -> None:
    stage.must(f"cp {ROOT}/packaging/hemi.toml /etc/hemi/db.toml")
    # The check looks for the drives that the example names.
    stage.must("mkdir -p /dev/disk/by-id")
    for name in ("nvme-EXAMPLE_SSD-part3", "ata-EXAMPLE_HDD"):
        stage.must(f"truncate -s 80M /dev/disk/by-id/{name}")


def upgrade_page(stage: Stage) -> None:
    """Serves a volume with two clients that stay connected."""
    open_db(stage)
    for _ in range(2):
        client = stage.start(
            "/usr/bin/python3 -c 'import nbd, time; client = nbd.NBD(); "
            'client.connect_uri("nbd+unix:///?socket=/run/hemi/db.nbd"); '
            'print("connected", flush=True); time.sleep(300)\''
        )
        client.wait_output("connected")


def grow_page(stage: Stage) -> None:
    """Serves a volume on two files."""
    stage.must("hemi create --name demo --size 64MiB --leg fast.img --leg slow.img")
    serve(stage, "--leg fast.img --leg slow.img")


def create_page(stage: Stage) -> None:
    stage.must("mkfs.ext4 -q /dev/sdc && mkfs.ext4 -q /dev/sdd")


def make_room(stage: Stage) -> None:
    stage.must("e2fsck -f -y /dev/sdd && resize2fs /dev/sdd 20969472K")


def detached_leg(stage: Stage) -> None:
    """Leaves a detached leg with a file system, and a closed volume."""
    process = open_db(stage)
    stage.must("mkfs.ext4 -q fs.img 32M")
    stage.must("nbdcopy fs.img 'nbd+unix:///?socket=/run/hemi/db.nbd'")
    wait_healthy(stage)
    stage.must("hemi leg detach 1")
    assert process.stop().code == 0, process.output()


def leg_is_out(stage: Stage) -> None:
    """Serves the volume "db", whose leg 1 died and was marked out."""
    stage.must(
        "truncate -s 80M dead.img && nbdkit --unix /run/dead --pidfile /run/dead.pid file dead.img"
    )
    legs = "--leg /dev/nvme0n1p3 --leg 'nbd+unix:///?socket=/run/dead'"
    stage.must(f"hemi create --size 64M {legs} --name db")
    serve(stage, f"{legs} --nbd unix:/run/hemi/db.nbd --set engine.out_after=10s")
    wait_healthy(stage)
    stage.must("kill -KILL $(cat /run/dead.pid)")
    stage.until("leg 1 is out", "hemi status --json | jq -e '.legs[1].state == \"out\"'")
    storage(stage)


def load_page(stage: Stage) -> None:
    """Creates specs, and a recording of requests to the volume "db"."""
    (stage.srv / "night.toml").write_text(spec_of("docs/commands/load.md", "[workload.replay]"))
    (stage.srv / "mix.toml").write_text(
        'title = "A mix"\n'
        "[workload.closed]\n"
        "threads = 1\nqueue_depth = 4\n"
        "requests = 2000\n"
        'access = { addresses = "uniform", sizes = "4 KiB", mix = { read_percent = 70 } }\n'
    )
    create_db(stage, "--leg /dev/sdc")
    legs = DB.replace("--nbd", "--leg /dev/sdc --nbd")
    process = serve(stage, f"{legs} --record db.capture")
    stage.must(WRITE)
    assert process.stop().code == 0, process.output()
    serve(stage, legs)


def forsaken_leg(stage: Stage) -> None:
    """Leaves a leg that lacks data of another, which is gone, and a ledger that knows it."""
    create_db(stage, "--region-size 128KiB")
    process = serve(stage, f"{DB} --allow-inject --ledger /run/hemi")
    wait_healthy(stage)
    stage.must("hemi inject --leg 0 --freeze 1h")
    stage.must(WRITE.replace("--size=4m", "--offset=40m --size=128k"))
    stage.must("pkill -KILL -x hemi")
    process.stop()
    # A killed process holds its drives until its last I/O has ended.
    held = "import os; os.open('/dev/nvme0n1p3', os.O_RDWR | os.O_EXCL)"
    stage.until("the drives are free", f'python3 -c "{held}"')


def corrupt(stage: Stage) -> None:
    """Changes 8 KiB of one leg behind hemi's back."""
    wait_healthy(stage)
    stage.must("dd if=/dev/urandom of=/dev/sdb bs=8k count=1 seek=1024 conv=notrunc,fsync")


def frozen_leg(stage: Stage) -> None:
    """Serves the volume "db" under load, with leg 1 frozen. A stage has memory that outlives
    hemi."""
    # The leg stays frozen, and exposure within its bound, however long it takes on a busy
    # machine until a request is seen in flight.
    settings = "--set engine.out_after=1day --set engine.exposure.age=1h"
    open_db(stage, f"--allow-inject --ledger /run/hemi {settings}")
    load = WRITE.replace("--minimal", "--time_based --runtime=3600 --rate_iops=100 --minimal")
    stage.start(load)
    stage.start(load)
    stage.must("hemi inject --leg 1 --freeze 1h")


def serve_page(stage: Stage) -> None:
    create_db(stage)
    config_page(stage)
    storage(stage)
    stage.must("hemi create --size 64M --leg ssd.img --leg nbd://storage/db --name remote")


def sim_page(stage: Stage) -> None:
    made_up = ROOT / "crates/drives/src/disksim/drive/tests"
    shutil.copy(made_up / "shared_bus.parv", stage.srv / "disk.parv")
    shutil.copy(made_up / "shared_bus.diskspecs", stage.srv)
    (stage.srv / "mirror.toml").write_text(spec_of("docs/commands/sim.md", "[sweep]"))
    (stage.srv / "system.toml").write_text('title = "A volume"\n[system]\nlegs = ["gp3", "gp3"]\n')


def advise_page(stage: Stage) -> None:
    requests = (f"{n * 50_000_000},write,0,{n * 7919 % 9000 * 4096},4096," for n in range(2000))
    header = "at_ns,operation,fua,offset,length,latency_ns"
    (stage.srv / "db.csv").write_text("\n".join([header, *requests, ""]))


def trace_page(stage: Stage) -> None:
    served_db("--record db.capture")(stage)
    stage.must(WRITE)
    stage.must("pkill -TERM -x hemi")
    stage.until("hemi has ended", "! pgrep -x hemi")
    (stage.srv / "hm_1.csv").write_text(
        "128166372003061629,hm,1,Read,383496192,32768,413\n"
        "128166372016382155,hm,1,Write,310983680,4096,1339\n"
    )


DEVICES = {"nvme0n1p3": 80 * MIB, "sdb": 80 * MIB}
SCENES = {
    "docs/commands/advise.md": Scene(prepare=advise_page),
    "docs/commands/attach.md": Scene(),
    "docs/commands/detach-device.md": Scene(),
    "README.md": Scene(),
    "docs/commands/config.md": Scene(prepare=config_page),
    "docs/commands/create.md": Scene(
        {name: 20 * GIB for name in ("nvme0n1p3", "sdb", "sdc", "sdd", "sdf")} | {"sde": 21 * GIB},
        prepare=create_page,
        before={"hemi create --adopt /dev/sdd --leg new.img --name": make_room},
    ),
    "docs/commands/dashboard.md": Scene(DEVICES, prepare=served_db("--http 127.0.0.1:9188")),
    "docs/commands/demo.md": Scene(),
    # On a busy machine no leg is to freeze, which would be the last event.
    "docs/commands/events.md": Scene(DEVICES, prepare=served_db("--set engine.wait.floor=1s")),
    "docs/commands/inject.md": Scene(DEVICES, prepare=served_db("--allow-inject")),
    "docs/commands/inspect.md": Scene(DEVICES, prepare=detached_leg),
    "docs/commands/leg.md": Scene(
        {**DEVICES, "sdd": 80 * MIB},
        {"storage": "127.0.0.2"},
        prepare=leg_is_out,
        before={"hemi leg add nbd://storage/db": wait_healthy, "hemi leg detach": wait_healthy},
    ),
    "docs/commands/list.md": Scene(DEVICES, prepare=served_db()),
    "docs/commands/set.md": Scene(DEVICES, prepare=configured_db),
    "docs/commands/load.md": Scene(
        {**DEVICES, "sdc": 80 * MIB, "nvme0n1": 80 * MIB},
        prepare=load_page,
        excuse="the engine itself was late",
    ),
    "docs/commands/exporter.md": Scene(),
    "docs/commands/standby.md": Scene({**DEVICES, "sdc": 80 * MIB}, prepare=configured_db),
    "docs/commands/monitor.md": Scene(),
    "docs/commands/promote.md": Scene({**DEVICES, "sdd": 80 * MIB}, prepare=forsaken_leg),
    "docs/commands/scrub.md": Scene(
        DEVICES, prepare=served_db(), before={"hemi scrub ||": corrupt}
    ),
    "docs/commands/serve.md": Scene(DEVICES, {"storage": "127.0.0.2"}, prepare=serve_page),
    "docs/commands/settle.md": Scene(DEVICES, prepare=create_db),
    "docs/commands/sim.md": Scene(prepare=sim_page),
    "docs/commands/status.md": Scene(DEVICES, prepare=frozen_leg),
    "docs/commands/top.md": Scene(DEVICES, prepare=served_db()),
    "docs/commands/trace.md": Scene(DEVICES, prepare=trace_page),
    "docs/commands/grow.md": Scene(prepare=grow_page),
    "docs/commands/hemi.md": Scene(),
    "docs/commands/upgrade.md": Scene(DEVICES, prepare=upgrade_page),
}


# Returns true for commands that run until interrupted, as in a terminal of their own.
def stays(command: Command) -> bool:
    text = command.text
    serves = text.startswith("hemi serve") and not re.search("--(print-config|run) ?", text)
    return (serves and "&" not in text) or "--watch" in text or "dashboard --proxy" in text


# Returns true for commands that show a state and change nothing. Their output comes eventually.
def looks(command: Command) -> bool:
    return "hemi status" in command.text or "hemi inspect" in command.text


class Reader:
    """A reader who types the commands of a page."""

    def __init__(self, stage: Stage, excuse: str | None) -> None:
        self.stage = stage
        self._excuse = excuse
        self._server: Background | None = None

    def type(self, command: Command) -> None:
        if not stays(command):
            self._check(command)
        elif command.text.startswith("hemi serve"):
            self.leave()
            self._server = serve(self.stage, command.text.removeprefix("hemi serve "))
        else:
            watch = self.stage.start(command.text)
            watch.wait_output(r"\S")
            watch.stop()

    def leave(self) -> None:
        """Stops the server, as Ctrl-C does."""
        if self._server:
            ended = self._server.stop()
            assert ended.code == 0, f"`{self._server.command}` exited {ended.code}:\n{ended.output}"
        self._server = None

    def _check(self, command: Command) -> None:
        problem = self._try(command)
        if problem and looks(command):
            problems = [problem]

            def right() -> bool:
                problems[0] = self._try(command) or ""
                return not problems[0]

            try:
                wait_until(command.where, right, LIMIT)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{problems[0]}") from None
        elif problem:
            raise AssertionError(problem)

    def _try(self, command: Command) -> str | None:
        """Returns the difference of a command's result from the page, or `None` if there is
        none."""
        ended = self.stage.run(command.text)
        if ended.code != 0 and self._excuse and self._excuse in ended.output:
            return None
        refused = any(line.startswith("error:") for line in command.output)
        if refused != (ended.code != 0):
            return f"{command.where}\nexited {ended.code}:\n{ended.output}"
        # A reader's drives fail by themselves, those of a stage by injection.
        printed = re.sub(r"^injected  leg .*\n", "", ended.output, flags=re.MULTILINE)
        shown_warnings = [line for line in command.output if line.startswith("warning:")]
        if "warning: " in printed and not shown_warnings:
            return f"{command.where}\nwarns, and the page shows no warning:\n{printed}"
        if command.output and not matches(command.output, printed):
            shown = "\n".join(command.output)
            return f"{command.where}\n--- the page shows\n{shown}\n--- it prints\n{printed}"
        return None


def uncommented(command: Command) -> str:
    """Returns the command without a comment behind it, which may change."""
    return re.split(r"\s+# ", command.text, maxsplit=1)[0]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_works(page: str, sandbox: Sandbox) -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    shown = commands(PAGES[page], page)
    scene = SCENES[page]
    unused = [start for start in scene.before if not any(c.text.startswith(start) for c in shown)]
    assert not unused, f"{page} shows no command that begins with {unused}"
    stage = Stage(sandbox, devices=scene.devices, hosts=scene.hosts)
    if scene.prepare:
        scene.prepare(stage)
    reader = Reader(stage, scene.excuse)
    for command in shown:
        if (page, uncommented(command)) in NOT_RUN:
            continue
        for start, action in scene.before.items():
            if command.text.startswith(start):
                action(stage)
        reader.type(command)
    reader.leave()


def test_what_is_not_run_is_still_shown() -> None:
    shown = {(page, uncommented(c)) for page, path in PAGES.items() for c in commands(path, page)}
    gone = set(NOT_RUN) - shown
    assert not gone, f"no page shows what NOT_RUN lists: {sorted(gone)}"


def test_a_page_shows_what_is_not_run_and_nothing_else_is_left_out() -> None:
    assert set(SCENES) == set(PAGES), "each page needs a scene"
    for page, path in PAGES.items():
        text = path.read_text()
        fences = sum(text.count(f"```{language}\n") for language in ("console", "sh", "bash"))
        lines = {c.line for c in commands(path, page)}
        assert len(lines) >= fences, f"{page}: a shell block without a command"


def test_nothing_of_a_stage_is_seen_outside(sandbox: Sandbox) -> None:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    stage = Stage(sandbox, devices={"sdb": MIB})
    marker = f"hemi-{os.getpid()}"
    folders = ("/dev", "/etc", "/etc/hemi", "/run", "/mnt", "/srv")
    for folder in folders:
        stage.must(f"touch {folder}/{marker} && test -e {folder}/{marker}")
        assert not (Path(folder) / marker).exists(), f"{folder} is the machine's"
    assert stage.run("test -b /dev/sdb").code == 0
    mounts = stage.must("cat /proc/self/mountinfo")
    assert "shared:" not in mounts, mounts


def test_a_stage_keeps_no_mount_of_another_test(sandbox: Sandbox) -> None:
    """Checks that no copy of another test's mount keeps its device busy."""
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    with Sandbox() as other:
        points = [other.mount_tmpfs(MIB) for _ in range(8)]
        stage = Stage(sandbox)
        seen = stage.must("cat /proc/self/mounts")
    assert not [point for point in points if str(point) in seen]


def test_the_benchmarks_page_says_what_was_measured() -> None:
    """Checks that docs/benchmarks.md is generated from bench/results.json, never by hand."""
    results = json.loads((ROOT / "bench" / "results.json").read_text())
    assert (ROOT / "docs" / "benchmarks.md").read_text() == page_of(results)


def test_output_is_compared_but_for_what_differs_from_run_to_run() -> None:
    shown = ("leg 0: /dev/sdb (whole)", "…", "owes 3.1 MiB, 1.5 s")
    assert matches(shown, "leg 0: /dev/sdb (whole)\nanything\nat all\nowes 12 KiB, 870 ms\n")
    assert not matches(shown, "leg 1: /dev/sdb (whole)\nowes 12 KiB, 870 ms\n")
    assert not matches(shown, "leg 0: /dev/sdb (whole)\nowes 12 KiB, 870 ms\nand more\n")
    assert not matches(shown, "")


def test_every_kind_of_shell_block_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ one \\\n  more\nshown\n$ two\n```\n\n```sh\nthree\n# a comment\n```\n\n"
        "Text.\n\n    $ four\n    shown\n\n```\nno shell\n```\n\n```toml\nkey = 1\n```\n"
    )
    found = [(c.text, c.output) for c in commands(page, "page.md")]
    assert found == [
        ("one \\\n  more", ("shown",)),
        ("two", ()),
        ("three", ()),
        ("four", ("shown",)),
    ]
