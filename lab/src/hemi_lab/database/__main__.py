"""`python -m hemi_lab.database` runs OLTP loads and scans alone, without a plan or a report."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Literal, cast, get_args, get_origin, get_type_hints

from hemi_lab.errors import LabError

from .results import OltpResult
from .run import OltpRun
from .scans import ScanResult, ScanRun, ScanSettings
from .settings import BadSetting, OltpSettings, Place, placement
from .targets import DeviceTarget, DirectoryTarget, FileSystem, HemiTarget, NbdTarget, Target
from .workplace import Workplace, terminable

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TARGET_HELP = "dir:PATH, device:PATH, nbd:URI, or hemi:LEG,LEG (see --volume-size)"

# Options that take their type, choices and default from the settings.
_OLTP_OPTIONS = {
    "workload": ("--workload", "load on the database"),
    "threads": ("--threads", "a list: 8,16,32"),
    "seconds": ("--seconds", "length of each step"),
    "idle_seconds": ("--idle", "seconds between steps"),
    "warm_up_seconds": ("--warm-up", "seconds of load before the first step"),
    "warehouses": ("--warehouses", "about 100 MB each"),
    "items": ("--items", "TPC-C-like"),
    "customers": ("--customers", "TPC-C-like, in each district"),
    "checks": ("--checks", "consistency conditions to check"),
    "tables": ("--tables", "OLTP read/write"),
    "rows": ("--rows", "rows of each table"),
    "distribution": ("--distribution", "distribution of the chosen rows"),
}


def main() -> int:
    """Runs the command and returns its exit code."""
    options = _parser().parse_args()
    try:
        return _run(options)
    except LabError as error:
        print(f"hemi-lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("hemi-lab: interrupted; everything started was ended", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    targets: dict[Place, Target] = {"A": _target("--target", options.target, options)}
    if getattr(options, "second_target", None):
        targets["B"] = _target("--second-target", options.second_target, options)
    run: OltpRun | ScanRun
    if options.command == "oltp":
        run = OltpRun(_oltp_settings(options), targets, say=_say, on_second=lambda s: None)
    else:
        settings = ScanSettings(
            options.rows, options.repeats, options.pool_share, seed=options.seed
        )
        run = ScanRun(settings, targets["A"], say=_say)
    # Fail before hours of work rather than after them.
    if options.output:
        options.output.write_text("")
    try:
        with terminable(), Workplace(options.work_directory) as place:
            run.execute(place)
    finally:
        if options.output:
            options.output.write_text(json.dumps(asdict(run.result), indent=1) + "\n")
        print(_table(run.result))
    problems = run.result.problems
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _oltp_settings(options: argparse.Namespace) -> OltpSettings:
    pairs = [option.partition("=") for option in options.server_option]
    given = {name: getattr(options, name) for name in (*_OLTP_OPTIONS, "seed", "pool_share")}
    return OltpSettings(
        **given,
        placements=tuple(placement(text) for text in options.placements.split(",")),
        server_options={name.strip().replace("-", "_"): value for name, _, value in pairs},
    )


def _target(option: str, text: str, options: argparse.Namespace) -> Target:
    kind, _, rest = text.partition(":")
    file_system = cast(FileSystem, options.file_system)
    if rest and kind == "dir":
        return DirectoryTarget(Path(rest))
    if rest and kind == "device":
        return DeviceTarget(Path(rest), file_system, wipe=text in options.wipe)
    if rest and kind == "nbd":
        return NbdTarget(rest, file_system, wipe=text in options.wipe)
    if rest and kind == "hemi":
        legs = tuple(rest.split(","))
        return HemiTarget(legs, options.volume_size, file_system, options.hemi)
    raise BadSetting(option, text, f"give {_TARGET_HELP}")


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)(?:iB)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 4G or 512M")
    return int(found[1]) * _UNITS[found[2]]


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 8,16,32") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hemi_lab.database", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    standard = OltpSettings()
    oltp = commands.add_parser("oltp", help="a load at rising thread counts")
    oltp.add_argument("--second-target", metavar="TARGET", help="target B, as --target")
    oltp.add_argument("--placements", default="A/A", help="data/log: A/A,A/B,B/A,B/B")
    hints = get_type_hints(OltpSettings)
    for name, (flag, said) in _OLTP_OPTIONS.items():
        default = getattr(standard, name)
        kind = _numbers if isinstance(default, tuple) else type(default)
        choices = get_args(hints[name]) if get_origin(hints[name]) is Literal else None
        oltp.add_argument(flag, dest=name, type=kind, default=default, choices=choices, help=said)
    oltp.add_argument("--server-option", action="append", default=[], metavar="NAME=VALUE")
    scan = commands.add_parser("scan", help="scans by index, and of a fragmented file")
    scan.add_argument("--rows", type=int, default=ScanSettings().rows)
    scan.add_argument("--repeats", type=int, default=ScanSettings().repeats)
    for each in (oltp, scan):
        each.add_argument("--target", required=True, help=_TARGET_HELP)
        each.add_argument("--file-system", choices=get_args(FileSystem), default="ext4")
        each.add_argument(
            "--volume-size", type=_size, default=4 << 30, help="size of hemi: targets"
        )
        each.add_argument("--hemi", type=Path, default=Path("hemi"), help="path of hemi")
        each.add_argument("--wipe", action="append", default=[], metavar="TARGET")
        each.add_argument("--pool-share", type=float, default=standard.pool_share)
        each.add_argument("--seed", type=int, default=standard.seed)
        each.add_argument(
            "--work-directory", type=Path, help="directory for sockets; default: /tmp"
        )
        each.add_argument("--output", type=Path, help="JSON file of all results")
    return parser


def _table(result: OltpResult | ScanResult) -> str:
    lines = []
    if isinstance(result, ScanResult):
        for scan in result.scans:
            rate = scan.read_bytes / 1e6 / scan.seconds if scan.seconds else 0.0
            lines.append(
                f"{scan.comparison:>7}  {scan.subject:<36} {scan.seconds:9.3f} s "
                f"{scan.read_bytes / 1e6:9.1f} MB read {rate:8.1f} MB/s"
            )
        for name, layout in result.layouts.items():
            lines.append(f"{name}: {layout.fragments} fragments of {layout.file_bytes} bytes")
        return "\n".join(lines)
    lines += [f"differs from the standard: {said}" for said in result.deviations]
    lines.append("place threads      tps  p50 ms  p95 ms  p99 ms  max ms errors reconn little")
    for one in result.placements:
        for step in one.steps:
            if (report := step.report) is None:
                lines.append(f"{one.placement:>5} {step.threads:7} broken off")
                continue
            ranks = " ".join(f"{step.percentiles_ms[rank] or 0:7.2f}" for rank in (50, 95, 99))
            little = step.audit.little if step.audit else None
            lines.append(
                f"{one.placement:>5} {step.threads:7} {report.transactions_per_second:8.1f} "
                f"{ranks} {report.latency_max_ms:7.1f} {report.ignored_errors:6} "
                f"{report.reconnects:6} {little or 0:6.3f}{'  warm-up' if step.warm_up else ''}"
            )
        for when, findings in (
            ("load", one.checks_after_load),
            ("run", one.checks_after_run),
        ):
            if findings:
                held = sum(f.holds for f in findings)
                lines.append(f"{one.placement} after the {when}: {held}/{len(findings)} conditions")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
