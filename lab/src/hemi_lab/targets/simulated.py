"""A simulated drive or volume."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from hemi_lab.drivers.base import Driver
from hemi_lab.drivers.simulated import SimulatedDriver
from hemi_lab.errors import ToolError, UsageError
from hemi_lab.targets.base import Description, Hazards, Needs, refuse_freezes
from hemi_lab.targets.drives import drive

POLICIES = ("single", "all", "write-behind", "paper", "paper-unsafe", "first", "oracle")


class SimulatedTarget:
    """The system of a `hemi sim session`."""

    def __init__(self, text: str, spec: str) -> None:
        self.text = text
        self.path = text
        self._spec = spec
        self._system: dict[str, Any] = tomllib.loads(spec).get("system", {})
        self._bytes: int | None = None

    @staticmethod
    def named(text: str, name: str, options: dict[str, str]) -> SimulatedTarget:
        """Builds a target from presets joined by `+`, or from a file."""
        if name.endswith(".toml") and "+" not in name and not _is_preset(Path(name)):
            return SimulatedTarget(text, _from_file(text, Path(name), options))
        legs = [
            str(Path(leg).resolve()) if leg.endswith(".toml") else leg for leg in name.split("+")
        ]
        policy = options.get("policy", "single" if len(legs) == 1 else "first")
        if policy not in POLICIES:
            raise UsageError(
                f"target {text!r}: policy = {policy}: there is no such policy",
                f"There are {', '.join(POLICIES)}.",
            )
        lines = [
            f"title = {quoted(text)}",
            "[system]",
            f"policy = {quoted(policy)}",
            f"legs = [{', '.join(quoted(leg) for leg in legs)}]",
        ]
        if "scale" in options:
            if not options["scale"].isdigit() or int(options["scale"]) < 1:
                raise UsageError(
                    f"target {text!r}: scale = {options['scale']}", "Write a whole number above 0."
                )
            lines.append(f"scale = {options['scale']}")
        if "volume" in options:
            lines.append(f"volume = {quoted(options['volume'])}")
        return SimulatedTarget(text, "\n".join([*lines, ""]))

    @property
    def spec(self) -> str:
        """Text of the session's file, which identifies a result."""
        return self._spec

    def describe(self) -> Description:
        """Describes the target from its spec. The capacity is known after a check."""
        legs = [str(leg) for leg in self._system.get("legs", [])]
        scale = int(self._system.get("scale", 1))
        return Description(
            self.text,
            "simulated",
            simulated=True,
            bytes=self._bytes,
            model=" + ".join(legs),
            policy=self._system.get("policy", "first"),
            legs=legs,
            scale=scale,
            drives=[drive(leg, scale) for leg in legs],
            logical_block_bytes=512,
        )

    def hazards(self) -> Hazards:
        """Returns none."""
        return Hazards()

    def check(self, needs: Needs) -> None:
        """Raises if a session cannot be opened. Closes it again."""
        refuse_freezes(self.text, needs)
        try:
            driver = SimulatedDriver(self._spec, 1)
        except ToolError as error:
            raise _refused(self.text, error.message) from error
        self._bytes = driver.capacity
        driver.close()

    def open(self, seed: int) -> Driver:
        """Opens a session of its own."""
        return SimulatedDriver(self._spec, seed)


def _refused(text: str, said: str) -> UsageError:
    """Returns hemi's own message, without the place in the session's temporary file."""
    what, way_out = said.strip(), "hemi sim presets lists drives."
    found = re.fullmatch(
        r"error: (?:\S+/system\.toml(?::\d+:\d+)?: )?(.*?)(?:\nhint: (.*))?", what, re.DOTALL
    )
    if found is not None:
        what, way_out = found[1].strip(), (found[2] or way_out).strip()
    return UsageError(f"target {text!r}: {what}", way_out)


def _is_preset(path: Path) -> bool:
    """Returns true for a preset's file, which describes a drive. A session's describes a system."""
    try:
        return "system" not in tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError):
        return False


def _from_file(text: str, path: Path, options: dict[str, str]) -> str:
    if options:
        raise UsageError(f"target {text!r}: a file has its options in it", "Write them there.")
    try:
        spec = path.read_text()
        tomllib.loads(spec)
    except OSError as error:
        raise UsageError(f"target {text!r}: {path}: {error.strerror}", "Name a file.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"target {text!r}: {path}: {error}", "It has to be TOML.") from error
    return spec


def quoted(text: str) -> str:
    """Returns the text as a TOML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
