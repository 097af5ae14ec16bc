"""MariaDB on a volume whose server is killed, stopped and upgraded: it sees at most a pause."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernel_guest import DEVICE, ROUNDS, Volume, hemi, messages, run, wait_until

MOUNT = Path("/run/mount")
SOCKET = Path("/run/sql.sock")
#: Longest wait of a transaction in seconds.
PAUSE_MAX = 6.0
pytestmark = pytest.mark.skipif(not shutil.which("mariadbd"), reason="MariaDB is not installed")


@pytest.fixture
def database(volume: Volume) -> Iterator[subprocess.Popen[bytes]]:
    """Yields a MariaDB with its data on the volume."""
    volume.legs = ["/run/leg0.img", "/run/leg1.img"]
    for leg in volume.legs:
        run("truncate", "-s", "208M", leg)
    volume.create("200MiB")
    volume.start("--device", "--ledger", "/run")
    run("mkfs.ext4", "-q", str(DEVICE))
    MOUNT.mkdir(exist_ok=True)
    run("mount", str(DEVICE), str(MOUNT))
    data = MOUNT / "data"
    data.mkdir()
    options = Path("/run/my.cnf")
    options.write_text(
        "[mariadbd]\n"
        f"datadir={data}\nsocket={SOCKET}\ntmpdir=/run\nuser=root\nskip_networking\n"
        "innodb_log_file_size=8M\ninnodb_buffer_pool_size=32M\ninnodb_buffer_pool_size_max=32M\ninnodb_flush_method=O_DIRECT\n"
        "innodb_flush_log_at_trx_commit=1\nperformance_schema=OFF\n"
    )
    named = f"--defaults-file={options}"
    root = "--auth-root-authentication-method=normal"
    run("mariadb-install-db", named, root, "--skip-test-db", timeout=300)
    with Path("/run/sql.log").open("wb") as log:
        server = subprocess.Popen(["mariadbd", named], stdout=log, stderr=log)
    try:
        wait_until("MariaDB answers", SOCKET.exists, 60)
        yield server
    finally:
        server.kill()
        server.wait(60)
        run("umount", str(MOUNT), expect=None)


class Inserts(threading.Thread):
    """Inserts one number after the other, each in a transaction."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.committed = 0
        self.longest = 0.0
        self.error: str | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        client = subprocess.Popen(
            ["mariadb", f"--socket={SOCKET}", "--batch", "--unbuffered", "--skip-column-names"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write("CREATE DATABASE d; USE d; CREATE TABLE t (n INT PRIMARY KEY);\n")
        while not self.ended.is_set():
            number = self.committed + 1
            began = time.monotonic()
            client.stdin.write(f"INSERT INTO t VALUES ({number}); SELECT {number};\n")
            client.stdin.flush()
            said = client.stdout.readline().strip()
            if said != str(number):
                self.error = said or "the client has ended"
                return
            self.longest = max(self.longest, time.monotonic() - began)
            self.committed = number
        client.stdin.close()
        client.wait(30)

    def wait_for_more(self) -> None:
        before = self.committed
        wait_until("inserts go on", lambda: self.committed > before + 3 or self.error is not None)
        assert self.error is None, self.error


def test_transactions_go_on(volume: Volume, database: subprocess.Popen[bytes]) -> None:
    inserts = Inserts()
    inserts.start()
    for number in range(ROUNDS):
        inserts.wait_for_more()
        match number % 4:
            case 0 | 2:
                volume.kill()
                volume.start("--ledger", "/run")
            case 1:
                hemi("upgrade")
                volume.wait_attached()
            case _:
                volume.stop()
                volume.start("--ledger", "/run")
    inserts.wait_for_more()
    inserts.ended.set()
    inserts.join(60)
    assert inserts.error is None and not inserts.is_alive()
    asked = run("mariadb", f"--socket={SOCKET}", "-BNe", "SELECT COUNT(*), MAX(n) FROM d.t")
    assert asked.split() == [str(inserts.committed)] * 2
    run("mariadb-check", f"--socket={SOCKET}", "--extended", "d")
    database.terminate()
    assert database.wait(120) == 0, Path("/run/sql.log").read_text(errors="replace")
    run("umount", str(MOUNT))
    assert messages() == []
    run("fsck.ext4", "-fn", str(DEVICE))
    wait_until("the legs are whole", lambda: "healthy" in hemi("status").splitlines()[0], 60)
    assert hemi("scrub").strip() == "all legs of vol are alike"
    print(f"{ROUNDS} rounds, {inserts.committed} commits, longest {inserts.longest:.2f} s")
    assert inserts.longest < PAUSE_MAX
