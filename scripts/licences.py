#!/usr/bin/env python3
"""Checks every crate that a build takes in against deny.toml: its licence and its source.

    scripts/licences.py [--manifest-path Cargo.toml] [--policy deny.toml] [--metadata FILE]

Covers the licences and sources sections of cargo-deny, which takes minutes to build from source.
Needs no network once cargo has downloaded the crates. Exits 1 if a crate is refused.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boolean.boolean import ParseError
from license_expression import ExpressionError, LicenseExpression, get_spdx_licensing

ROOT = Path(__file__).resolve().parents[1]
CRATES_IO = (
    "registry+https://github.com/rust-lang/crates.io-index",
    "sparse+https://index.crates.io/",
)
SPDX = get_spdx_licensing()


@dataclass(frozen=True)
class Policy:
    """The part of deny.toml that is checked here."""

    licences: frozenset[str]
    # Further licences, by the name of the only crate that may have them.
    exceptions: dict[str, frozenset[str]]
    registries: tuple[str, ...]
    git: tuple[str, ...]
    targets: tuple[str, ...]

    @staticmethod
    def read(path: Path) -> Policy:
        """Reads deny.toml. Keys left out get cargo-deny's defaults, or stricter ones."""
        document = tomllib.loads(path.read_text())
        sources = document.get("sources", {})
        for key in ("unknown-registry", "unknown-git"):
            if sources.get(key) != "deny":
                raise SystemExit(f'licences: {path}: [sources] {key} must be "deny"')
        licences = document["licenses"]
        return Policy(
            frozenset(licences["allow"]),
            {one["crate"]: frozenset(one["allow"]) for one in licences.get("exceptions", ())},
            tuple(sources.get("allow-registry", CRATES_IO)),
            tuple(sources.get("allow-git", ())),
            tuple(document.get("graph", {}).get("targets", ())),
        )


def allowed(expression: str, licences: frozenset[str]) -> bool:
    """Returns true if some choice that an SPDX expression offers has allowed licences only.

    Raises ValueError if the expression is not SPDX.
    """
    try:
        # Cargo once wrote OR as a slash.
        parsed = SPDX.parse(expression.replace("/", " OR "), validate=True, strict=True)
    except (ExpressionError, ParseError) as error:
        raise ValueError(str(error)) from error
    if parsed is None:
        raise ValueError("it is empty")
    return _allowed(parsed, licences)


def _allowed(node: LicenseExpression, licences: frozenset[str]) -> bool:
    if isinstance(node, SPDX.AND):
        return all(_allowed(part, licences) for part in node.args)
    if isinstance(node, SPDX.OR):
        return any(_allowed(part, licences) for part in node.args)
    # A licence by itself, or one WITH an exception. deny.toml names either as it is written.
    return node.render() in licences


def problems(metadata: dict[str, Any], policy: Policy) -> list[str]:
    """Returns one line for each crate of `cargo metadata` that the policy refuses."""
    found = []
    for package in metadata["packages"]:
        name = f"{package['name']} {package['version']}"
        found += [f"{name}: {what}" for what in _refused(package, policy)]
    return sorted(found)


def _refused(package: dict[str, Any], policy: Policy) -> list[str]:
    found = []
    source = package["source"]
    # A crate without a source is in this tree.
    if source is not None:
        kind, _, url = source.partition("+")
        if kind == "git":
            if not any(url.split("?")[0].split("#")[0] == git for git in policy.git):
                found.append(f"its source is a git repository: {source}")
        elif source not in policy.registries:
            found.append(f"its registry is unknown: {source}")
    licence = package["license"]
    if not licence:
        found.append("it names no licence (Cargo.toml: license)")
        return found
    try:
        if not allowed(licence, policy.licences | policy.exceptions.get(package["name"], set())):
            found.append(f"its licence is not allowed: {licence}")
    except ValueError as error:
        found.append(f"its licence {licence!r} is no SPDX expression: {error}")
    return found


def metadata_of(manifest: Path, policy: Policy) -> dict[str, Any]:
    """Asks cargo for the crates of a workspace, on the platforms of the policy."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features"]
    command += ["--manifest-path", str(manifest)]
    for target in policy.targets:
        command += ["--filter-platform", target]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise SystemExit(f"licences: `{' '.join(command)}` failed")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest-path", type=Path, default=ROOT / "Cargo.toml")
    parser.add_argument("--policy", type=Path, default=ROOT / "deny.toml")
    parser.add_argument(
        "--metadata", type=Path, help="what `cargo metadata` printed; default: run it"
    )
    arguments = parser.parse_args()
    policy = Policy.read(arguments.policy)
    if arguments.metadata:
        metadata = json.loads(arguments.metadata.read_text())
    else:
        metadata = metadata_of(arguments.manifest_path, policy)
    found = problems(metadata, policy)
    for line in found:
        print(f"licences: {line}", file=sys.stderr)
    if found:
        print(
            f"licences: {len(found)} refused; replace the crate, or allow it in "
            f"{arguments.policy.name} with its reason",
            file=sys.stderr,
        )
        sys.exit(1)
    print(f"licences: {len(metadata['packages'])} crates, all allowed")


if __name__ == "__main__":
    main()
