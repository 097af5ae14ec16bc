"""The dashboard in a browser: its text in each state, permissions, and requests to its own server
only.

hemi_harness/dashboard.py imitates states that take minutes to reach, and other kinds of servers.
The rest uses a served volume. Without Chromium the tests of the page are skipped (`make
setup-bench` installs it).
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hemi_harness import HEMI, Process, Sandbox, Volume, wait_until
from hemi_harness.browser import Browser, browser, executable
from hemi_harness.dashboard import Fake, Scene
from hemi_harness.hemi import MIB
from hemi_harness.journal import Journal
from hemi_harness.sandbox import PATIENCE, free_port

SIZE = 64 * MIB
TOKEN = "a-token-that-nobody-guesses"
needs_browser = pytest.mark.skipif(
    executable() is None, reason="no Chromium here: make setup-bench installs it"
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Yields one browser for all tests of this file. Each opens its own page."""
    with browser() as tab:
        yield tab


@pytest.fixture
def page(chromium: Browser) -> Iterator[Browser]:
    """Yields an empty tab. It must not have complained in the end."""
    chromium.open("about:blank")
    chromium.requests.clear()
    chromium.complaints.clear()
    chromium.look(1280, 900)
    yield chromium
    chromium.evaluate("1")
    assert not chromium.complaints, chromium.complaints


def asks_only(page: Browser, address: str) -> None:
    """Fails if the page sent requests to another server than its own."""
    page.evaluate("1")
    asked = {urlsplit(url)[:2] for url in page.requests}
    assert asked == {urlsplit(address)[:2]}, asked


def say(page: Browser, state: str) -> str:
    """Waits until the page is in a state, and returns its sentence."""
    page.until(f"document.querySelector('#verdict').dataset.state === {json.dumps(state)}")
    return page.text("#sentence")


@needs_browser
@pytest.mark.parametrize(
    ("scene", "state", "sentence", "shown"),
    [
        ("safe", "healthy", "Every leg holds everything", {"#work": "Nothing is owed"}),
        ("frozen", "degraded", "are on nvme only", {"#lanes": "frozen", "#work": "Drain of hdd"}),
        (
            "out",
            "degraded",
            "Only nvme is in",
            {"#lanes": "out: unresponsive", "#events": "is out"},
        ),
        ("rebuild", "degraded", "is being filled", {"#work": "80 %, 8 min 51 s left"}),
        ("scrub", "healthy", "Every leg", {"#work": "37 %, 9 min left"}),
        ("down", "not-serving", "The volume closes", {"#advice": "See the log"}),
    ],
)
def test_each_state_is_said(
    page: Browser, scene: str, state: str, sentence: str, shown: dict[str, str]
) -> None:
    with Fake(Scene(scene)) as server:
        page.open(server.address)
        assert sentence in say(page, state)
        assert (page.evaluate("document.title") == "db") == (state == "healthy")
        for place, text in shown.items():
            page.until(
                f"document.querySelector({json.dumps(place)}).innerText.includes("
                f"{json.dumps(text)})"
            )
        assert page.text("#hidden-week") == "3 min 12 s"
        assert "Samsung SSD 980 PRO" in page.text("#drives")
        # The maps and charts are drawn, since they have many colours.
        for canvas in ("#heat canvas", "#regions canvas", ".lane canvas"):
            page.until(
                f"(() => {{ const canvas = document.querySelector('{canvas}'); const data = canvas "
                ".getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; "
                "return new Set(new Uint32Array(data.buffer)).size > 3; })()"
            )
        asks_only(page, server.address)


@needs_browser
def test_what_is_not_told_is_not_known(page: Browser) -> None:
    """Uses a server of another version, without history, events or most figures."""
    with Fake(Scene("bare")) as server:
        page.open(server.address)
        page.until("document.querySelector('#sentence').textContent.includes('does not tell')")
        say(page, "unknown")
        page.until("document.querySelector('#events').innerText.includes('Not known')")
        text = page.text("main")
        assert "NaN" not in text and "undefined" not in text and "null" not in text, text
        assert page.text("#hidden-week") == page.text("#exposed") == "not known"
        assert "Not known" in page.text("#work")
        time.sleep(3)  # It polls on.
        assert page.text("#link") == "live, every second"


@needs_browser
def test_axes_have_round_marks(page: Browser) -> None:
    with Fake(Scene("safe")) as server:
        page.open(server.address)
        say(page, "healthy")
        marks = page.evaluate(
            "(async () => { const of = (name) => import(document.querySelector("
            "`link[href$='${name}.js']`).href); const [{ steps, tick }, { bytes, time }] = "
            "await Promise.all([of('chart'), of('format')]); "
            "const all = (steps, show) => steps.flatMap((step) => [1, 2, 3].map((times) => "
            "show(step * times))); return { bytes: all(steps.bytes.slice(0, 50), bytes), "
            "time: all(steps.time, time), seconds: tick(5, 1), minutes: tick(60, 60) }; })()"
        )
        # Halves of a power of two are exact in two digits.
        assert all(re.fullmatch(r"(\d+|1\.5) ([KMGTP]i)?B", mark) for mark in marks["bytes"])
        assert all(re.fullmatch(r"\d+(\.5)? \S+( \d+ \S+)?", mark) for mark in marks["time"]), marks
        assert re.fullmatch(r"\d\d:\d\d:05", marks["seconds"])
        assert re.fullmatch(r"\d\d:\d1", marks["minutes"])
        assert page.text(".zone") not in ("", "local time")


@needs_browser
def test_the_first_status_has_a_rate(page: Browser) -> None:
    class First(Scene):
        def status(self) -> dict[str, object]:
            status = super().status()
            for kind in ("reads", "writes"):
                status["clients"][kind]["recent"]["count"] = 1500
            # No second status follows, from which a rate could be told.
            return {**status, "at_ms": int(self.begun * 1000), "recent_ns": 10_000_000_000}

    with Fake(First("safe")) as server:
        page.open(server.address)
        say(page, "healthy")
        assert page.text("#iops") == "300"


@needs_browser
def test_what_is_not_known_of_a_drive_is_in_no_other_column(page: Browser) -> None:
    class Virtual(Scene):
        def status(self) -> dict[str, object]:
            status = super().status()
            why = "smartctl: Unable to detect device type"
            drive = {"kind": "virtual", "model": None, "serial": "S-1", "why_unknown": why}
            status["legs"][0].update(drive=drive, verdict=None)
            return status

    with Fake(Virtual("safe")) as server:
        page.open(server.address)
        say(page, "healthy")
        page.until("document.querySelectorAll('#drives tbody td').length > 0")
        row = page.evaluate(
            "[...document.querySelector('#drives tbody tr').cells].map((one) => one.innerText)"
        )
        assert row[1:3] == ["a virtual disk", "S-1"], row
        assert row[-1] == "smartctl: Unable to detect device type"


@needs_browser
def test_a_leg_that_stalls_is_not_shown_as_healthy(page: Browser) -> None:
    class Stalled(Scene):
        def status(self) -> dict[str, object]:
            status = super().status()
            status["legs"][1]["stalled"] = True
            return status

    with Fake(Stalled("safe")) as server:
        page.open(server.address)
        say(page, "healthy")
        page.until("document.querySelectorAll('.lane .state').length === 2")
        shown = page.evaluate(
            "[...document.querySelectorAll('.lane .state')].map((one) => "
            "[one.innerText, one.dataset.state])"
        )
        assert shown == [["healthy", "healthy"], ["stalled", "frozen"]], shown


@needs_browser
def test_a_standby_is_shown_with_the_reason_why_it_cannot_be_used(page: Browser) -> None:
    class Standbys(Scene):
        def status(self) -> dict[str, object]:
            ready = {"name": "spare-a", "path": "/dev/sdc", "ready": True, "why_not": None}
            gone = {"name": "spare-b", "path": "/dev/sdd", "ready": False, "why_not": "it is gone"}
            return {**super().status(), "standbys": [ready, gone]}

    with Fake(Standbys("safe")) as server:
        page.open(server.address)
        page.until("document.querySelectorAll('#standbys li').length === 2")
        shown = str(page.evaluate("document.querySelector('#standbys').innerText"))
        assert "Standby spare-a: ready to take the place of a leg" in shown
        assert "Standby spare-b: cannot be used, it is gone" in shown


@needs_browser
def test_nothing_is_filled_that_is_away(page: Browser) -> None:
    class Away(Scene):
        def status(self) -> dict[str, object]:
            status = super().status()
            status["legs"][1].update(owed_bytes=2 << 30, owed_region_bytes=2 << 30)
            return status

    with Fake(Away("out")) as server:
        page.open(server.address)
        say(page, "degraded")
        work = page.text("#work")
        assert "Nothing goes to hdd" in work and "2 GiB are owed" in work, work
        assert "Rebuild" not in work and "time left" not in work


@needs_browser
def test_words_of_others_are_text(page: Browser) -> None:
    class Hostile(Scene):
        def status(self) -> dict[str, object]:
            status = super().status()
            status["name"] = "<img src=x onerror=alert(1)>"
            status["legs"][0]["name"] = "<script>alert(2)</script>"
            status["legs"][0]["drive"] = {"model": "<b>bold</b>"}
            return status

    with Fake(Hostile("safe")) as server:
        page.open(server.address)
        say(page, "healthy")
        assert page.text("#name") == "<img src=x onerror=alert(1)>"
        page.until("document.querySelector('#drives').innerText.includes('<b>bold</b>')")
        assert (
            page.evaluate("document.querySelectorAll('main img, main script, main b').length") == 0
        )


@needs_browser
def test_figures_behind_a_token_are_asked_for(page: Browser) -> None:
    with Fake(Scene("safe", TOKEN, needs_token=True)) as server:
        page.open(server.address)
        page.until("!document.querySelector('#gate').hidden")
        assert page.evaluate("document.querySelector('#figures').hidden")
        page.type("#gate-token", "another-one-altogether")
        page.click("Show")
        page.until("document.querySelector('#gate-wrong').textContent.includes('not the token')")
        page.evaluate("document.querySelector('#gate-token').value = ''")
        page.type("#gate-token", TOKEN)
        page.click("Show")
        say(page, "healthy")
        # The page still has it after a reload, another tab does not.
        page.open(server.address)
        say(page, "healthy")
        assert page.evaluate("Object.values(localStorage).length + document.cookie.length") == 0
        page.evaluate("sessionStorage.clear()")


@needs_browser
def test_changes_ask_first_and_carry_the_token(page: Browser) -> None:
    with Fake(Scene("safe", TOKEN)) as server:
        page.open(server.address)
        page.click("Unlock changes")
        page.type("#dialog input", "wrong-wrong-wrong-wrong")
        page.click("Unlock")
        page.until("document.querySelector('#dialog-wrong').textContent.includes('not the token')")
        page.evaluate("document.querySelector('#dialog input').value = ''")
        page.type("#dialog input", TOKEN)
        page.click("Unlock")
        page.click("Compare, and rewrite what cannot be read")
        page.until("document.querySelector('#dialog').open")
        page.click("Cancel")
        page.click("Detach hdd")
        page.until("document.querySelector('#dialog-text').textContent.includes('one leg only')")
        assert server.scene.asked == [], "nothing is done before it is confirmed"
        page.evaluate("document.querySelector('#dialog-go').click()")
        wait_until("it is asked for", lambda: len(server.scene.asked) == 1)
        assert server.scene.asked == [("/v1/legs/detach", {"leg": 1})]
        page.evaluate("sessionStorage.clear()")


@needs_browser
def test_it_says_when_hemi_is_gone_and_goes_on(page: Browser) -> None:
    port = free_port()
    with Fake(Scene("safe"), port) as server:
        page.open(server.address)
        say(page, "healthy")
    page.until("document.querySelector('#sentence').textContent === 'hemi does not answer.'")
    assert page.text("#link") == "no answer"
    with Fake(Scene("out"), port):
        assert "Only nvme is in" in say(page, "degraded")


@needs_browser
def test_it_can_be_used_without_eyes_and_without_a_mouse(page: Browser) -> None:
    with Fake(Scene("frozen")) as server:
        page.open(server.address)
        say(page, "degraded")
        page.until("document.querySelector('.lane .readout')?.textContent.includes('clients')")
        tree = page.tree()
        roles = {role for role, _ in tree}
        assert {"banner", "main", "contentinfo", "heading", "status", "table"} <= roles, roles
        named = [name for role, name in tree if role in ("button", "radio", "combobox", "textbox")]
        assert all(named), tree
        assert any("is frozen" in name for _, name in tree)
        spoken = page.text("#spoken")
        assert spoken.startswith("Degraded."), spoken
        page.evaluate("document.querySelector('.chart').focus()")
        page.press("ArrowLeft", 37)
        page.press("ArrowLeft", 37)
        page.until(r"/^\d\d:\d\d:\d\d: /.test(document.querySelector('.readout').textContent)")
        page.evaluate("document.querySelector('.chart details').open = true")
        rows = page.until("document.querySelectorAll('.chart tbody tr').length")
        assert 20 <= rows <= 60, rows


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_it_fits(page: Browser, width: int, dark: bool) -> None:
    with Fake(Scene("rebuild")) as server:
        page.look(width, 800, dark)
        page.open(server.address)
        say(page, "degraded")
        page.until("Boolean(document.querySelector('.lane canvas'))")
        across = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert across <= 0, f"{across} pixels too wide"
        ink, paper = (
            [int(part) for part in re.findall(r"\d+", str(page.evaluate(script)))[:3]]
            for script in (
                "getComputedStyle(document.querySelector('#sentence')).color",
                "getComputedStyle(document.documentElement).backgroundColor",
            )
        )
        assert (sum(ink) > sum(paper)) == dark


def ask(address: str, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(address + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def served(sandbox: Sandbox, *options: str) -> tuple[Volume, str, Path]:
    """Returns a volume with an HTTP listener and a token, its address, and the token's file."""
    port = free_port()
    token = sandbox.path("token")
    http = ("--http", f"127.0.0.1:{port}", "--set", f"http_token_file={token}", *options)
    volume = Volume.on_files(sandbox, SIZE, inject=True, options=http, create=("--name", "db"))
    return volume, f"http://127.0.0.1:{port}/", token


def test_a_token_file_is_made_and_kept_private(sandbox: Sandbox) -> None:
    volume, address, token = served(sandbox)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    text = token.read_text().strip()
    assert re.fullmatch(r"[0-9a-f]{64}", text)
    assert text not in volume.process.output(), "no log has it"
    assert json.loads(ask(address, "v1/access", Authorization=f"Bearer {text}")[1])["granted"]
    assert not json.loads(ask(address, "v1/access", Authorization="Bearer x")[1])["granted"]
    volume.stop()
    token.chmod(0o644)
    volume.start_fails("http_token_file", "mode 0644", "chmod 600", token)
    token.chmod(0o640)
    volume.start()
    assert json.loads(ask(address, "v1/access", Authorization=f"Bearer {text}")[1])["granted"]


def test_other_machines_are_let_in_on_purpose_only(sandbox: Sandbox) -> None:
    port = free_port()
    options = ["--http", f"0.0.0.0:{port}"]
    volume = Volume.on_files(sandbox, SIZE, options=options, start=False)
    volume.start_fails("http", f"0.0.0.0:{port}", "http_public = true", "http_token_file")
    volume.options += ["--set", "http_public=true"]
    volume.start_fails("http_public", "http_token_file")
    file = sandbox.path("token")
    volume.options += ["--set", f"http_token_file={file}"]
    volume.start()
    address = f"http://127.0.0.1:{port}/"
    token = file.read_text().strip()
    assert ask(address, "v1/status")[0] == 401
    assert ask(address, "v1/status", Authorization=f"Bearer {token}")[0] == 200
    assert ask(address, "metrics")[0] == 200


@needs_browser
def test_a_freeze_is_seen_within_seconds(sandbox: Sandbox, page: Browser) -> None:
    volume, address, token = served(sandbox)
    volume.wait_converged()
    journal = Journal(volume.uri, blocks=512)
    assert journal.run(100)
    page.open(address)
    say(page, "healthy")
    page.click("Unlock changes")
    page.type("#dialog input", token.read_text().strip())
    page.click("Unlock")
    volume.inject(1, "--freeze", "1h")
    assert journal.run(300), "clients go on"
    page.until("document.querySelector('#lanes').innerText.includes('frozen')")
    page.until("/now: read [0-9.]+ [KMG]?i?B.s, written/.test(document.body.innerText)")
    say(page, "degraded")
    page.click("End the faults of leg1.img")
    page.evaluate("document.querySelector('#dialog-go').click()")
    volume.wait_leg_state(1, "healthy", "lagging")
    assert "healthy" in str(
        page.until(
            "['healthy'].find((one) => one === document.querySelector('#verdict').dataset.state)"
        )
    )
    asks_only(page, address)


class Proxy:
    """A running `hemi dashboard`."""

    def __init__(self, sandbox: Sandbox, volume: Volume) -> None:
        self.process: Process = sandbox.start(
            HEMI, "dashboard", "--print", "--control", volume.control, name="dashboard"
        )
        wait_until("it tells its address", lambda: "#token=" in self.process.output())
        found = re.search(r"(http://127\.0\.0\.1:\d+/)#token=([0-9a-f]{64})", self.process.output())
        assert found, self.process.output()
        self.address, self.token = found.groups()


def test_the_proxy_asks_for_its_token(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE, create=("--name", "db"))
    proxy = Proxy(sandbox, volume)
    right = {"Authorization": f"Bearer {proxy.token}"}
    for path in ("v1/status", "v1/history", "metrics", "healthz"):
        assert ask(proxy.address, path)[0] == 401, path
        assert ask(proxy.address, path, Authorization="Bearer x")[0] == 401, path
        assert ask(proxy.address, path, **right)[0] == 200, path
    # These are the socket's alone: a stolen address runs no program as its owner.
    for path in ("v1/config", "v1/upgrade", "v1/shutdown", "v1/legs/add", "v1/code"):
        assert ask(proxy.address, path, **right)[0] == 403, path
    assert ask(proxy.address, "v1/status", Origin="http://evil.example", **right)[0] == 403
    assert ask(proxy.address, "")[0] == 200, "the page tells nothing"
    assert ask(proxy.address, "v1/status", Host="evil.example", **right)[0] == 403
    assert json.loads(ask(proxy.address, "v1/access", **right)[1])["granted"]
    assert not json.loads(ask(proxy.address, "v1/access")[1])["granted"]
    volume.stop()
    code, body = ask(proxy.address, "v1/status", **right)
    assert code == 502 and "not served any more" in json.loads(body)["what"]
    os.kill(proxy.process.pid, signal.SIGINT)
    assert proxy.process.wait(PATIENCE) == 0


def test_the_browser_gets_no_secret_in_its_arguments(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    tools = sandbox.path("tools")
    tools.mkdir()
    said = sandbox.path("said")
    opener = tools / "xdg-open"
    lines = ("#!/bin/sh", f'echo "$*" > {said}.args', f'cat "$1" > {said}.page')
    opener.write_text("\n".join((*lines, f"mv {said}.page {said}", "")))
    opener.chmod(0o755)
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "DISPLAY": ":0",
        "XDG_RUNTIME_DIR": str(tools),
    }
    process = sandbox.start(
        HEMI, "dashboard", "--control", volume.control, name="dashboard", env=env
    )
    wait_until("the browser is started", said.exists)
    found = re.search(r"#token=([0-9a-f]{64})", process.output())
    assert found, process.output()
    arguments = Path(f"{said}.args").read_text()
    assert found[1] not in arguments and "#" not in arguments, arguments
    assert found[1] in said.read_text()
    page = Path(arguments.strip())
    assert page.stat().st_mode & 0o777 == 0o600
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE) == 0
    assert not page.exists()


def test_strangers_keep_nobody_out_of_the_proxy(sandbox: Sandbox) -> None:
    volume = Volume.on_files(sandbox, SIZE)
    proxy = Proxy(sandbox, volume)
    port = int(proxy.address.rstrip("/").rsplit(":", 1)[1])
    strangers = []
    for _ in range(80):
        stranger = socket.create_connection(("127.0.0.1", port))
        stranger.sendall(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf")
        strangers.append(stranger)
    right = {"Authorization": f"Bearer {proxy.token}"}
    assert ask(proxy.address, "v1/status", **right)[0] == 200
    for stranger in strangers:
        stranger.close()


@needs_browser
def test_the_proxy_shows_the_page(sandbox: Sandbox, page: Browser) -> None:
    volume = Volume.on_files(sandbox, SIZE, create=("--name", "db"))
    volume.wait_converged()
    proxy = Proxy(sandbox, volume)
    page.open(proxy.address)
    page.until("!document.querySelector('#gate').hidden")
    page.open("about:blank")
    page.open(f"{proxy.address}#token={proxy.token}")
    say(page, "healthy")
    assert proxy.token not in str(page.evaluate("location.href")), "not in the history"
    page.click("Compare all legs")
    page.evaluate("document.querySelector('#dialog-go').click()")
    page.until("!document.querySelector('#dialog').open")
    asks_only(page, proxy.address)


def test_the_address_of_a_volume_with_http_is_told(sandbox: Sandbox) -> None:
    volume, address, _ = served(sandbox)
    assert volume.command("dashboard", "--print") == f"{address}\n"
