"""Parses targets as named on the command line."""

from __future__ import annotations

import stat
from pathlib import Path

from hemi_lab.errors import UsageError
from hemi_lab.targets.base import Target
from hemi_lab.targets.device import DeviceTarget
from hemi_lab.targets.file import FileTarget
from hemi_lab.targets.hosts import HostsTarget
from hemi_lab.targets.nbd import SCHEMES, NbdTarget
from hemi_lab.targets.setup import SetupTarget
from hemi_lab.targets.simulated import SimulatedTarget
from hemi_lab.targets.volume import VolumeTarget
from hemi_lab.units import parse_size

HELP = (
    "a file (PATH or file:PATH,size=1GiB), a block device (/dev/…), an NBD export "
    "(nbd://HOST[:PORT]/[EXPORT], nbd+unix:///[EXPORT]?socket=PATH), a hemi volume "
    "(hemi:VOLUME or hemi:CONTROL-SOCKET), a volume made for the run (setup:FILE.toml, "
    "setup:FILE.toml,policy=all,size=1GiB), or a simulated drive or volume (sim:PRESET, "
    "sim:PRESET+PRESET,policy=first, sim:SYSTEM.toml; also scale=4, volume=1GiB); a file or "
    "device on many hosts (PATH,size=1GiB,hosts=HOST+HOST)"
)


def parse(text: str, hosts: list[str] | None = None) -> Target:
    """Returns the target of that name, on these hosts if there are any. Opens nothing."""
    if hosts or ",hosts=" in text:
        return _on_hosts(text, hosts or [])
    kind, _, rest = text.partition(":")
    if text.startswith(SCHEMES):
        return NbdTarget(text)
    if kind == "sim":
        name, options = _options(text, rest, {"policy", "scale", "volume", "engine"})
        return SimulatedTarget.named(text, name, options)
    if kind == "hemi":
        name, options = _options(text, rest, {"nbd"})
        return VolumeTarget(text, name, options.get("nbd"))
    if kind == "setup":
        name, options = _options(text, rest, {"policy", "size"})
        size = _size(text, options.get("size"))
        return SetupTarget(text, Path(name), options.get("policy"), size)
    if kind == "file":
        name, options = _options(text, rest, {"size"})
        return FileTarget(text, Path(name), _size(text, options.get("size")))
    if kind in ("device", "") or ":" not in text or "/" in kind:
        path = Path(rest if kind == "device" else text)
        if kind == "device" or _is_device(path):
            name, comma, _ = str(path).partition(",")
            if comma and not path.exists() and Path(name).exists():
                raise UsageError(
                    f"target {text!r}: a device has no options, all of it is used",
                    f"Name {name}; a plan's span_percent uses part of it.",
                )
            return DeviceTarget(text, path)
        name, options = _options(text, str(path), {"size"})
        return FileTarget(text, Path(name), _size(text, options.get("size")))
    raise UsageError(f"target {text!r}: there is no kind {kind!r}", f"Name {HELP}.")


def _on_hosts(text: str, hosts: list[str]) -> Target:
    rest = text
    for kind in ("file:", "device:"):
        rest = rest.removeprefix(kind)
    name, options = _options(text, rest, {"size", "hosts"})
    if text.startswith(SCHEMES) or not name.startswith("/"):
        raise UsageError(
            f"target {text!r}: only files and devices are on hosts", "Give a whole path."
        )
    named = [*hosts, *(host for host in options.get("hosts", "").split("+") if host)]
    if not named:
        raise UsageError(f"target {text!r}: hosts names none", "As in hosts=db1+db2:8765.")
    return HostsTarget(text, name, _size(text, options.get("size")), named)


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISBLK(path.stat().st_mode)
    except OSError:
        return str(path).startswith("/dev/")


def _size(text: str, size: str | None) -> int | None:
    if size is None:
        return None
    try:
        return parse_size(size)
    except ValueError as error:
        raise UsageError(f"target {text!r}: size: {error}", "As in file:PATH,size=1GiB.") from error


def _options(text: str, rest: str, known: set[str]) -> tuple[str, dict[str, str]]:
    name, *parts = rest.split(",")
    options = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals or key not in known:
            right = ", ".join(f"{key}=…" for key in sorted(known))
            raise UsageError(f"target {text!r}: there is no option {part!r}", f"There are {right}.")
        options[key] = value
    if not name:
        raise UsageError(f"target {text!r}: nothing is named", f"Name {HELP}.")
    return name, options
