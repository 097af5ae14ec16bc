"""A real virtual machine (qemu) whose guest goes on while hemi is killed and started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hemi_harness import Process, Sandbox, Volume, wait_until
from hemi_harness.hemi import MIB, assert_identical, data_area

GUEST = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[2] / "target")) / "guest"
QEMU = shutil.which("qemu-system-x86_64")
BUSYBOX = Path("/bin/busybox")
VOLUME = 64 * MIB
WRITERS = 4
# Modules in the order of their dependencies.
MODULES = ("virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci")

pytestmark = [
    pytest.mark.skipif(
        QEMU is None, reason="no qemu-system-x86_64: apt-get install qemu-system-x86"
    ),
    pytest.mark.skipif(not BUSYBOX.exists(), reason="no busybox: apt-get install busybox-static"),
    pytest.mark.skipif(
        not (GUEST / "vmlinuz").exists(), reason="no guest kernel: scripts/guest-kernel.sh gets one"
    ),
]

# Each writer has 2 MiB of its own, past the page cache. It writes, reads and compares until the
# disk's last sector tells it to end.
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox --install -s /bin
for module in {modules}; do insmod /$module.ko; done
while [ ! -b /dev/vda ]; do sleep 0.1; done
echo 4 > /proc/sys/kernel/printk
echo "guest: disk $(cat /sys/block/vda/size) $(cat /sys/block/vda/serial) \\
queues $(ls /sys/block/vda/mq | wc -l)"
writer() {{
    round=0
    while [ ! -e /tmp/end ]; do
        round=$((round + 1))
        yes "writer $1 round $round" | head -c 2097152 > /tmp/$1
        dd if=/tmp/$1 of=/dev/vda bs=64k seek=$((32 * $1)) \\
            oflag=direct conv=fsync,notrunc 2>/dev/null || echo "guest: FAILED to write"
        dd if=/dev/vda bs=64k skip=$((32 * $1)) count=32 iflag=direct 2>/dev/null \\
            | cmp - /tmp/$1 || echo "guest: FAILED to compare"
        echo "guest: writer $1 round $round"
    done
}}
for number in {writers}; do writer $number & done
until dd if=/dev/vda bs=512 skip={last} count=1 iflag=direct 2>/dev/null | grep -q "the end"; do
    sleep 0.5
done
touch /tmp/end
wait
# A file system's way: discard, then zeros are read.
blkdiscard -o $((48 * 1048576)) -l 1048576 /dev/vda || echo "guest: FAILED to discard"
dmesg | grep -i -E "i/o error|blk_update|hung task" && echo "guest: FAILED in the kernel"
echo "guest: done"
poweroff -f
"""


def initramfs(sandbox: Sandbox) -> Path:
    root = sandbox.path("initramfs")
    (root / "bin").mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    modules = (*MODULES, "virtio_blk")
    for module in modules:
        shutil.copy(GUEST / f"{module}.ko", root)
    init = INIT.format(
        modules=" ".join(modules),
        writers=" ".join(str(n) for n in range(WRITERS)),
        last=VOLUME // 512 - 1,
    )
    (root / "init").write_text(init)
    (root / "init").chmod(0o755)
    image = sandbox.path("initramfs.cpio")
    names = "\n".join(str(p.relative_to(root)) for p in sorted(root.rglob("*")))
    with image.open("wb") as file:
        subprocess.run(
            [BUSYBOX, "cpio", "-o", "-H", "newc"],
            cwd=root,
            input=names.encode(),
            stdout=file,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    return image


class Guest:
    """A machine whose console is a file."""

    def __init__(self, sandbox: Sandbox, socket: Path) -> None:
        self.console = sandbox.path("console")
        self.console.touch()
        self.process: Process = sandbox.start(
            *(QEMU or "", "-accel", "tcg", "-smp", 2, "-m", "256M"),
            *("-object", "memory-backend-memfd,id=mem,size=256M,share=on"),
            *("-numa", "node,memdev=mem", "-nodefaults", "-display", "none", "-no-reboot"),
            *("-chardev", f"socket,id=disk,path={socket},reconnect=1"),
            *("-device", "vhost-user-blk-pci,chardev=disk"),
            *("-serial", f"file:{self.console}"),
            *("-kernel", GUEST / "vmlinuz", "-initrd", initramfs(sandbox)),
            *("-append", "console=ttyS0 quiet panic=-1"),
            name="qemu",
        )

    def said(self) -> str:
        text = self.console.read_text(errors="replace")
        assert "FAILED" not in text and "rror" not in text and "panic" not in text, text
        return text

    def wait_said(self, words: str, timeout: float = 300) -> None:
        def found() -> bool:
            assert self.process.running or words in self.said(), self.process.output()
            return words in self.said()

        wait_until(f"the guest says {words}", found, timeout)

    def rounds(self) -> dict[int, int]:
        """Returns the last round of each writer."""
        return {int(w): int(r) for w, r in re.findall(r"writer (\d) round (\d+)", self.said())}

    def wait_progress(self) -> None:
        """Waits until every writer has finished a round that began after the call."""
        before = self.rounds()

        def gone_on() -> bool:
            now = self.rounds()
            return all(now.get(w, 0) >= before.get(w, 0) + 2 for w in range(WRITERS))

        wait_until("every writer goes on", gone_on, 300)


def test_a_guest_outlives_its_server(sandbox: Sandbox) -> None:
    path = sandbox.path("vol.vhost")
    volume = Volume.on_files(
        sandbox, VOLUME, inject=True, options=["--vhost", path], create=["--name", "vm"]
    )
    guest = Guest(sandbox, path)
    guest.wait_said(f"guest: disk {VOLUME // 512} vm queues 2")
    guest.wait_progress()
    for number in range(4):
        # With a slow leg, some requests are in flight.
        volume.inject(1, "--delay", "20ms")
        time.sleep(0.5 + 0.3 * number)
        if number == 2:
            volume.stop()
        else:
            volume.kill()
        time.sleep(1)
        volume.start()
        guest.wait_progress()
    with volume.client() as client:
        client.write(VOLUME - 512, b"the end\n".ljust(512))
    guest.wait_said("guest: done")
    rounds = guest.rounds()
    assert guest.process.wait() == 0
    volume.wait_converged()
    volume.stop()
    assert_identical(volume.legs, VOLUME)
    image = data_area(Path(volume.legs[0]), VOLUME)
    for writer, round_ in rounds.items():
        text = f"writer {writer} round {round_}\n".encode()
        written = image[writer * 2 * MIB : (writer + 1) * 2 * MIB]
        assert written == (text * (2 * MIB // len(text) + 1))[: 2 * MIB]
    print(f"rounds of the guest's writers: {rounds}")
