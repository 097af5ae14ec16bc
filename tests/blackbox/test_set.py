"""Settings that change while a volume is served, and the configuration file that keeps them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from hemi_harness import HEMI, Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB, check_message, leg_bytes
from hemi_harness.journal import Journal
from hemi_harness.sandbox import run_any, run_fails

SIZE = 64 * MIB


def settings(volume: Volume) -> dict[str, dict[str, Any]]:
    listed = json.loads(volume.command("set", "--json"))
    return {setting["key"]: setting for setting in listed}


def refused(volume: Volume, *argv: str, code: int, says: tuple[str, ...]) -> None:
    got, printed = run_fails(HEMI, *argv, "--control", volume.control)
    assert got == code, printed
    check_message(printed, says)


def configured(sandbox: Sandbox) -> tuple[Volume, Path]:
    """Returns a volume that is served from a file with comments, through a link."""
    legs: list[str | Path] = [sandbox.file(f"leg{i}.img", leg_bytes(SIZE)) for i in range(2)]
    volume = Volume(sandbox, legs)
    volume.create(SIZE)
    real = sandbox.path("real.toml")
    real.write_text(
        "# Ours.\n"
        f"control = {json.dumps(str(volume.control))}\n"
        "legs = [\n"
        f"  {json.dumps(str(legs[0]))}, # fast\n"
        f"  {{ path = {json.dumps(str(legs[1]))}, name = \"slow\" }}, # slow\n"
        "]\n"
        f"exports = [{{ nbd = {json.dumps(f'unix:{volume.socket}')} }}]\n"
        "\n"
        "[engine.exposure]\n"
        'bytes = "32MiB" # as agreed\n'
    )
    real.chmod(0o640)
    link = sandbox.path("db.toml")
    link.symlink_to(real.name)
    volume.serve_with(link)
    volume.start()
    return volume, link


def test_a_bound_changes_under_load_and_holds(sandbox: Sandbox) -> None:
    options = ("--set", "engine.out_after=1h")
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=options)
    journal = Journal(volume.uri, blocks=4096)
    assert journal.run(200)
    volume.inject(1, "--freeze", "1h")
    # A block that is written again is not exposed twice.
    for _ in range(20):
        assert journal.run(500)
        if volume.status()["exposure"]["bytes"] > 2 * MIB:
            break
    assert volume.status()["exposure"]["bytes"] > 2 * MIB
    # Below the held amount: writers wait, and nothing is lost.
    volume.command("set", "exposure=1MiB")
    assert volume.status()["exposure"]["bound_bytes"] == MIB
    before = volume.status()["clients"]["writes"]["total"]["count"]
    done = threading.Event()

    def write() -> None:
        assert journal.run(100)
        done.set()

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert not done.wait(3), "writers wait"
    assert volume.status()["clients"]["writes"]["total"]["count"] <= before + 1
    volume.command("set", "engine.exposure.bytes=64MiB")
    assert done.wait(60), "there is room again"
    writer.join()
    volume.inject(1, "--clear")
    volume.wait_converged()
    journal.verify()


def test_every_live_setting_takes_the_value_that_it_has(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    before = settings(volume)
    same = [f"{key}={it['value']}" for key, it in before.items() if it["live"]]
    assert len(same) > 15
    volume.command("set", *same)
    assert settings(volume) == before
    table = volume.command("set")
    for key, it in before.items():
        assert key in table
        if it["live"]:
            assert it["why_not"] is None
            continue
        refused(volume, "set", f"{key}=1", code=1, says=(key, it["why_not"], "systemctl restart"))


def test_what_makes_no_sense_is_refused_and_nothing_changes(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    before = settings(volume)
    for argv, says in (
        (("exposure",), ("KEY=VALUE",)),
        (("exposure=1K",), ("engine.exposure.bytes", "1MiB to 64GiB")),
        (("exposure=64MiB", "wait.floor=never"), ("engine.wait.floor=never",)),
        (("engine.wait.ceiling=1ms",), ("engine.wait.floor",)),
        (("expsoure=1M",), ("did you mean engine.exposure.bytes",)),
        (("exposure=1M", "engine.exposure.bytes=2M"), ("given twice",)),
        (("exposure=64MiB", "--write-config"), ("was not started from a configuration file",)),
    ):
        refused(volume, "set", *argv, code=2, says=says)
    assert settings(volume) == before
    told = volume.command("set", "exposure=64MiB", "engine.policy=paper")
    assert "engine.exposure.bytes = 64MiB" in told
    assert "--set engine.exposure.bytes=64MiB --set engine.policy=paper" in told
    assert volume.status()["policy"] == "paper"


def test_a_change_is_shown_and_written_where_it_stands(sandbox: Sandbox) -> None:
    volume, link = configured(sandbox)
    before = link.read_text()
    told = volume.command("set", "exposure=64MiB")
    assert '  - bytes = "32MiB" # as agreed\n  + bytes = "64MiB" # as agreed\n' in told
    assert "line 10" in told
    assert link.read_text() == before
    told = volume.command("set", "exposure=48MiB", "wait.floor=10ms", "--write-config")
    assert f"written to {link}" in told
    changed = before.replace("32MiB", "48MiB") + '\n[engine.wait]\nfloor = "10ms"\n'
    assert link.read_text() == changed
    assert link.is_symlink()
    assert link.stat().st_mode & 0o777 == 0o640
    volume.restart()
    assert settings(volume)["engine.exposure.bytes"]["value"] == "48MiB"
    assert settings(volume)["engine.wait.floor"]["value"] == "10ms"
    # An invalid file is noticed before anything changes.
    link.write_text("legs = [")
    refused(volume, "set", "exposure=8MiB", "--write-config", code=1, says=(str(link),))
    assert settings(volume)["engine.exposure.bytes"]["value"] == "48MiB"
    told = volume.command("set", "exposure=8MiB")
    assert "--set engine.exposure.bytes=8MiB" in told, "without the file it says what to do"


def test_legs_that_come_and_go_are_written_into_the_file(sandbox: Sandbox) -> None:
    volume, link = configured(sandbox)
    before = link.read_text()
    new = sandbox.file("new.img", leg_bytes(SIZE))
    told = volume.command("leg", "add", new, "--name", "new")
    entry = f'{{ path = {json.dumps(str(new))}, name = "new" }}'
    assert f"  +   {entry},\n" in told
    assert link.read_text() == before
    volume.wait_converged()
    told = volume.command("leg", "detach", 2)
    assert "line" not in told, "it was never in the file"
    told = volume.command("leg", "attach", new, "--name", "new", "--wipe", "--write-config")
    assert link.read_text() == before.replace("# slow\n", f"# slow\n  {entry},\n")
    volume.wait_converged()
    volume.command("leg", "detach", 1, "--write-config")
    assert "slow" not in link.read_text()
    other = sandbox.file("other.img", leg_bytes(SIZE))
    volume.command("leg", "replace", 1, other, "--write-config")
    volume.wait_converged()
    assert json.dumps(str(other)) in link.read_text()
    # The file describes the volume as it is now.
    volume.restart()
    volume.wait_converged()
    assert len(volume.status()["legs"]) == 3


def test_volumes_are_listed_and_what_is_hidden_is_named(sandbox: Sandbox) -> None:
    run_directory = sandbox.path("run")
    run_directory.mkdir()
    env = dict(os.environ, XDG_RUNTIME_DIR=str(run_directory))
    folder = run_directory / "hemi"
    folder.mkdir()
    volumes = {}
    for name in ("one", "two"):
        legs: list[str | Path] = [sandbox.file(f"{name}{i}.img", leg_bytes(SIZE)) for i in range(2)]
        volume = Volume(sandbox, legs)
        volume.socket = folder / f"{name}.nbd"
        volume.control = folder / f"{name}.sock"
        volume.create(SIZE, "--name", name)
        volume.start()
        volumes[name] = volume
    code, out, err = run_any(HEMI, "list", env=env)
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert {"one", "two"} <= set(rows), (out, err)
    assert "64 MiB" in rows["one"] and "2 of 2" in rows["one"]
    code, out, err = run_any(HEMI, "list", "--json", env=env)
    listed = {volume["name"]: volume for volume in json.loads(out)["volumes"]}
    assert listed["two"]["control"] == str(volumes["two"].control)
    assert listed["two"]["size_bytes"] == SIZE
    # A volume that hangs is named, and delays nothing for long.
    volumes["two"].signal(signal.SIGSTOP)
    try:
        code, out, err = run_any(HEMI, "list", env=env)
        assert code == 1 and "one" in out, (out, err)
        assert str(volumes["two"].control) in err and "did not answer" in err
    finally:
        volumes["two"].signal(signal.SIGCONT)
    volumes["two"].stop()
    assert "two" not in hemi_list(env)


def hemi_list(env: dict[str, str]) -> str:
    return run_any(HEMI, "list", env=env)[1]


def test_a_user_without_rights_is_told_so(sandbox: Sandbox) -> None:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("only root can become another user")
    folder = sandbox.path("open")
    (folder / "hemi").mkdir(parents=True)
    for path in (folder, folder / "hemi"):
        path.chmod(0o755)
    volume = Volume.on_files(sandbox, SIZE, start=False)
    volume.control = folder / "hemi" / "vol.sock"
    volume.start()
    other = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    env = dict(os.environ, XDG_RUNTIME_DIR=str(folder))
    if run_any(*other, "test", "-x", HEMI)[0] or run_any(*other, "ls", folder)[0]:
        pytest.skip("the other user can reach neither hemi nor the socket")
    code, _, err = run_any(*other, HEMI, "list", env=env)
    assert code == 1
    assert f"not looked at: {volume.control}: permission denied" in err
    code, _, err = run_any(*other, HEMI, "set", env=env)
    assert code == 1 and "permission denied" in err


def test_the_result_of_a_scrub_is_kept(sandbox: Sandbox) -> None:
    state = sandbox.path("state")
    volume = Volume.on_files(sandbox, SIZE, start=False)
    volume.env = dict(os.environ, STATE_DIRECTORY=str(state))
    volume.start()
    volume.wait_converged()
    assert volume.status()["scrub"]["last"] is None
    volume.command("scrub")
    last = volume.status()["scrub"]["last"]
    assert (last["mismatched_bytes"], last["repaired"], last["stopped"]) == (0, False, False)
    assert last["took_ns"] > 0
    assert "no difference was found" in volume.shown()
    volume.restart()
    assert volume.status()["scrub"]["last"] == last
    offset = leg_bytes(SIZE) - 20 * MIB
    with Path(volume.legs[1]).open("r+b") as leg:
        leg.seek(offset)
        leg.write(b"\xff" * 4096)
        leg.flush()
        os.fsync(leg.fileno())
    run_fails(HEMI, "scrub", "--control", volume.control)
    last = volume.status()["scrub"]["last"]
    assert last["mismatched_bytes"] == 4096 and not last["repaired"]
    volume.command("scrub", "--repair", "--from", "0")
    assert volume.status()["scrub"]["last"]["repaired"]
    volume.kill()
    volume.start()
    assert volume.status()["scrub"]["last"]["repaired"]
    assert "4 KiB differed" in volume.shown()


def test_a_rebuild_says_when_it_will_end(sandbox: Sandbox) -> None:
    slowly = ("--set", "engine.leg_window=1", "--set", "engine.drain_bytes=64KiB")
    volume = Volume.on_files(sandbox, 256 * MIB, inject=True, options=slowly)
    with volume.client() as client:
        for at in range(0, 256 * MIB, MIB):
            client.write(at, os.urandom(MIB))
        client.flush()
    new = sandbox.file("new.img", leg_bytes(256 * MIB))
    volume.command("leg", "add", new)
    volume.inject(2, "--delay", "100ms")
    seen: list[dict[str, Any]] = []

    def told() -> bool:
        leg = volume.status()["legs"][2]
        if leg["remaining_ns"] and leg["progress_permille"] is not None:
            seen.append(leg)
        return len(seen) >= 3 or leg["owed_bytes"] == 0

    wait_until("the rebuild tells of its end", told)
    assert seen, "it was watched"
    assert all(leg["drain_bytes_per_s"] > 0 for leg in seen)
    shares = [leg["progress_permille"] for leg in seen]
    assert shares == sorted(shares)
    volume.inject(2, "--clear")
    volume.wait_converged()
    leg = volume.status()["legs"][2]
    assert leg["remaining_ns"] is None and leg["progress_permille"] is None
