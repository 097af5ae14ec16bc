"""Serves the dashboard's routes in any state of a volume, to test the page and to work on it
without building hemi.

    python tests/blackbox/hemi_harness/dashboard.py [--port 9199] [--scene frozen]

The figures are invented but consistent: a frozen leg owes the bytes that clients wrote.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

PAGE = Path(__file__).parents[3] / "crates" / "server" / "src" / "dashboard" / "page"
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
SCENES = ("safe", "frozen", "out", "rebuild", "scrub", "down", "bare")
MIB = 1 << 20
GIB = 1 << 30
MS = 1_000_000
NS = 1_000_000_000
BOUNDS = [int(10_000 * 10 ** (step * 0.25)) for step in range(24)]


def latency(count: int, p50: float, p99: float) -> dict[str, Any]:
    one = {
        "count": count,
        "mean_ns": int(p50 * 1.2),
        "p50_ns": int(p50),
        "p99_ns": int(p99),
        "p999_ns": int(p99 * 1.7),
        "max_ns": int(p99 * 3),
    }
    return {"recent": one, "total": one}


class Scene:
    """A volume in one state."""

    def __init__(self, name: str, token: str | None = None, needs_token: bool = False) -> None:
        self.name = name
        self.token = token
        self.needs_token = needs_token
        self.begun = time.time()
        # Changes that the page requested: path and body.
        self.asked: list[tuple[str, Any]] = []

    def status(self) -> dict[str, Any]:
        now = time.time()
        age = now - self.begun
        base: dict[str, Any] = {"name": "db", "phase": "serving", "uptime_ns": int(age * NS)}
        if self.name == "bare":
            return {**base, "legs": [{"leg": 0}, {"leg": 1, "name": "slow", "state": "healthy"}]}
        frozen, out = self.name == "frozen", self.name == "out"
        rebuild, down = self.name == "rebuild", self.name == "down"
        owed = int(min(age, 12) * 2.4 * MIB) if frozen else 41 * GIB if rebuild else 0
        exposed = owed if frozen else 0
        return {
            **base,
            "version": "0.1.0",
            "id": "10bc3377-8a25-3a42-06c9-d0864272eb3a",
            "phase": "closing" if down else "serving",
            "size_bytes": 200 * GIB,
            "block_bytes": 512,
            "region_bytes": 64 * MIB,
            "policy": "first",
            "health": "not-serving" if down else "degraded" if frozen or out else "healthy",
            "at_ms": int(now * 1000),
            "age_ns": 100 * MS,
            "converged": self.name in ("safe", "scrub"),
            "degraded": frozen or out,
            "one_copy_bytes": 200 * GIB if out or rebuild else exposed,
            "lost_bytes": 0,
            "ledger": {"path": "/run/hemi/db.ledger", "why_none": None},
            "summary": self._summary(exposed),
            "hidden": {"day_ns": 41 * NS, "week_ns": 192 * NS, "total_ns": 1964 * NS},
            "process": {"cpu_ns": int(age * 3e7), "resident_bytes": 74 * MIB, "cpu_permille": 31},
            "exposure": {
                "bytes": exposed,
                "age_ns": int(min(age, 4.1) * NS) if frozen else 0,
                "peak_bytes": 31 * MIB,
                "bound_bytes": 256 * MIB,
                "bound_age_ns": 5 * NS,
                "mode": "throttle",
                "throttling": False,
            },
            "clients": {
                "connections": {"open": 4, "accepted": 9, "refused": 0},
                "requests": 11,
                "failed": 0,
                "reads": latency(int(age * 1900), 82e3, 420e3),
                "writes": latency(int(age * 610), 61e3, 390e3),
            },
            "scrub": self._scrub(),
            "buffers": {"budget_bytes": 256 * MIB, "used_bytes": 12 * MIB},
            "risks": [{"promise": "P4", "text": "Leg 1 is frozen and owes what clients write."}]
            if frozen
            else [],
            "legs": [
                self._leg(0, "nvme", "healthy", 60e3, 300e3),
                self._leg(
                    1,
                    "hdd",
                    "frozen" if frozen else "out" if out or rebuild else "healthy",
                    4.1e6,
                    31e6,
                    owed,
                ),
            ],
        }

    def _summary(self, exposed: int) -> dict[str, Any]:
        alike = "Every leg holds everything: losing any one drive loses nothing."
        state, text, advice = {
            "safe": ("healthy", alike, None),
            "scrub": ("healthy", alike, None),
            "frozen": (
                "degraded",
                f"{exposed / MIB:.1f} MiB of the last 4 s are on nvme only, while hdd is frozen.",
                "Nothing to do yet: clients are served. If hdd stays frozen for 1 min, it is out.",
            ),
            "out": (
                "degraded",
                "Only nvme is in: losing it loses the volume.",
                "Replace hdd: hemi leg replace 1 /dev/disk/by-id/NEW.",
            ),
            "rebuild": (
                "degraded",
                "hdd is being filled: until then 41 GiB are on nvme only.",
                "Wait; some 9 min are left.",
            ),
            "down": (
                "not-serving",
                "The volume closes: clients are turned away.",
                "See the log of hemi serve.",
            ),
        }[self.name]
        return {"state": state, "text": text, "advice": advice}

    def _scrub(self) -> dict[str, Any]:
        runs = self.name == "scrub"
        return {
            "running": runs,
            "compared_bytes": 74 * GIB if runs else 0,
            "total_bytes": 200 * GIB,
            "mismatched_bytes": 0,
            "permille": 370 if runs else None,
            "remaining_ns": 540 * NS if runs else None,
            "bytes_per_s": 230 * MIB if runs else None,
            "last": {
                "at_ms": int((time.time() - 86400 * 2) * 1000),
                "mismatched_bytes": 0,
                "repaired": False,
                "took_ns": 890 * NS,
                "stopped": False,
            },
        }

    def _leg(
        self, leg: int, name: str, state: str, p50: float, p99: float, owed: int = 0
    ) -> dict[str, Any]:
        age = time.time() - self.begun
        joining = self.name == "rebuild" and leg == 1
        model = ("Samsung SSD 980 PRO 1TB", "TOSHIBA MG08ACA16TE")[leg]
        return {
            "leg": leg,
            "name": name,
            "path": ("/dev/nvme0n1p3", "/dev/disk/by-id/ata-TOSHIBA_MG08ACA16TE_X0")[leg],
            "state": state,
            "state_age_ns": int(age * NS) if state != "healthy" else None,
            "out_reason": ("joining" if joining else "unresponsive") if state == "out" else None,
            "slow": leg == 1 and state == "healthy",
            "owed_bytes": owed,
            "owed_region_bytes": owed if joining else 0,
            "in_flight": 7 if leg else 2,
            "reads": latency(int(age * 900), p50, p99),
            "writes": latency(int(age * 610), p50 * 1.1, p99),
            "frozen_ns": int(age * NS) if state == "frozen" else 0,
            "remaining_ns": 531 * NS if joining else None,
            "drain_bytes_per_s": 79 * MIB if joining else None,
            "progress_permille": 795 if joining else None,
            "drive": {
                "model": model,
                "serial": ("S5GXNF0R", "71U0A0KZFVGG")[leg],
                "firmware": ("5B2QGXA7", "0102")[leg],
                "rotational": leg == 1,
                "temperature_celsius": (46, 38)[leg],
                "used_permille": (73, None)[leg],
                "media_errors": 0,
                "power_on_hours": (9120, 21804)[leg],
                "written_bytes": (91_000_000_000_000, None)[leg],
                "rated_end_at_ms": (1_930_000_000_000, None)[leg],
                "why_unknown": None,
            },
            "verdict": {
                "text": "Answers writes 5 times later than in its first week.",
                "since_ms": 0,
                "severity": "notice",
            }
            if leg == 1
            else None,
        }

    def history(self, span: int, points: int) -> dict[str, Any] | None:
        if self.name == "bare":
            return None
        now = time.time()
        step = span / points
        times = [now - span + (index + 1) * step for index in range(points)]
        chance = random.Random(7)
        begins = {"frozen": 0.985, "out": 0.6, "rebuild": 0.9}.get(self.name, 2.0)
        freezes = [(0.22, 0.235), (0.61, 0.622)]
        shares = [(index + 1) / points for index in range(points)]

        def is_frozen(share: float) -> bool:
            later = self.name == "frozen" and share > begins
            return later or any(begin <= share < end for begin, end in freezes)

        def wave(share: float, base: float, sway: float) -> float:
            noise = chance.lognormvariate(0, 0.16)
            return base * (1 + sway * math.sin(share * 9)) * noise

        legs = []
        for leg, (p50, p99) in enumerate([(60e3, 300e3), (4.1e6, 31e6)]):
            frozen = [1000 if leg == 1 and is_frozen(share) else 0 for share in shares]
            gone = [
                1000 if leg == 1 and self.name in ("out", "rebuild") and share > begins else 0
                for share in shares
            ]
            debt = []
            owes = 0.0
            for held, lost in zip(frozen, gone, strict=True):
                owes = owes + 2.4 * MIB * step if held or lost else max(0.0, owes - 9 * MIB * step)
                debt.append(int(owes))
            silent = [held or lost for held, lost in zip(frozen, gone, strict=True)]
            legs.append(
                {
                    "leg": leg,
                    "name": ("nvme", "hdd")[leg],
                    "p50_ns": [
                        None if no else int(wave(s, p50, 0.3))
                        for s, no in zip(shares, silent, strict=True)
                    ],
                    "p99_ns": [
                        None if no else int(wave(s, p99, 0.4))
                        for s, no in zip(shares, silent, strict=True)
                    ],
                    "max_ns": [int(p99 * 3)] * points,
                    "frozen_permille": frozen,
                    "out_permille": gone,
                    "owed_bytes": debt,
                    "in_flight": [2] * points,
                    "reads": [900] * points,
                    "writes": [610] * points,
                    "read_bytes": [3_600_000] * points,
                    "written_bytes": [2_400_000] * points,
                }
            )
        counts = []
        for share in shares:
            middle = 3.7 + 0.5 * math.sin(share * 9)
            column = [int(30_000 * math.exp(-((row - middle) ** 2) / 1.6)) for row in range(24)]
            for row in range(6, 12):
                column[row] += chance.randrange(0, 3)
            if is_frozen(share):
                column[12] += 9
            counts.append(column)
        return {
            "from_at_ms": int(times[0] * 1000),
            "step_ms": int(step * 1000),
            "times_ms": [int(at * 1000) for at in times],
            "clients": {
                "reads": [wave(s, 1900, 0.3) for s in shares],
                "writes": [wave(s, 610, 0.2) for s in shares],
                "read_bytes": [wave(s, 7.6e6, 0.3) for s in shares],
                "written_bytes": [wave(s, 2.4e6, 0.2) for s in shares],
                "in_flight": [int(wave(s, 11, 0.4)) for s in shares],
                "p50_ns": [int(wave(s, 70e3, 0.2)) for s in shares],
                "p99_ns": [int(wave(s, 400e3, 0.3)) for s in shares],
                "p999_ns": [int(wave(s, 9e6 if is_frozen(s) else 900e3, 0.3)) for s in shares],
                "max_ns": [int(wave(s, 31e6 if is_frozen(s) else 2e6, 0.3)) for s in shares],
            },
            "exposure": {
                "bytes": legs[1]["owed_bytes"],
                "age_ns": [4 * NS if is_frozen(s) else 0 for s in shares],
                "throttled_permille": [0] * points,
            },
            "hidden_ns": [int(step * NS) if is_frozen(s) else 0 for s in shares],
            "process": {"cpu_permille": [31] * points, "resident_bytes": [74 * MIB] * points},
            "legs": legs,
            "heat": {"bounds_ns": BOUNDS, "counts": counts},
        }

    def events(self) -> list[dict[str, Any]]:
        now = int(time.time() * 1000)
        told = [
            (86_400_000, "info", "started", None, "hemi 0.1.0 began to serve; all legs are alike."),
            (
                1_404_000,
                "warning",
                "freeze",
                1,
                "hdd did not answer for 211 ms, beyond its wait limit: it counts as frozen.",
            ),
            (
                1_403_800,
                "notice",
                "authority-moved",
                1,
                "14 regions that hdd decided are decided by nvme.",
            ),
            (1_377_000, "notice", "thaw", 1, "hdd answers again after 27 s; it owes 63 MiB."),
            (
                702_000,
                "warning",
                "freeze",
                1,
                "hdd did not answer for 198 ms: it counts as frozen.",
            ),
            (680_400, "notice", "thaw", 1, "hdd answers again after 21.6 s; it owes 51 MiB."),
            (400_000, "info", "request", None, "Asked at the control socket: status."),
        ]
        if self.name == "out":
            told.append(
                (
                    9_000,
                    "critical",
                    "out",
                    1,
                    "hdd has been frozen for 1 min and is out: only nvme is in.",
                )
            )
        return [
            {
                "id": number,
                "at": now - ago,
                "severity": severity,
                "kind": kind,
                "leg": leg,
                "name": None if leg is None else ("nvme", "hdd")[leg],
                "text": text,
                "values": {},
            }
            for number, (ago, severity, kind, leg, text) in enumerate(told, 1)
        ]

    def regions(self, cells: int) -> dict[str, Any] | None:
        if self.name == "bare":
            return None
        chance = random.Random(3)
        hot = [math.exp(-((cell - cells * 0.3) ** 2) / (cells * 6)) for cell in range(cells)]
        touched = [int(1000 * heat * chance.random()) if heat > 0.02 else 0 for heat in hot]
        return {
            "regions": 3200,
            "region_bytes": 64 * MIB,
            "cells": cells,
            "authority": [
                (0 if chance.random() < 0.8 else 1) if share else None for share in touched
            ],
            "armed": [min(1000, share + 150) if share else 0 for share in touched],
            "touched": touched,
            "owed": [
                share if self.name in ("frozen", "rebuild") and share > 200 else 0
                for share in touched
            ],
        }

    def access(self, granted: bool) -> dict[str, Any]:
        return {
            "read": "token" if self.needs_token else "open",
            "change": "token" if self.token else "off",
            "inject": True,
            "granted": granted,
            "address": None,
            "why_not": None if self.token else "Set http_token_file.",
        }


class Handler(BaseHTTPRequestHandler):
    """Answers one request from the server's scene."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    @property
    def scene(self) -> Scene:
        return self.server.scene  # type: ignore[attr-defined, no-any-return]

    def _granted(self) -> bool:
        token = self.scene.token
        return token is not None and self.headers.get("authorization") == f"Bearer {token}"

    def _send(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-security-policy", POLICY)
        self.end_headers()
        self.wfile.write(body)

    def _json(self, body: Any, code: int = 200) -> None:
        if body is None:
            code, body = 404, {"error": "not-found", "what": "there is no such path", "way_out": ""}
        self._send(code, "application/json", json.dumps(body).encode())

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        path = parts.path
        if path == "/":
            page = (PAGE / "index.html").read_text().replace("VERSION", "x")
            return self._send(200, "text/html; charset=utf-8", page.encode())
        if path.startswith("/assets/x/"):
            file = PAGE / Path(path).name
            if not file.is_file():
                return self._json(None)
            kind = KINDS.get(file.suffix, "text/plain")
            return self._send(200, f"{kind}; charset=utf-8", file.read_bytes())
        if path == "/v1/access":
            return self._json(self.scene.access(self._granted()))
        if self.scene.needs_token and not self._granted():
            return self._json({"error": "unauthorized", "what": "no token", "way_out": ""}, 401)
        match path:
            case "/v1/status":
                return self._json(self.scene.status())
            case "/v1/live" if self.scene.name != "bare":
                return self._live()
            case "/v1/history":
                span, points = int(asked["span"]), int(asked["points"])
                return self._json(self.scene.history(span, points))
            case "/v1/events" if self.scene.name != "bare":
                after = int(asked.get("after", 0))
                events = [one for one in self.scene.events() if one["id"] > after]
                last = events[-1]["id"] if events else after
                return self._json({"events": events, "next": last})
            case "/v1/regions":
                return self._json(self.scene.regions(int(asked["cells"])))
            case "/v1/settings":
                return self._json(
                    [{"key": "exposure", "value": "256MiB", "live": True, "why_not": None}]
                )
        return self._json(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self._granted():
            return self._json({"error": "unauthorized", "what": "no token", "way_out": ""}, 401)
        self.scene.asked.append((self.path, json.loads(body)))
        return self._json({"done": True})

    def _live(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        try:
            while not self.server.ends:  # type: ignore[attr-defined]
                data = json.dumps(self.scene.status())
                self.wfile.write(f"event: status\ndata: {data}\n\n".encode())
                self.wfile.flush()
                time.sleep(0.25)
        except OSError:
            pass


class Fake(ThreadingHTTPServer):
    """The server on a port of 127.0.0.1. It runs while its context is open."""

    daemon_threads = True

    def __init__(self, scene: Scene, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.scene = scene
        self.ends = False
        self.address = f"http://127.0.0.1:{self.server_port}/"

    def __enter__(self) -> Fake:
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ends = True
        self.shutdown()
        self.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9199)
    parser.add_argument("--scene", choices=SCENES, default="safe")
    parser.add_argument("--token")
    asked = parser.parse_args()
    server = Fake(Scene(asked.scene, asked.token), asked.port)
    print(server.address, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
