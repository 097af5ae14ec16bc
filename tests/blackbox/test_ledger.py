"""The ledger: what only it says outlives a kill, and nothing is guessed without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hemi_harness import Sandbox, Volume, hemi, hemi_fails
from hemi_harness.hemi import MIB
from hemi_harness.journal import Journal

SIZE = 32 * MIB
MEMORY = Path("/dev/shm")


def on_ledger(sandbox: Sandbox) -> tuple[Volume, Path]:
    """Returns a served volume with a ledger, and the directory of that."""
    directory = sandbox.directory_in(MEMORY)
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=("--ledger", directory))
    return volume, directory


def killed(sandbox: Sandbox) -> tuple[Volume, Path, Journal]:
    """As `on_ledger`, killed when leg 0 had been frozen under writes, and has been the one that
    decided until then."""
    volume, directory = on_ledger(sandbox)
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    events: dict[int, Callable[[], object]] = {
        300: lambda: volume.inject(0, "--freeze", "1h"),
        700: volume.kill,
    }
    assert not journal.run(1_000_000, at=events)
    return volume, directory, journal


def ledger_in(directory: Path) -> Path:
    (path,) = directory.iterdir()
    return path


def test_a_start_after_a_kill_goes_on_with_the_ledger(sandbox: Sandbox) -> None:
    volume, directory, journal = killed(sandbox)
    before = ledger_in(directory).stat().st_ino
    volume.start()
    journal.settle()
    assert ledger_in(directory).stat().st_ino == before, "it is gone on with in place"
    status = volume.status()["ledger"]
    assert status == {"path": str(ledger_in(directory)), "why_none": None}
    journal.disconnect()
    volume.stop()
    assert not list(directory.iterdir()), "a volume that was closed relies on no ledger"


def test_settled_legs_need_no_ledger(sandbox: Sandbox) -> None:
    volume, directory, journal = killed(sandbox)
    said = hemi("settle", *volume.leg_options(), "--ledger", directory)
    assert str(directory) in said
    assert not list(directory.iterdir())
    said = hemi("settle", *volume.leg_options(), "--ledger", directory)
    assert "rely on no ledger" in said
    volume.options[volume.options.index(directory)] = "none"
    volume.start()
    journal.settle()
    assert volume.status()["ledger"]["path"] is None
    journal.disconnect()


def test_a_missing_ledger_is_not_guessed(sandbox: Sandbox) -> None:
    volume, directory, journal = killed(sandbox)
    away = sandbox.directory_in(MEMORY) / "away"
    path = ledger_in(directory)
    away.write_bytes(path.read_bytes())
    path.unlink()
    volume.start_fails("ledger", "is missing", "--accept-loss", path)
    hemi_fails("settle", *volume.leg_options(), "--ledger", directory, says=("is missing", path))
    # Brought back it counts again. It is a file that nobody else can write.
    path.write_bytes(away.read_bytes())
    path.chmod(0o600)
    volume.start()
    journal.settle()
    journal.disconnect()


def test_a_damaged_ledger_is_not_believed(sandbox: Sandbox) -> None:
    volume, directory, journal = killed(sandbox)
    path = ledger_in(directory)
    content = bytearray(path.read_bytes())
    # The first region's word, after a page of header and one of sequences.
    content[8192] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    volume.start_fails("record of region 0 is damaged", "--accept-loss")
    volume.options.append("--accept-loss")
    volume.start()
    journal.disconnect()
    volume.stop()


def test_a_ledger_that_decides_is_not_done_without(sandbox: Sandbox) -> None:
    volume, directory, journal = killed(sandbox)
    # It lies in the run directory now.
    path = ledger_in(directory)
    run = directory / "hemi"
    run.mkdir()
    path = path.rename(run / path.name)
    volume.env = {"XDG_RUNTIME_DIR": str(directory)}
    volume.options[volume.options.index(directory)] = "none"
    volume.start_fails("hemi settle", path)
    journal.disconnect()


def test_a_directory_on_a_disk_is_refused(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, start=False, options=("--ledger", sandbox.dir))
    volume.start_fails("is not on tmpfs", sandbox.dir, "none")


def test_a_full_tmpfs_is_told_before_anything_is_written(sandbox: Sandbox) -> None:
    full = sandbox.mount_tmpfs(8192)
    volume = Volume.on_files(sandbox, SIZE, start=False, options=("--ledger", full))
    volume.start_fails("needs 12KiB of tmpfs", full)
    assert not list(full.iterdir())


@pytest.mark.parametrize("name", ["container", "KUBERNETES_SERVICE_HOST"])
def test_a_container_s_own_memory_is_not_used_unasked(sandbox: Sandbox, name: str) -> None:
    directory = sandbox.directory_in(MEMORY)
    volume = Volume.on_files(sandbox, SIZE, start=False)
    volume.env = {"XDG_RUNTIME_DIR": str(directory), name: "x"}
    volume.start()
    status = volume.status()["ledger"]
    assert status["path"] is None
    assert "container" in status["why_none"]
    assert "no ledger is kept" in volume.process.output()
    volume.stop()
