"""`make setup`, `setup-test` and `setup-bench`: what each says that it will install."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "scripts" / "setup.sh"
SETS = ("build", "test", "bench")
#: Packages that bring services, and others for benchmarks only.
DAEMONS = {"mariadb-server", "mdadm", "nbd-client", "lvm2", "prometheus", "libvirt-clients"}
BENCH_ONLY = DAEMONS | {"chromium", "sysbench", "debootstrap"}

FAKES = {
    "dpkg-query": 'case " $PRESENT " in *" ${@: -1} "*) printf installed ;; *) exit 1 ;; esac',
    "apt-get": """echo "$*" >>"$LOG"
case " $* " in *" --assume-no "*)
  echo "0 upgraded, 7 newly installed, 0 to remove and 3 not upgraded."
  echo "Need to get 12.3 MB of archives."
  echo "After this operation, 45.6 MB of additional disk space will be used."
  exit 1
esac""",
}


def announced(folder: Path, which: str, present: str = "") -> tuple[set[str], str, str]:
    """Returns the packages that a set lacks, all that is said, and what apt-get was asked."""
    for name, text in FAKES.items():
        fake = folder / name
        fake.write_text(f"#!/bin/bash\n{text}\n")
        fake.chmod(0o755)
    log = folder / "log"
    log.write_text("")
    done = subprocess.run(
        [SETUP, "--dry-run", which],
        env={
            **os.environ,
            "PATH": f"{folder}:{os.environ['PATH']}",
            "PRESENT": present,
            "LOG": str(log),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = re.search(r"lacks for .*\((\d+)\):\n((?:setup:   .*\n)*)", done.stdout)
    if names is None:
        return set(), done.stdout, log.read_text()
    packages = names[2].replace("setup:", "").split()
    assert len(packages) == len(set(packages)) == int(names[1]), done.stdout
    return set(packages), done.stdout, log.read_text()


def test_each_set_has_those_before_it_and_the_services_are_in_the_last(tmp_path: Path) -> None:
    build, test, bench = (announced(tmp_path, which)[0] for which in SETS)
    assert build < test < bench
    assert not BENCH_ONLY & test and bench >= BENCH_ONLY
    assert not {name for name in build if name.startswith(("python3-", "qemu"))}
    assert len(build) <= 5, "as little as possible"


def test_the_demonstration_runs_only_programs_of_the_first_set(tmp_path: Path) -> None:
    sources = sorted((ROOT / "crates/cli/src/demo").glob("*.rs"))
    run = {
        name
        for source in sources
        for name in re.findall(r'Command::new\("([^"]+)"\)', source.read_text())
    }
    assert run == {"fio", "nbdkit"}
    assert run < announced(tmp_path, "build")[0]
    recipe = re.search(r"^demo: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert recipe is not None and "PYTHON" not in recipe[1]


def test_the_first_volume_of_the_readme_needs_no_other_set(tmp_path: Path) -> None:
    shown = (ROOT / "README.md").read_text()
    packages = {"fio": "fio", "nbdinfo": "libnbd-bin", "nbdcopy": "libnbd-bin"}
    used = {package for name, package in packages.items() if f"\n$ {name} " in shown}
    assert used == set(packages.values())
    assert used < announced(tmp_path, "build")[0]


def test_it_is_said_how_many_and_how_large_they_are(tmp_path: Path) -> None:
    packages, said, asked = announced(tmp_path, "bench")
    for line in ("7 newly installed", "Need to get 12.3 MB", "45.6 MB of additional disk space"):
        assert line in said
    # A dry run asks, and answers no.
    [question] = asked.splitlines()
    assert "--assume-no" in question and set(question.split()) >= packages


def test_what_is_there_is_not_installed_again(tmp_path: Path) -> None:
    everything = announced(tmp_path, "bench")[0]
    assert announced(tmp_path, "bench", " ".join(everything)) == (set(), "", "")
    assert announced(tmp_path, "bench", " ".join(everything - {"mdadm"}))[0] == {"mdadm"}


def test_a_set_that_does_not_exist_is_refused() -> None:
    done = subprocess.run([SETUP, "all"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "name build, test or bench" in done.stderr


TARGETS = {
    "setup": ("demo",),
    "setup-test": ("test", "lint", "kill-test", "crash-ext4", "hostile", "forged", "picture"),
    "setup-bench": (
        *("bench", "nightly", "test-long", "power-cut-test", "kernel-test"),
        *("lab-demo", "dashboard-demo", "mounting-transcripts"),
    ),
}


@pytest.mark.parametrize("needed", TARGETS)
def test_targets_call_the_set_that_they_need(needed: str) -> None:
    rules = dict(
        re.findall(r"^([a-z0-9-]+): ([^:=\n]*?) *##", (ROOT / "Makefile").read_text(), re.M)
    )
    for target in TARGETS[needed]:
        found = [name for name in rules[target].split() if name.startswith("setup")]
        assert found == [needed], target
    called = re.search(
        rf"^{needed}:.*\n\t@scripts/setup.sh (\w+)\n", (ROOT / "Makefile").read_text(), re.M
    )
    assert called is not None and called[1] == SETS[list(TARGETS).index(needed)]


def test_packages_are_installed_without_their_services() -> None:
    installs = re.findall(r"(\S+) env [^\n]*\\\n +apt-get install", SETUP.read_text())
    assert installs == ["scripts/without_services.sh"]


def test_continuous_integration_runs_the_test_command() -> None:
    assert (ROOT / ".ci/run").read_text().rstrip().endswith("\nexec make test")
