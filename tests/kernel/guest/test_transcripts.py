"""Runs the commands of the pages about block devices as they stand, and compares their output.

The commands of a section run in order in one shell (shell.py), as root, on disks of the guest.
A command succeeds unless the page shows its error. Its output is compared except for ids,
dates, sizes, times and counts (hemi_harness/pages.py), and is left in RESULTS for `make
mounting-transcripts`, which writes it into the pages. Each command is run or listed in
`NOT_RUN`.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hemi_harness.pages import Command, commands, matches
from kernel_guest import LEGS, hemi, messages, run, wait_until
from shell import LIMIT, Background, Shell

DOCS = Path(os.environ["TREE"]) / "docs"
PAGES = ("mounting.md", "commands/attach.md", "commands/detach-device.md")
PROMPTS = ("$ ", "# ")
#: Directory of the output, one file for each section.
RESULTS = Path(os.environ["RESULTS"])

BUILT_IN = "the guest's kernel has its drivers built in, and no modules"
UNITS = "needs systemd and udev: tests/kernel/test_boot.py boots a machine with these files"
MACHINE = (
    "starts a virtual machine: tests/blackbox/test_virtual_machine.py does, with one line more"
)
#: The beginnings of commands that are shown and not run, with the reason.
NOT_RUN = {
    "modprobe ": BUILT_IN,
    "install -D -m ": UNITS,
    "systemctl ": UNITS,
    "qemu-system-x86_64 ": MACHINE,
}


@dataclass
class Scene:
    """A section of a page, and the environment that it assumes."""

    page: str
    section: str
    prepare: Callable[[Shell], object]
    #: Actions between two of the commands, by the beginning of the later one.
    before: dict[str, Callable[[Shell], object]] = field(default_factory=dict)
    #: The beginnings of commands that run until interrupted, with the text they print once they
    #: run.
    stays: dict[str, str] = field(default_factory=dict)
    #: The beginnings of commands that need a terminal, though they ask nothing here.
    terminal: tuple[str, ...] = ()
    #: Action at the end.
    finish: Callable[[Shell], object] = lambda shell: None

    @property
    def name(self) -> str:
        return f"{self.page}: {self.section}"


DB = "--leg /dev/nvme0n1p3 --leg /dev/sdb"


def disks(shell: Shell) -> None:
    shell.disk("nvme0n1p3", LEGS[0])
    shell.disk("sdb", LEGS[1])
    shell.must("mkdir -p /srv/db /mnt/home")


def created(shell: Shell) -> None:
    """Creates the volume "db" on two disks."""
    disks(shell)
    wipe = "--wipe /dev/nvme0n1p3 --wipe /dev/sdb"
    shell.must(f"hemi create --size 48M {DB} {wipe} --name db")


def served(options: str = "") -> Callable[[Shell], None]:
    """Returns a function that serves the volume "db"."""

    def prepare(shell: Shell) -> None:
        created(shell)
        shell.serve(f"{DB} --nbd unix:/run/hemi/db.nbd {options}")

    return prepare


def formatted(shell: Shell) -> None:
    shell.must("mkfs.ext4 -q /dev/hemi/db")


def mounted(shell: Shell) -> None:
    """Serves the volume "db" as a block device with a file system in use."""
    served("--device")(shell)
    formatted(shell)
    shell.must("mount /dev/hemi/db /srv/db")


def mapped(shell: Shell) -> None:
    """Serves "db" on disks that grow, as a device that can grow, with a file system in use."""
    for name, of in zip(("half0", "half1"), LEGS, strict=True):
        shell.growing_disk(name, of)
    legs = "--leg /dev/half0 --leg /dev/half1"
    shell.must("mkdir -p /srv/db")
    wipe = "--wipe /dev/half0 --wipe /dev/half1"
    shell.must(f"hemi create --size 16M {legs} {wipe} --name db")
    # The kernel's ublk supports a new size from Linux 6.16 on.
    shell.start(f"hemi serve {legs} --device=nbd", "block device path=")
    shell.must("mkfs.ext4 -q /dev/hemi/db && mount /dev/hemi/db /srv/db")
    for name, of in zip(("half0", "half1"), LEGS, strict=True):
        shell.grow(name, of)


def has_grown(shell: Shell) -> None:
    kib = int(shell.must("df --output=size /srv/db | tail -1"))
    assert kib > 40_000, f"the file system has {kib} KiB"


def old_disk(shell: Shell) -> None:
    """Creates a disk with a file system that fills it and is in use, and a larger new one."""
    shell.must("mkdir -p /srv/home")
    shell.large_disk("sdb1", "400M")
    shell.large_disk("nvme0n1p3", "420M")
    shell.must("mkfs.ext4 -q -b 1024 /dev/sdb1 && mkdir /mnt/home && mount /dev/sdb1 /mnt/home")
    shell.must("echo 'still here' >/mnt/home/hello")


def whole(shell: Shell) -> None:
    shell.until("both legs are whole", "hemi status --json | grep -q 'converged.*true'")


def user(shell: Shell) -> None:
    """Serves the volume "db", with an empty directory `mnt`."""
    created(shell)
    shell.must("mkdir -p mnt /run/user/1000/hemi")
    shell.serve(f"{DB} --nbd unix:/run/user/1000/hemi/db.nbd")


def as_file(shell: Shell) -> None:
    shell.until("it is mounted", "test -f mnt/nbd")
    assert int(shell.must("stat -c %s mnt/nbd")) == 48 << 20
    shell.must("head -c 4096 /dev/urandom >block && dd if=block of=mnt/nbd conv=notrunc,fsync")
    shell.must("cmp -n 4096 block mnt/nbd && umount mnt")


def by_client(shell: Shell) -> None:
    assert int(shell.must("blockdev --getsize64 /dev/nbd0")) == 48 << 20
    shell.must("mkfs.ext4 -q /dev/nbd0 && nbd-client -d /dev/nbd0")


SCENES = [
    Scene("mounting.md", "ublk", created, stays={"hemi serve ": "block device path="}),
    Scene("mounting.md", "Boot", lambda shell: None),
    Scene("mounting.md", "Virtual machines", created, stays={"hemi serve ": "control socket"}),
    Scene("mounting.md", "By NBD", lambda shell: None),
    Scene("mounting.md", "nbd-client", served(), finish=by_client),
    Scene(
        "mounting.md",
        "Without root",
        user,
        before={},
        stays={"nbdfuse ": ""},
        finish=as_file,
    ),
    Scene("mounting.md", "A larger volume", mapped, finish=has_grown),
    Scene(
        "mounting.md",
        "Existing data",
        old_disk,
        before={"kill %1": whole},
        terminal=("e2fsck ",),
    ),
    Scene("commands/attach.md", "Examples", served(), before={"mount ": formatted}),
    Scene("commands/detach-device.md", "Examples", mounted),
]


def sections(page: str) -> dict[str, list[Command]]:
    """Returns the commands below each heading of a page that has some, in order."""
    found: dict[str, list[Command]] = {}
    lines = (DOCS / page).read_text().splitlines()
    for command in commands(DOCS / page, page, PROMPTS):
        headings = (line for line in reversed(lines[: command.line]) if line.startswith("#"))
        # In a block, a line that begins like this is root's command.
        heading = next(line for line in headings if line.startswith("##"))
        found.setdefault(heading.lstrip("# "), []).append(command)
    return found


def not_run(command: Command) -> bool:
    return any(command.text.startswith(beginning) for beginning in NOT_RUN)


def refused(command: Command) -> bool:
    """Returns true if the page shows that the command fails."""
    return any(line.startswith(("error: ", "mount: ")) for line in command.output)


def on_a_terminal(command: str) -> str:
    """Returns the command with a terminal for its output. Its progress bars are not kept."""
    shown = r"sed 's/\r$//; s/.*\r//; s/[\x01\x02]//g'"
    return f"set -o pipefail; script -qec {shlex.quote(command)} /dev/null | {shown}"


class Reader:
    """A reader who types the commands of a section, and records their output."""

    def __init__(self, shell: Shell, scene: Scene) -> None:
        self.shell = shell
        self.scene = scene
        self.printed: list[dict[str, object]] = []
        self._stay: list[Background] = []

    def type(self, command: Command) -> None:
        for beginning, shows in self.scene.stays.items():
            if command.text.startswith(beginning):
                self._stay.append(self.shell.start(command.text, shows))
                return
        wants_terminal = command.text.startswith(self.scene.terminal or ("\0",))
        ended = self.shell.run(on_a_terminal(command.text) if wants_terminal else command.text)
        if command.text.startswith("hemi status"):
            # It shows a state that comes eventually.
            def comes() -> bool:
                nonlocal ended
                ended = self.shell.run(command.text)
                return matches(command.output, ended.output)

            wait_until(command.where, comes, LIMIT)
        if command.text.endswith("&"):
            self.shell.until("it is served", "hemi status")
        self.printed.append(
            {
                "page": command.page,
                "line": command.line,
                "command": command.text,
                "shown": command.output,
                "printed": ended.output,
            }
        )
        fails = refused(command)
        assert fails == (ended.code != 0), f"{command.where}\nexited {ended.code}:\n{ended.output}"

    def differs(self) -> list[str]:
        """Returns the commands whose output differs from the page, with both outputs."""
        found = []
        for entry in self.printed:
            shown, printed = entry["shown"], str(entry["printed"])
            assert isinstance(shown, tuple)
            if shown and not matches(shown, printed):
                text = "\n".join(shown)
                where = f"{entry['page']}:{entry['line']}: {entry['command']}"
                found.append(f"{where}\n--- the page shows\n{text}\n--- it prints\n{printed}")
        return found


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name.replace(" ", "-"))
def test_a_section_works_as_it_is_shown(scene: Scene) -> None:
    shown = sections(scene.page)[scene.section]
    unused = [at for at in scene.before if not any(c.text.startswith(at) for c in shown)]
    assert not unused, f"{scene.name} shows no command that begins with {unused}"
    shell = Shell()
    reader = Reader(shell, scene)
    try:
        scene.prepare(shell)
        for command in shown:
            if not_run(command):
                continue
            for beginning, action in scene.before.items():
                if command.text.startswith(beginning):
                    action(shell)
            reader.type(command)
        scene.finish(shell)
    finally:
        number = SCENES.index(scene)
        (RESULTS / f"transcript-{number}.json").write_text(json.dumps(reader.printed))
        clear(shell)
    assert not reader.differs(), "\n".join(reader.differs())


def clear(shell: Shell) -> None:
    """Leaves the guest as the next section expects it."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        point = line.split()[1]
        if point.startswith(("/srv/", "/mnt/", "/run/user/")):
            run("umount", "-l", point, expect=None)
    # Servers end first, which releases everything they hold.
    run("pkill", "-KILL", "-x", "hemi", expect=None)
    for name in ("db", "home"):
        hemi("detach-device", "--volume", name, "--force", expect=None)
    shell.close()
    messages()


def test_each_command_is_run_or_listed() -> None:
    scenes = {(scene.page, scene.section) for scene in SCENES}
    shown = {(page, section) for page in PAGES for section in sections(page)}
    assert shown == scenes, "each section with commands needs a scene, and the other way round"
    texts = [c.text for page in PAGES for found in sections(page).values() for c in found]
    gone = [it for it in NOT_RUN if not any(text.startswith(it) for text in texts)]
    assert not gone, f"no page shows what NOT_RUN lists: {gone}"
