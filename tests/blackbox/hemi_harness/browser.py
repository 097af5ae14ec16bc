"""A headless Chromium, driven over a pipe by the DevTools protocol.

Only the browser is needed, no driver and no WebSocket. Each message is JSON followed by a zero
byte. The browser reads them from descriptor 3 and writes to descriptor 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Limit in seconds on the browser's answers, and on a page's changes that a test waits for.
LIMIT = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str | None:
    """Returns the browser's path, or `None` if the machine has none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class PageError(AssertionError):
    """An error of the page, or a change that did not come in time."""


class Browser:
    """One tab of a browser of its own."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process = process
        self._write = write
        self._read = read
        self._pending = b""
        self._count = 0
        self._session: str | None = None
        # Addresses that the tab requested, and errors of its scripts.
        self.requests: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Sends a command and returns its result. Notes the events that come before it."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _receive(self, deadline: float) -> Any:
        while b"\0" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise PageError(f"the browser did not answer within {LIMIT:.0f} s")
            data = os.read(self._read, 1 << 16)
            if not data:
                raise PageError(f"the browser ended, code {self._process.poll()}")
            self._pending += data
        message, _, self._pending = self._pending.partition(b"\0")
        return json.loads(message)

    def _note(self, message: Any) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"])
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                thrown = details.get("exception", {}).get("description", details["text"])
                self.complaints.append(thrown)
            case "Log.entryAdded":
                entry = parameters["entry"]
                # The page itself reports a refused or missing answer.
                if entry["level"] == "error" and entry["source"] != "network":
                    self.complaints.append(entry["text"])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def evaluate(self, script: str) -> Any:
        """Returns the value of an expression in the page, or the result if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description", details["text"]))
        return answer["result"].get("value")

    def until(self, script: str, limit: float = LIMIT) -> Any:
        """Waits until an expression is true, and returns its value."""
        deadline = time.monotonic() + limit
        while True:
            # While a page loads, evaluation fails.
            with suppress(PageError):
                value = self.evaluate(script)
                if value:
                    return value
            if time.monotonic() > deadline:
                shown = self.evaluate("document.body?.innerText.slice(0, 2000)")
                raise PageError(f"not true within {limit:.0f} s: {script}\n{shown}")
            time.sleep(0.1)

    def text(self, selector: str) -> str:
        return str(
            self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")
        )

    def click(self, text: str) -> None:
        """Presses the visible button that has this text."""
        self.until(
            "(() => { const found = [...document.querySelectorAll('button')].find((one) => "
            f"one.checkVisibility() && one.textContent.trim() === {json.dumps(text)}); "
            "found?.click(); return Boolean(found); })()"
        )

    def type(self, selector: str, text: str) -> None:
        self.until(f"Boolean(document.querySelector({json.dumps(selector)}))")
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    def look(self, width: int, height: int, dark: bool = False, **media: str) -> None:
        """Sets the window's size, the colour scheme, and other media features."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = {"prefers-color-scheme": "dark" if dark else "light", **media}
        shown = [{"name": name, "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media="", features=shown)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Takes a screenshot of the page, or of the part in the window."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))

    def tree(self) -> list[tuple[str, str]]:
        """Returns role and name of everything that a screen reader gets."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            (node.get("role", {}).get("value", ""), node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"]
        ]


@contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Browser]:
    """Runs a browser with a profile of its own, which ends with the block."""
    found = executable()
    if found is None:
        raise PageError(f"no browser: none of {', '.join(NAMES)} is installed")
    to_browser, write = os.pipe()
    read, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(prefix="hemi-browser-") as profile:
        # The shell puts the pipes where the browser expects them.
        command = (
            f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
            if {to_browser, from_browser}.isdisjoint({3, 4})
            else f'exec 8<&{to_browser} 9>&{from_browser}; exec "$0" "$@" 3<&8 4>&9'
        )
        process = subprocess.Popen(
            [
                "bash",
                "-c",
                command,
                found,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
                f"--window-size={width},{height}",
            ],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            tab = Browser(process, write, read)
            tab.look(width, height)
            yield tab
        finally:
            os.close(write)
            os.close(read)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
