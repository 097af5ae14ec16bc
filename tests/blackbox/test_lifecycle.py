"""Create, serve, stop and serve again: data that stays, and messages of refusals."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from hemi_harness import Nbdkit, Sandbox, Volume, hemi, hemi_fails, run, wait_until
from hemi_harness.hemi import MIB, assert_identical, leg_bytes
from hemi_harness.journal import Journal

SIZE = 32 * MIB
# Keeps a leg that a test freezes in, however slow the machine is.
STAYS_IN = ("--set", "engine.out_after=1day")


def two_legs(sandbox: Sandbox, size: int = SIZE) -> list[Path]:
    return [sandbox.file(f"leg{i}.img", leg_bytes(size)) for i in range(2)]


def written(sandbox: Sandbox, **options: object) -> tuple[Volume, Journal]:
    """Returns a cleanly stopped volume with acknowledged writes on it."""
    volume = Volume.on_files(sandbox, SIZE, **options)  # type: ignore[arg-type]
    journal = Journal(volume.uri, blocks=SIZE // 4096)
    assert journal.run(500)
    journal.disconnect()
    volume.stop()
    return volume, journal


def read_back(volume: Volume, journal: Journal) -> None:
    journal.uri = volume.uri
    journal.verify()
    journal.disconnect()


def test_what_was_written_is_there_after_a_clean_stop(sandbox: Sandbox) -> None:
    volume, journal = written(sandbox)
    assert_identical(volume.legs, SIZE)
    volume.start()
    read_back(volume, journal)
    # A change of phase shows at once, the legs' recovery when it is done.
    assert volume.status()["phase"] == "serving"

    def healthy() -> bool:
        status = volume.status()
        legs = [leg["state"] for leg in status["legs"]]
        return bool(status["health"] == "healthy" and legs == ["healthy", "healthy"])

    wait_until("it is healthy", healthy)
    assert volume.status()["size_bytes"] == SIZE


def test_legs_may_be_named_in_any_order(sandbox: Sandbox) -> None:
    volume, journal = written(sandbox, legs=3)
    volume.legs.reverse()
    volume.start()
    read_back(volume, journal)
    assert [leg["path"] for leg in volume.status()["legs"]] == [
        str(leg) for leg in reversed(volume.legs)
    ]


def test_a_stop_under_load_loses_nothing(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    journal = Journal(volume.uri, blocks=512)
    ended = journal.run(100_000, at={500: lambda: volume.signal(signal.SIGTERM)})
    assert not ended, "the server was expected to end the connection"
    assert volume.process.wait() == 0
    assert_identical(volume.legs, SIZE)
    volume.start()
    journal.verify()


def test_a_second_signal_stops_without_draining(sandbox: Sandbox) -> None:
    volume = Volume.on_files(
        sandbox, SIZE, inject=True, options=("--drain-on-stop", "1h", *STAYS_IN)
    )
    volume.inject(1, "--freeze", "1h")
    journal = Journal(volume.uri, blocks=512)
    assert journal.run(200)
    journal.disconnect()
    volume.signal(signal.SIGTERM)
    # The kernel merges a signal with a pending one of the same number.
    wait_until("the first is attended to", lambda: "stopping" in volume.process.output())
    volume.process.check_running()
    volume.signal(signal.SIGTERM)
    # A drain would take the hour for which the leg is frozen.
    assert volume.process.wait() == 0
    volume.start()
    journal.verify()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)


def test_stale_sockets_of_a_killed_server_are_replaced(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    volume.kill()
    assert volume.socket.exists()
    volume.start()


def test_a_second_server_is_refused(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    second = Volume(sandbox, volume.legs)
    second.start_fails("in use", volume.legs[0], str(volume.process.pid))
    volume.process.check_running()
    # Also for the offline commands.
    hemi_fails("create", "--size", SIZE, *volume.leg_options(), says=["in use"])
    with volume.client() as client:
        client.write(0, b"x" * 512)


def test_the_same_leg_twice_is_refused(sandbox: Sandbox) -> None:
    volume, _ = written(sandbox)
    twice = Volume(sandbox, [volume.legs[0], volume.legs[0]])
    printed = twice.start_fails(volume.legs[0])
    assert "twice" in printed.lower() or "in use" in printed.lower(), printed
    link = sandbox.path("link.img")
    link.symlink_to(volume.legs[0])
    Volume(sandbox, [volume.legs[0], link]).start_fails()
    fresh = sandbox.file("fresh.img", leg_bytes(SIZE))
    hemi_fails("create", "--size", SIZE, "--leg", fresh, "--leg", fresh, says=[fresh])


def test_a_missing_leg_is_named(sandbox: Sandbox) -> None:
    volume, _ = written(sandbox)
    gone = Path(volume.legs[1])
    gone.rename(sandbox.path("elsewhere.img"))
    volume.start_fails("leg1.img", "no")


def test_a_volume_with_a_leg_left_out_needs_a_decision(sandbox: Sandbox) -> None:
    volume, _ = written(sandbox)
    alone = Volume(sandbox, volume.legs[:1])
    alone.start_fails("promote", "leg")
    volume.start()


def test_a_truncated_leg_is_refused_and_a_restored_one_taken(sandbox: Sandbox) -> None:
    volume, journal = written(sandbox)
    leg = Path(volume.legs[1])
    whole = sandbox.path("whole.img")
    shutil.copy(leg, whole)
    size = leg.stat().st_size
    for length in (SIZE, MIB, 4096, 0):
        with leg.open("r+b") as f:
            f.truncate(length)
        volume.start_fails(leg.name)
    shutil.copy(whole, leg)
    assert leg.stat().st_size == size
    volume.start()
    read_back(volume, journal)


def test_a_leg_of_another_volume_is_refused(sandbox: Sandbox) -> None:
    volume, _ = written(sandbox)
    other, _ = written(sandbox)
    for legs in (
        [volume.legs[0], other.legs[1]],
        [other.legs[0], volume.legs[1]],
        [*volume.legs, other.legs[1]],
    ):
        printed = Volume(sandbox, legs).start_fails("volume")
        assert any(Path(leg).name in printed for leg in legs), printed


def test_a_leg_that_is_none_is_refused(sandbox: Sandbox) -> None:
    volume, _ = written(sandbox)
    empty = sandbox.file("empty.img", leg_bytes(SIZE))
    Volume(sandbox, [volume.legs[0], empty]).start_fails("empty.img")
    directory = sandbox.path("directory")
    directory.mkdir()
    Volume(sandbox, [volume.legs[0], directory]).start_fails("directory")
    Volume(sandbox, [volume.legs[0], "/dev/null"]).start_fails("/dev/null")


def test_a_leg_that_cannot_be_written_is_refused(sandbox: Sandbox) -> None:
    volume, journal = written(sandbox)
    leg = Path(volume.legs[1])
    read_only = sandbox.loop(leg, "--read-only")
    Volume(sandbox, [volume.legs[0], read_only]).start_fails(read_only)
    run("losetup", "--detach", read_only)
    volume.start()
    read_back(volume, journal)


def test_damaged_metadata_is_named_not_guessed(sandbox: Sandbox) -> None:
    volume, journal = written(sandbox)
    leg = Path(volume.legs[1])
    with leg.open("r+b") as f:
        for slot in (0, 64 << 10):
            f.seek(slot)
            f.write(b"\xa5" * 4096)
    volume.start_fails("leg1.img")
    # One bad slot of two is no damage.
    good = Path(volume.legs[0]).read_bytes()[: 128 << 10]
    volume2, journal = written(sandbox)
    with Path(volume2.legs[1]).open("r+b") as f:
        f.write(b"\xa5" * 512)
    volume2.start()
    read_back(volume2, journal)
    assert good


class TestCreate:
    def test_sizes_and_counts(self, sandbox: Sandbox) -> None:
        legs = two_legs(sandbox)
        pair = ["--leg", str(legs[0]), "--leg", str(legs[1])]
        hemi_fails("create", "--size", 0, *pair, says=["size"])
        hemi_fails("create", "--size", 3333, *pair, says=["size"])
        hemi_fails("create", "--size", "5 bananas", *pair, says=["size", "bananas"])
        nine = [a for _ in range(9) for a in ("--leg", sandbox.file("n.img", leg_bytes(SIZE)))]
        hemi_fails("create", "--size", SIZE, *nine, says=["8"])
        hemi_fails("create", "--size", SIZE, *pair, "--region-size", "1000", says=["region"])
        for leg in legs:
            assert not leg.read_bytes().strip(b"\0"), "a refused create wrote to a leg"

    def test_what_is_not_empty_is_refused_unless_wiped(self, sandbox: Sandbox) -> None:
        empty, used = two_legs(sandbox)
        run("mkfs.ext4", "-q", "-F", used)
        create = ["create", "--size", str(SIZE), "--leg", str(empty), "--leg", str(used)]
        hemi_fails(*create, says=[used, "ext4", "--wipe"])
        hemi_fails(*create, "--wipe", empty, says=[used])
        assert not empty.read_bytes().strip(b"\0"), "a refused create wrote to a leg"
        run("e2fsck", "-f", "-n", used)
        hemi(*create, "--wipe", used)
        Volume(sandbox, [empty, used]).start()

    def test_a_leg_of_a_volume_is_not_empty(self, sandbox: Sandbox) -> None:
        volume, journal = written(sandbox)
        other = sandbox.file("other.img", leg_bytes(SIZE))
        create = ["create", "--size", str(SIZE), "--leg", str(other), "--leg"]
        hemi_fails(*create, volume.legs[0], says=[volume.legs[0], "hemi"])
        volume.start()
        read_back(volume, journal)

    def test_data_without_a_signature_is_not_empty(self, sandbox: Sandbox) -> None:
        legs = two_legs(sandbox)
        with legs[1].open("r+b") as f:
            f.seek(5 * MIB)
            f.write(b"somebody's data")
        create = ["create", "--size", str(SIZE), "--leg", str(legs[0]), "--leg", str(legs[1])]
        hemi_fails(*create, says=[legs[1], "--wipe"])

    def test_what_is_mounted_or_partitioned_is_refused_whatever(self, sandbox: Sandbox) -> None:
        one, two = two_legs(sandbox, 64 * MIB)
        device = sandbox.loop(two)
        run("mkfs.ext4", "-q", "-F", device)
        sandbox.mount(device)
        create = ["create", "--size", str(SIZE), "--leg", str(one), "--leg", str(device)]
        hemi_fails(*create, says=[device, "mounted"])
        hemi_fails(*create, "--wipe", device, says=[device, "mounted"])

    def test_a_partitioned_device_is_refused(self, sandbox: Sandbox) -> None:
        one, two = two_legs(sandbox, 64 * MIB)
        done = subprocess.run(["sfdisk", "-q", str(two)], input=b",16M\n,16M\n")
        assert done.returncode == 0
        create = ["create", "--size", str(SIZE), "--leg", str(one), "--leg", str(two)]
        hemi_fails(*create, says=[two, "dos"])

    def test_a_held_device_is_refused(self, sandbox: Sandbox) -> None:
        one, two = two_legs(sandbox, 64 * MIB)
        run("mkswap", "-q", two)
        create = ["create", "--size", str(SIZE), "--leg", str(one), "--leg", str(two)]
        hemi_fails(*create, says=[two, "swap"])

    def test_a_leg_too_small_is_refused(self, sandbox: Sandbox) -> None:
        device = sandbox.loop(sandbox.file("small.img", 16 * MIB))
        one = sandbox.file("one.img", leg_bytes(SIZE))
        printed = hemi_fails("create", "--size", SIZE, "--leg", one, "--leg", device, says=[device])
        assert "small" in printed or "bytes" in printed or "MiB" in printed, printed

    def test_files_are_made(self, sandbox: Sandbox) -> None:
        legs = [sandbox.path("new0.img"), sandbox.path("new1.img")]
        volume = Volume(sandbox, list(legs))
        volume.create(SIZE)
        volume.start()
        with volume.client() as client:
            assert client.size() == SIZE
            client.write(SIZE - 4096, b"e" * 4096)

    def test_an_nbd_leg_can_be_created_and_wiped(self, sandbox: Sandbox) -> None:
        backing = sandbox.file("remote.img", leg_bytes(SIZE))
        server = Nbdkit(sandbox, backing)
        volume = Volume(sandbox, [sandbox.file("local.img", leg_bytes(SIZE)), server.uri])
        volume.create(SIZE)
        volume.start()
        volume.stop()
        hemi_fails("create", "--size", SIZE, *volume.leg_options(), says=["--wipe"])
        wipes = [a for leg in volume.legs for a in ("--wipe", leg)]
        hemi("create", "--size", SIZE, *volume.leg_options(), *wipes)


class TestPromote:
    """P7: hemi does not guess, the operator decides, and forks are recognised."""

    def test_promote_names_the_risk_and_needs_the_word(self, sandbox: Sandbox) -> None:
        volume, journal = written(sandbox)
        survivor = volume.legs[0]
        alone = Volume(sandbox, [survivor])
        alone.start_fails("promote")
        hemi_fails("promote", survivor, says=["--accept-loss"])
        hemi("promote", survivor, "--accept-loss")
        alone.start()
        read_back(alone, journal)
        assert alone.status()["degraded"] is True

    def test_an_outdated_leg_comes_back_as_one_that_owes(self, sandbox: Sandbox) -> None:
        volume, journal = written(sandbox)
        alone = Volume(sandbox, volume.legs[:1])
        hemi("promote", volume.legs[0], "--accept-loss")
        alone.start()
        journal.uri = alone.uri
        assert journal.run(300)
        journal.disconnect()
        alone.stop()
        volume.start()
        read_back(volume, journal)
        volume.wait_converged()
        volume.stop()
        assert_identical(volume.legs, SIZE)

    def test_a_fork_is_refused_by_name(self, sandbox: Sandbox) -> None:
        volume, journal = written(sandbox)
        for leg in volume.legs:
            hemi("promote", leg, "--accept-loss")
            alone = Volume(sandbox, [leg])
            alone.start()
            with alone.client() as client:
                client.write(0, str(leg).encode().ljust(4096))
            alone.stop()
        printed = volume.start_fails("leg0.img", "leg1.img")
        assert "have diverged" in printed, printed
        for leg in volume.legs:
            alone = Volume(sandbox, [leg])
            alone.start()
            with alone.client() as client:
                assert client.read(0, 4096) == str(leg).encode().ljust(4096)
            alone.stop()
        assert journal

    def test_inspect_tells_what_is_on_a_leg_without_changing_it(self, sandbox: Sandbox) -> None:
        volume, _ = written(sandbox)
        before = Path(volume.legs[0]).read_bytes()
        printed = hemi("inspect", *volume.legs)
        for word in ("generation", "epoch", "clos"):
            assert word in printed.lower(), printed
        assert Path(volume.legs[0]).read_bytes() == before
        hemi_fails("inspect", sandbox.file("empty.img", MIB), says=["empty.img"])


@pytest.mark.parametrize("policy", ["first", "paper", "all", "write-behind"])
def test_every_policy_keeps_what_was_written(sandbox: Sandbox, policy: str) -> None:
    volume = Volume.on_files(sandbox, SIZE, options=("--policy", policy))
    journal = Journal(volume.uri, blocks=512)
    for _ in range(2):
        assert journal.run(300)
        volume.kill()
        journal.disconnect()
        volume.start()
        journal.settle()
    journal.disconnect()
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, SIZE)
    volume.start()
    assert volume.status()["policy"] == policy


@pytest.mark.skipif(
    Path("/dev/ublk-control").exists() or Path("/sys/module/nbd").exists(),
    reason="this kernel has a driver",
)
def test_a_kernel_without_drivers_for_block_devices_is_named(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, 8 * MIB, start=False)
    serve = ("serve", *volume.leg_options())
    hemi_fails(*serve, "--device", says=["ublk-control", "NBD client", "modprobe ublk_drv", "nbd"])
    hemi_fails(*serve, "--device=ublk", says=["ublk-control", "modprobe ublk_drv"])
    hemi_fails(*serve, "--device=nbd", says=["NBD client", "modprobe nbd"])
    # A served volume goes on.
    volume.start()
    control = ("--control", str(volume.control))
    hemi_fails("attach", *control, says=["modprobe"])
    hemi_fails("detach-device", *control, says=["is no block device"])
    volume.process.check_running()
