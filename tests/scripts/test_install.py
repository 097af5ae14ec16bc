"""The files that `make install` installs, and the man pages as man renders them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
HEMI = Path(os.environ.get("HEMI", TARGET / "debug" / "hemi")).resolve()
DATE = 1790000000
SECTIONS = ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO")

pytestmark = pytest.mark.skipif(not HEMI.exists(), reason=f"{HEMI} has not been built")


def run(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a root into which hemi has been installed, below /usr/local."""
    root = tmp_path_factory.mktemp("root")
    place = {"DESTDIR": str(root), "BINARY": str(HEMI), "SOURCE_DATE_EPOCH": str(DATE)}
    run("make", "install", **place)
    return root


def pages(root: Path) -> list[Path]:
    return sorted((root / "usr/local/share/man").glob("man?/*"))


def test_every_command_has_a_man_page(installed: Path) -> None:
    commands = {path.stem for path in (ROOT / "docs/commands").glob("*.md")}
    expected = {"hemi.1" if name == "hemi" else f"hemi-{name}.1" for name in commands}
    assert {path.name for path in pages(installed)} == expected | {"hemi.toml.5"}


def test_man_pages_have_their_sections_and_a_date(installed: Path) -> None:
    for page in pages(installed):
        text = page.read_text().replace('"', "")
        wanted = (
            SECTIONS if page.suffix == ".1" else ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO")
        )
        for section in wanted:
            # `hemi leg list` and its like have options in a table of their own.
            assert f"\n.SH {section}\n" in text, f"{page.name} lacks {section}"
        assert " 2026-09-21 hemi " in text.splitlines()[2], f"{page.name} has no date"


def test_man_finds_nothing_wrong(installed: Path) -> None:
    if shutil.which("man") is None:
        pytest.skip("man is not installed")
    for page in pages(installed):
        done = subprocess.run(
            ["man", "--warnings", "--local-file", str(page)],
            env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MAN_KEEP_STDERR": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{page.name}: {done.stderr}"
        # Long words of code stretch a line, which is no mistake of the page.
        said = [line for line in done.stderr.splitlines() if "adjust" not in line]
        assert said == [], f"{page.name}: {said}"
        assert "NAME" in done.stdout and "SEE ALSO" in done.stdout, page.name


def test_mandoc_finds_nothing_wrong(installed: Path) -> None:
    mandoc = shutil.which("mandoc")
    if mandoc is None:
        pytest.skip("mandoc is not installed")
    done = subprocess.run(
        [mandoc, "-Tlint", "-Wwarning", *map(str, pages(installed))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "" and done.returncode == 0, done.stdout + done.stderr


def test_whatis_knows_every_page(installed: Path) -> None:
    if shutil.which("lexgrog") is None:
        pytest.skip("lexgrog is not installed (man-db)")
    for page in pages(installed):
        said = run("lexgrog", page)
        name = page.name.rsplit(".", 1)[0]
        assert f'"{name} - ' in said, said


def test_what_is_installed_refers_to_where_it_is(installed: Path) -> None:
    usr = installed / "usr/local"
    unit = (usr / "lib/systemd/system/hemi@.service").read_text()
    assert "ExecStart=/usr/local/bin/hemi serve" in unit and "/usr/bin/hemi" not in unit
    assert "/usr/local/bin/hemi inspect" in (usr / "lib/udev/rules.d/64-hemi.rules").read_text()
    assert (usr / "lib/tmpfiles.d/hemi.conf").exists()
    assert "/usr/local/share/doc/hemi/docs" in (usr / "share/man/man1/hemi-serve.1").read_text()
    assert (usr / "share/doc/hemi/docs/mounting.md").exists()
    assert os.access(usr / "bin/hemi", os.X_OK)
    assert run(usr / "bin/hemi", "--version").startswith("hemi ")


def test_completions_are_what_the_shells_take(installed: Path) -> None:
    share = installed / "usr/local/share"
    completion = share / "bash-completion/completions/hemi"
    script = (
        'source "$0"; COMP_WORDS=(hemi se); COMP_CWORD=1; _hemi hemi se hemi; echo "$COMPREPLY"'
    )
    assert run("bash", "--norc", "-c", script, completion).strip() == "serve"
    assert "#compdef hemi" in (share / "zsh/site-functions/_hemi").read_text()
    assert "complete -c hemi" in (share / "fish/vendor_completions.d/hemi.fish").read_text()


def test_what_was_done_is_said(installed: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    said = run("make", "install", DESTDIR=str(root), BINARY=str(HEMI))
    assert "installed hemi 0." in said and f"as {root}/usr/local/bin/hemi" in said, said
    assert "next:" not in said, "a package's root is not where systemd looks"
    usr = tmp_path / "usr"
    said = run("make", "install", prefix=str(usr), BINARY=str(HEMI))
    assert f"as {usr}/bin/hemi" in said and "next: systemctl daemon-reload &&" in said, said
    said = run("make", "uninstall", prefix=str(usr))
    assert f"removed hemi from {usr}/bin" in said and "next: systemctl daemon-reload" in said


def test_uninstall_leaves_nothing(installed: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(installed, root, symlinks=True)
    run("make", "uninstall", DESTDIR=str(root))
    left = [path for path in root.rglob("*") if not path.is_dir()]
    assert left == []


def test_install_without_a_program_says_how_to_build_it(tmp_path: Path) -> None:
    done = subprocess.run(
        ["make", "install", f"DESTDIR={tmp_path}", f"BINARY={tmp_path}/none"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0 and "make release" in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []
