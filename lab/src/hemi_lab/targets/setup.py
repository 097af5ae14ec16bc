"""A hemi volume from a set-up file. The lab creates it, serves it and removes it again."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from hemi_lab import tool
from hemi_lab.drivers.base import Ceiling, Driver, Outcome
from hemi_lab.drivers.fio.driver import FioDriver, find_fio
from hemi_lab.drivers.load.driver import find_load
from hemi_lab.drivers.real import RealDriver
from hemi_lab.drivers.simulated import INSTALL
from hemi_lab.errors import UsageError
from hemi_lab.steps import Step, StepResult
from hemi_lab.targets.base import Description, Hazards, Needs, check_legs, check_room
from hemi_lab.targets.served import METADATA_BYTES, ServedVolume
from hemi_lab.targets.volume import VolumeTarget
from hemi_lab.units import Size, Time, shown_size, shown_time
from hemi_lab.workload import Strict

Policy = Literal["first", "paper", "all", "write-behind"]


class SetupLeg(Strict):
    """A file, with a delay added to its answers."""

    name: str | None = None
    folder: str | None = None
    """Parent of the new directory of its file. By default the volume's."""
    delay: Annotated[Time, Field(ge=0, le=60)] = 0.0


class Setup(Strict):
    """A volume as its set-up file describes it."""

    title: str = ""
    size: Size = 256 << 20
    policy: Policy = "first"
    """`all` is a plain mirror: every write waits for every leg."""
    folder: str | None = None
    """Parent of the new directory of the legs' files. By default the system's temporary
    directory."""
    direct: bool = True
    """True if the legs bypass the page cache, which not every file system can."""
    legs: Annotated[list[SetupLeg], Field(min_length=2, max_length=8)]
    settings: Annotated[dict[str, str | int | float | bool], Field(default_factory=dict)]
    """hemi's own settings by dotted key, as in `hemi serve --set`."""

    @field_validator("size")
    @classmethod
    def _whole_blocks(cls, size: int) -> int:
        if size % 4096 or size < 1 << 20:
            raise ValueError("write a multiple of 4096 bytes, 1 MiB or more")
        return size


class SetupTarget:
    """A volume that exists only while it is measured."""

    def __init__(self, text: str, file: Path, policy: str | None, size: int | None) -> None:
        self.text = text
        # Two policies over one file are two targets.
        self.path = text
        changed: dict[str, Any] = {"policy": policy, "size": size}
        self._setup = _read(file, {key: value for key, value in changed.items() if value})

    def describe(self) -> Description:
        """Describes the volume from its file. Creates nothing."""
        setup = self._setup
        legs = [
            f"{leg.name or f'leg {number}'} (file"
            + (f", {shown_time(leg.delay)} later)" if leg.delay else ")")
            for number, leg in enumerate(setup.legs)
        ]
        return Description(
            self.text,
            "volume",
            bytes=setup.size,
            model=setup.title or f"hemi volume of {shown_size(setup.size)}",
            logical_block_bytes=4096,
            policy=setup.policy,
            legs=legs,
        )

    def hazards(self) -> Hazards:
        """Returns none, since its files are new."""
        return Hazards()

    def check(self, needs: Needs) -> None:
        """Raises if an engine, hemi, or room for the legs is missing."""
        find_fio()
        tool.find("hemi", "HEMI", INSTALL)
        if needs.timed:
            find_load()
        check_legs(self.text, needs, range(len(self._setup.legs)))
        each = self._setup.size + METADATA_BYTES
        for named, count in Counter(self._folders()).items():
            folder = Path(named or tempfile.gettempdir())
            if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
                raise UsageError(
                    f"target {self.text!r}: folder = {folder}: it is no writable directory",
                    "Name one that is there.",
                )
            check_room(f"target {self.text!r}: it needs", folder, count * each)

    def _folders(self) -> list[str | None]:
        return [leg.folder or self._setup.folder for leg in self._setup.legs]

    @contextmanager
    def served(self) -> Iterator[tuple[VolumeTarget, ServedVolume]]:
        """Creates and serves the volume. If the block fails, the volume is removed."""
        self.check(Needs())
        volume = ServedVolume(
            self._setup.size,
            [leg.delay for leg in self._setup.legs],
            self._setup.policy,
            self._setup.direct,
            self._setup.settings,
            self._folders(),
        )
        try:
            volume.start()
            yield VolumeTarget(f"hemi:{volume.control}", str(volume.control), volume.uri), volume
        except BaseException:
            # Leave nothing over, even on Ctrl-C.
            volume.remove()
            raise

    def open(self, seed: int) -> Driver:
        """Creates and serves the volume."""
        with self.served() as (served, volume):
            driver = served.open(seed)
            assert isinstance(driver, FioDriver)
            return _Leaving(RealDriver(driver, driver.faults), volume)


class _Leaving:
    """A driver that removes its volume when closed."""

    def __init__(self, driver: RealDriver, volume: ServedVolume) -> None:
        self.name, self.version, self.notes = driver.name, driver.version, driver.notes
        self.notes.append(f"the volume was made and served by: {volume.shown()}")
        self.faults = driver.faults
        self._driver = driver
        self._volume = volume

    @property
    def capacity(self) -> int:
        """Size of the volume in bytes."""
        return self._driver.capacity

    @property
    def block(self) -> int:
        """Smallest request in bytes."""
        return self._driver.block

    def purge(self) -> Outcome:
        """Trims the volume."""
        return self._driver.purge()

    def run(self, step: Step) -> StepResult:
        """Runs a step as on any volume."""
        return self._driver.run(step)

    def ceiling(self, outstanding: int) -> Ceiling | None:
        """Returns fio's ceiling."""
        return self._driver.ceiling(outstanding)

    def close(self) -> None:
        """Ends the engines, stops the volume and removes its files."""
        try:
            self._driver.close()
        finally:
            self._volume.remove()


def _read(file: Path, changed: dict[str, Any]) -> Setup:
    try:
        table = tomllib.loads(file.read_text())
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}", "Name a set-up file; docs/lab/plans/freeze.md has one."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: {error}", "A set-up is a TOML file.") from error
    try:
        return Setup.model_validate(table | changed)
    except ValidationError as error:
        problems = [
            f"{file}: {'.'.join(map(str, problem['loc']))} = {problem['input']!r}: {problem['msg']}"
            for problem in error.errors()
        ]
        raise UsageError(
            "\n".join(problems), "docs/lab/plans/freeze.md says what a set-up may have."
        ) from error
