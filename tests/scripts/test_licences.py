"""Checks that scripts/licences.py refuses crates that deny.toml does not allow, and names them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "licences.py"
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def check(*argv: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, SCRIPT, *argv], capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def check_package(folder: Path, **fields: str | None) -> tuple[int, str]:
    """Checks one crate of a fake `cargo metadata` against this tree's deny.toml."""
    package = {"name": "one", "version": "1.2.3", "license": "MIT", "source": CRATES_IO, **fields}
    path = folder / "metadata.json"
    path.write_text(json.dumps({"packages": [package]}))
    return check("--metadata", path)


def crate(folder: Path, name: str, licence: str, dependencies: str = "") -> Path:
    (folder / name / "src").mkdir(parents=True)
    (folder / name / "src" / "lib.rs").write_text("")
    manifest = folder / name / "Cargo.toml"
    manifest.write_text(
        f'[package]\nname = "{name}"\nversion = "0.1.0"\nedition = "2024"\n{licence}\n'
        f"[dependencies]\n{dependencies}"
    )
    return manifest


def test_a_real_workspace_with_a_copyleft_dependency_is_refused(tmp_path: Path) -> None:
    crate(tmp_path, "copyleft", 'license = "GPL-3.0-only"')
    manifest = crate(tmp_path, "product", 'license = "MIT"', 'copyleft = { path = "../copyleft" }')
    subprocess.run(
        ["cargo", "generate-lockfile", "--offline", "--manifest-path", manifest], check=True
    )
    code, printed = check("--manifest-path", manifest)
    assert code == 1
    assert "copyleft 0.1.0: its licence is not allowed: GPL-3.0-only" in printed
    assert "product" not in printed


@pytest.mark.parametrize(
    "licence",
    [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0-only OR MIT",
        "(MIT OR GPL-2.0-only) AND BSD-3-Clause",
        "Apache-2.0 WITH LLVM-exception",
    ],
)
def test_a_licence_with_an_allowed_choice_passes(tmp_path: Path, licence: str) -> None:
    assert check_package(tmp_path, license=licence)[0] == 0


@pytest.mark.parametrize(
    ("licence", "says"),
    [
        ("GPL-3.0-only", "not allowed: GPL-3.0-only"),
        ("MIT AND GPL-2.0-only", "not allowed"),
        ("GPL-2.0-only WITH Classpath-exception-2.0 OR AGPL-3.0-only", "not allowed"),
        # The exception is for tiny-keccak only.
        ("CC0-1.0", "not allowed: CC0-1.0"),
        (None, "names no licence"),
        ("Free as in beer", "no SPDX expression"),
        ("MIT AND", "no SPDX expression"),
    ],
)
def test_any_other_licence_is_refused(tmp_path: Path, licence: str | None, says: str) -> None:
    code, printed = check_package(tmp_path, license=licence)
    assert code == 1
    assert "one 1.2.3" in printed and says in printed, printed


def test_an_exception_is_for_one_crate(tmp_path: Path) -> None:
    assert check_package(tmp_path, name="tiny-keccak", license="CC0-1.0")[0] == 0


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("registry+https://crates.example/index", "registry is unknown: registry+https://crates"),
        ("sparse+https://crates.example/", "registry is unknown"),
        ("git+https://git.example/one?branch=main#0123456", "a git repository: git+https://git"),
    ],
)
def test_a_source_other_than_crates_io_is_refused(tmp_path: Path, source: str, says: str) -> None:
    code, printed = check_package(tmp_path, source=source)
    assert code == 1
    assert "one 1.2.3" in printed and says in printed, printed


def test_a_policy_that_lets_strange_sources_in_is_refused(tmp_path: Path) -> None:
    policy = tmp_path / "deny.toml"
    policy.write_text('[licenses]\nallow = ["MIT"]\n[sources]\nunknown-registry = "warn"\n')
    metadata = tmp_path / "metadata.json"
    metadata.write_text('{"packages": []}')
    code, printed = check("--policy", policy, "--metadata", metadata)
    assert code == 1
    assert 'unknown-registry must be "deny"' in printed
