"""A fake `smartctl` for tests, which hemi finds before any other."""

from __future__ import annotations

import json
import os
from typing import Any

from .sandbox import Sandbox

NVME = {
    "smartctl": {"version": [7, 3], "exit_status": 0},
    "model_name": "Made Drive 1",
    "serial_number": "MADE1",
    "firmware_version": "F1",
    "smart_status": {"passed": True},
    "nvme_smart_health_information_log": {
        "percentage_used": 12,
        "data_units_written": 1000,
        "media_errors": 3,
    },
    "temperature": {"current": 44},
    "power_on_time": {"hours": 77},
}
DAY_MS = 86_400_000


class Smartctl:
    """The program, the directory of its volumes' state, and a log of its calls."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.directory = sandbox.path("bin")
        self.calls = sandbox.path("calls")
        self.state = sandbox.path("state")
        self.directory.mkdir()
        self.env = {
            "PATH": f"{self.directory}:{os.environ['PATH']}",
            "STATE_DIRECTORY": str(self.state),
        }

    def does(self, script: str) -> None:
        path = self.directory / "smartctl"
        path.write_text(f'#!/bin/sh\necho "$@" >> {self.calls}\n{script}\n')
        path.chmod(0o755)

    def tells(self, output: dict[str, Any], code: int = 0) -> None:
        answer = self.sandbox.path("answer.json")
        answer.write_text(json.dumps(output))
        self.does(f"cat {answer}; exit {code}")

    def called(self) -> str:
        return self.calls.read_text() if self.calls.exists() else ""

    def has_watched(self, now_ms: int) -> None:
        """Pretends that the drive was watched for 60 days, in which it used a percent every 20
        days."""
        (path,) = self.state.glob("*.drives.json")
        kept = json.loads(path.read_text())
        kept["drives"]["MADE1"]["moments"] = [
            {"at_ms": now_ms - days * DAY_MS, "used_permille": used}
            for days, used in ((60, 80), (50, 90), (30, 100), (10, 110))
        ]
        path.write_text(json.dumps(kept))
