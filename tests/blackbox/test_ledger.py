"""The ledger: its facts outlive a kill, and nothing is guessed without it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hemi_harness import Sandbox, Volume, hemi, hemi_fails
from hemi_harness.hemi import HEMI, MIB, data_offset
from hemi_harness.journal import Journal
from hemi_harness.sandbox import run, run_any

SIZE = 32 * MIB
MEMORY = Path("/dev/shm")


def on_ledger(sandbox: Sandbox) -> tuple[Volume, Path]:
    """Returns a served volume with a ledger, and the ledger's directory."""
    directory = sandbox.directory_in(MEMORY)
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=("--ledger", directory))
    return volume, directory


def killed(sandbox: Sandbox) -> tuple[Volume, Path, Journal]:
    """Returns a volume as from `on_ledger`, killed while leg 0 was frozen under writes.

    Leg 0 had the authority until then."""
    volume, directory = on_ledger(sandbox)
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    events: dict[int, Callable[[], object]] = {
        300: lambda: volume.inject(0, "--freeze", "1h"),
        700: volume.kill,
    }
    assert not journal.run(1_000_000, at=events)
    return volume, directory, journal


def inspected(volume: Volume, directory: Path, prefix: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the report of `hemi inspect` on the volume's ledger."""
    argv = ("inspect", "--json", *volume.legs, "--ledger", directory)
    said = run(*prefix, HEMI, *argv) if prefix else hemi(*argv)
    (ledger,) = json.loads(said)["ledgers"]
    assert isinstance(ledger, dict)
    return ledger


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
    # If it is restored, it counts again. It must be a file that nobody else can write.
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
    # It is in the run directory now.
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


def test_inspect_shows_a_ledger_that_is_in_use(sandbox: Sandbox) -> None:
    volume, directory = on_ledger(sandbox)
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    seen: list[dict[str, Any]] = []
    look = lambda: seen.append(inspected(volume, directory))  # noqa: E731
    assert journal.run(4000, at={number: look for number in range(200, 4000, 400)})
    for ledger in seen:
        assert ledger["state"] in ("sound", "changing"), ledger
        assert (ledger["in_use"], ledger["used_by"]) == (True, volume.process.pid)
        assert ledger["next_start"] == {"outcome": "served"}
    assert any(ledger["content"]["authorities"] for ledger in seen if ledger["content"])
    said = hemi("inspect", *volume.legs, "--ledger", directory)
    assert "the volume is being served" in said
    journal.disconnect()
    # It took no lock and left nothing behind.
    volume.stop()
    ledger = inspected(volume, directory)
    assert (ledger["state"], ledger["path"]) == ("absent", None)
    assert ledger["next_start"] == {
        "outcome": "by-legs",
        "restarted": False,
        "compares_bytes": 0,
    }


def test_inspect_tells_what_a_start_makes_of_the_ledger(sandbox: Sandbox) -> None:
    volume, directory, journal = killed(sandbox)
    path = ledger_in(directory)
    before = path.read_bytes(), path.stat().st_mtime_ns
    ledger = inspected(volume, directory)
    assert (ledger["state"], ledger["in_use"], ledger["path"]) == ("sound", False, str(path))
    assert ledger["content"]["of_this_boot"]
    touched = {one["leg"]: one["touched"] for one in ledger["content"]["authorities"]}
    assert touched[1] > 0, "leg 0 was frozen, and the other has taken over"
    start = ledger["next_start"]
    assert start["outcome"] == "by-ledger"
    assert start["compares_bytes"] == sum(touched.values()) * MIB
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before

    # A ledger of another boot of the machine.
    if os.geteuid() == 0:
        boot = sandbox.path("boot_id")
        boot.write_text(f"{uuid.uuid4()}\n")
        mount = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
        other = inspected(volume, directory, ("unshare", "--mount", "sh", "-c", mount, str(boot)))
        assert (other["state"], other["content"]["of_this_boot"]) == ("sound", False)
        assert other["next_start"]["outcome"] == "by-legs"
        assert other["next_start"]["restarted"]

    # A ledger that others may write.
    path.chmod(0o666)
    ledger = inspected(volume, directory)
    assert ledger["state"] == "untrusted"
    assert not ledger["next_start"].pop("accept_loss")
    volume.start_fails("is not a regular file of this user")
    path.chmod(0o600)

    # A damaged ledger, and one of another volume.
    content = bytearray(before[0])
    content[8192] ^= 1
    path.write_bytes(content)
    ledger = inspected(volume, directory)
    assert (ledger["state"], ledger["next_start"]["outcome"]) == ("damaged", "refused")
    assert ledger["next_start"]["accept_loss"]
    assert "record of region 0 is damaged" in ledger["problem"]
    path.write_bytes(bytes(len(content)))
    assert inspected(volume, directory)["state"] == "foreign"

    # No ledger.
    path.unlink()
    ledger = inspected(volume, directory)
    assert (ledger["state"], ledger["looked_at"]) == ("absent", [str(path)])
    said = hemi("inspect", *volume.legs, "--ledger", directory)
    assert "is refused without --accept-loss" in said
    assert "is missing" in said
    path.write_bytes(before[0])
    path.chmod(0o600)
    volume.start()
    journal.settle()
    journal.disconnect()


def promotion(leg: Path, directory: Path, *options: str, code: int) -> dict[str, Any]:
    """Returns the losses that `hemi promote` reports."""
    found, out, error = run_any(HEMI, "promote", leg, "--ledger", directory, "--json", *options)
    assert found == code, error
    report = json.loads(out)
    assert isinstance(report, dict)
    return report


def test_a_promotion_asks_the_ledger_and_ends_it(sandbox: Sandbox) -> None:
    volume, directory, journal = killed(sandbox)
    journal.disconnect()
    frozen, other = (Path(leg) for leg in volume.legs)
    path = ledger_in(directory)
    said = promotion(frozen, directory, code=3)
    assert said["ledger"] == {"state": "read", "path": str(path)}
    assert said["uncertain_regions"] > 0
    assert sum(one["length_bytes"] for one in said["uncertain"]) == said["uncertain_regions"] * MIB
    said = promotion(other, directory, code=3)
    assert said["lacks_bytes"] == 0, "it has decided what was written last"
    assert path.exists(), "nothing was changed"

    said = promotion(other, directory, "--accept-loss", code=0)
    assert said["ledger"]["state"] == "read"
    assert not path.exists()
    said = promotion(other, directory, code=3)
    assert said["ledger"] == {"state": "none-relied-on"}
    volume.legs = [other]
    volume.start()
    journal.settle()
    journal.disconnect()


def test_a_promotion_goes_by_the_configuration(sandbox: Sandbox) -> None:
    """The refusal of a start names a command that knows the ledger and the leg's options."""
    volume, directory, journal = killed(sandbox)
    journal.disconnect()
    frozen, other = volume.legs
    away = sandbox.path("away")
    Path(other).rename(away)
    config = sandbox.path("db.toml")
    # A volume without a name is called by the beginning of its id.
    name = ledger_in(directory).name[:8]
    text = f"""
volume = "{name}"
ledger = "{directory}"
legs = [{{ path = "{frozen}", name = "ssd" }}, {{ path = "{other}", name = "hdd" }}]
exports = [{{ nbd = "unix:{volume.socket}" }}]
control = "{volume.control}"
"""
    config.write_text(text)
    refused = hemi_fails("serve", config, says=("leg hdd is absent", "is missing"))
    command = f"hemi promote {config} ssd"
    assert f"'{command}' says what would be lost" in refused, refused
    assert "hemi create" not in refused, "the volume exists"
    assert not any("promote" in line and "--accept-loss'" in line for line in refused.splitlines())

    told = hemi_fails(*command.split()[1:], says=("nothing was changed",))
    assert "by the ledger" in told and "The ledger is missing" not in told, told
    by_path = hemi_fails("promote", config, frozen, says=("by the ledger",))
    assert by_path == told
    hemi_fails("promote", config, "ssb", says=("no leg of", "ssd, hdd"))
    hemi_fails("promote", config, says=("no leg is named", f"hemi promote {config} LEG"))
    config.write_text(text.replace(name, "other"))
    says = (f'volume "{name}", not to "other"',)
    hemi_fails("promote", config, "ssd", "--accept-loss", says=says)
    assert ledger_in(directory).exists(), "nothing was changed"
    config.write_text(text)
    hemi("promote", config, "ssd", "--accept-loss")
    assert not list(directory.iterdir())

    # Without a configuration file the command says what it needs.
    Path(frozen).rename(sandbox.path("gone"))
    away.rename(other)
    alone = ("serve", "--leg", other, "--ledger", directory, "--control", volume.control)
    hemi_fails(*alone, says=(f"hemi promote {other} --ledger {directory}",))


def test_the_ledger_names_all_that_a_promoted_leg_lacks(sandbox: Sandbox) -> None:
    """Checks that the ledger, not the other leg's pages, names everything that this leg lacks."""
    volume, directory, journal = killed(sandbox)
    journal.disconnect()
    frozen, other = (Path(leg) for leg in volume.legs)
    start = data_offset(SIZE)
    with frozen.open("rb") as one, other.open("rb") as two:
        one.seek(start)
        two.seek(start)
        behind = [at for at in range(SIZE // MIB) if one.read(MIB) != two.read(MIB)]
    assert behind
    said = promotion(frozen, directory, code=3)

    def named(report: dict[str, Any]) -> set[int]:
        stretches = [*report["uncertain"], *report["lacks"]]
        return {
            region
            for stretch in stretches
            for region in range(
                stretch["offset_bytes"] // MIB,
                (stretch["offset_bytes"] + stretch["length_bytes"]) // MIB,
            )
        }

    assert set(behind) <= named(said)
    ledger_in(directory).unlink()
    assert not set(behind) <= named(promotion(frozen, directory, code=3)), "its pages do not know"


def test_a_promotion_says_what_it_cannot_know_without_the_ledger(sandbox: Sandbox) -> None:
    volume, directory, journal = killed(sandbox)
    journal.disconnect()
    frozen, other = (Path(leg) for leg in volume.legs)
    path = ledger_in(directory)
    content = path.read_bytes()
    path.write_bytes(content[:-4096])
    said = promotion(frozen, directory, code=3)
    assert said["ledger"]["state"] == "unknown"
    assert "should have" in said["ledger"]["problem"]
    path.unlink()
    told = hemi_fails("promote", frozen, "--ledger", directory, says=("nothing was changed",))
    assert "nobody knows which regions other legs had taken over" in told
    assert str(path) in told
    said = promotion(other, directory, "--accept-loss", code=0)
    assert said["ledger"] == {
        "state": "unknown",
        "problem": "is missing",
        "looked_at": [str(path)],
    }


def test_a_promotion_is_refused_while_the_ledger_is_in_use(sandbox: Sandbox) -> None:
    volume, directory = on_ledger(sandbox)
    copy = sandbox.path("copy")
    copy.write_bytes(Path(volume.legs[0]).read_bytes())
    hemi_fails("promote", copy, "--ledger", directory, "--accept-loss", says=("in use",))
    volume.stop()
