"""Takes pictures of the dashboard at work in headless Chromium (`make dashboard-demo`).

A volume under load lives through a freeze, the failure of a leg, a rebuild and a scrub.

    python scripts/dashboard_demo.py [--out docs/pictures] [--hold]

The script waits for each state, which the page has to show. `--hold` keeps serving afterwards.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from hemi_harness import HEMI, Sandbox, Volume
from hemi_harness.browser import Browser, browser, executable
from hemi_harness.hemi import MIB, leg_bytes
from hemi_harness.sandbox import free_port

SIZE = 512 * MIB
# Looks of the pictures: name, width, height, and true if dark.
LOOKS = (("", 1280, 900, False), ("-dark", 1280, 900, True), ("-phone", 390, 844, False))
# Seconds until a history is visible.
WARM = 45.0


def load(sandbox: Sandbox, volume: Volume) -> None:
    """Runs a small database's load until the sandbox ends."""
    sandbox.start(
        "fio",
        "--name=load",
        "--ioengine=nbd",
        f"--uri={volume.uri}",
        "--rw=randrw",
        "--rwmixread=70",
        "--bssplit=4k/80:16k/20",
        "--iodepth=8",
        "--rate_iops=250,110",
        f"--size={SIZE // 2}",
        "--random_distribution=zipf:1.1",
        "--time_based",
        "--runtime=3600",
        "--eta=never",
        "--thread",
        name="load",
    )


def configuration(sandbox: Sandbox, volume: Volume) -> Path:
    """Returns a configuration that names the legs, since their paths do not matter in a picture."""
    path = sandbox.path("db.toml")
    legs = ", ".join(f'{{ path = "{leg}", name = "{Path(leg).stem}" }}' for leg in volume.legs)
    path.write_text(
        f'control = "{volume.control}"\n'
        "allow_inject = true\n"
        f"legs = [{legs}]\n"
        f'exports = [{{ nbd = "unix:{volume.socket}" }}]\n'
    )
    return path


class Pictures:
    """Takes the pictures of one state after another."""

    def __init__(self, page: Browser, address: str, out: Path) -> None:
        self._page = page
        self._address = address
        self._out = out

    def take(self, state: str, says: str, verdict: tuple[str, ...]) -> None:
        """Waits until the page shows a text and its verdict, and takes pictures."""
        page = self._page
        page.until(f"document.querySelector('main').innerText.includes({says!r})")
        is_so = " || ".join(
            f"document.querySelector('#verdict').dataset.state === {one!r}" for one in verdict
        )
        page.until(is_so)
        print(f"{state}: {page.text('#sentence')}", flush=True)
        for name, width, height, dark in LOOKS:
            page.look(width, height, dark)
            time.sleep(1.2)
            path = self._out / f"dashboard-{state}{name}.png"
            page.picture(path, whole=name != "-phone")
            shrink(path)
        page.look(*LOOKS[0][1:])


def shrink(path: Path) -> None:
    """Makes a picture small, with 64 colours."""
    if shutil.which("pngquant"):
        options = ("--force", "--ext", ".png", "--speed", "1", "--strip", "64")
        subprocess.run(["pngquant", *options, path], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--hold", action="store_true")
    asked = parser.parse_args()
    if executable() is None:
        sys.exit("dashboard-demo: no Chromium (Debian: apt-get install chromium)")
    asked.out.mkdir(parents=True, exist_ok=True)
    with Sandbox() as sandbox, browser() as page:
        port = free_port()
        address = f"http://127.0.0.1:{port}/"
        options = ("--http", f"127.0.0.1:{port}", "--set", "engine.out_after=1h")
        legs = [sandbox.file(f"{name}.img", leg_bytes(SIZE)) for name in ("ssd", "hdd")]
        volume = Volume(sandbox, legs, options=options, inject=True)
        volume.create(SIZE, "--name", "db")
        volume.serve_with(configuration(sandbox, volume))
        volume.start()
        volume.wait_converged()
        # The second leg has the delay of a hard disk.
        volume.inject(1, "--delay", "4ms")
        load(sandbox, volume)
        pictures = Pictures(page, address, asked.out)
        page.open(address)
        page.evaluate("document.querySelector('#spans input').click()")
        time.sleep(WARM)
        pictures.take("safe", "healthy", ("healthy",))
        volume.inject(1, "--freeze", "1h")
        time.sleep(6)
        pictures.take("frozen", "frozen", ("degraded",))
        volume.inject(1, "--clear")
        volume.wait_leg_state(1, "healthy", timeout=120)
        volume.inject(1, "--delay", "4ms")
        time.sleep(15)
        # It fails every write, and is out.
        volume.inject(1, "--error", "write")
        volume.wait_leg_state(1, "out", timeout=120)
        pictures.take("out", "out: write errors", ("degraded",))
        volume.inject(1, "--clear")
        volume.command("leg", "detach", 1)
        new = sandbox.file("new.img", leg_bytes(SIZE))
        volume.command("leg", "replace", 1, new, "--name", "hdd")
        volume.inject(1, "--delay", "400ms")
        time.sleep(6)
        pictures.take("rebuild", "Rebuild", ("degraded", "healthy"))
        volume.inject(1, "--clear")
        volume.wait_leg_state(1, "healthy", timeout=300)
        volume.inject(1, "--delay", "100ms")
        sandbox.start(HEMI, "scrub", "--control", volume.control, name="scrub")
        pictures.take("scrub", "Scrub", ("healthy",))
        volume.inject(1, "--clear")
        complaints = page.complaints
        if complaints:
            sys.exit(f"the page complained: {complaints}")
        print(f"pictures: {asked.out}/dashboard-*.png")
        if asked.hold:
            print(f"serving {address} until Ctrl-C", flush=True)
            with suppress(KeyboardInterrupt):
                time.sleep(86_400)


if __name__ == "__main__":
    main()
