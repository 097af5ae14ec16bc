"""Model cards: every published figure of a preset beside the model's own (`hemi sim presets`).

The model has to run for a card, which takes minutes for a large drive. So the cards are made in
parallel with the run and cached for each build of hemi."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from hemi_lab.errors import ToolError


def cache_folder() -> Path:
    """Returns the directory of the card cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hemi-lab" / "cards"


class Cards:
    """Makes the cards of a system's presets, or takes them from the cache."""

    def __init__(self, hemi: str, presets: list[str]) -> None:
        self._running: dict[str, tuple[list[str], subprocess.Popen[str], Path]] = {}
        self._known: dict[str, str] = {}
        build = hashlib.sha256(Path(hemi).read_bytes()).hexdigest()[:16]
        for preset in dict.fromkeys(presets):
            # A preset may be a file. Then its content belongs to the key.
            file = Path(preset)
            content = file.read_bytes() if file.is_file() else b""
            key = hashlib.sha256(preset.encode() + content).hexdigest()[:16]
            kept = cache_folder() / f"{build}-{key}.txt"
            if kept.is_file():
                self._known[preset] = kept.read_text()
                continue
            command = ["nice", "-n", "10", hemi, "sim", "presets", preset]
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._running[preset] = (command, process, kept)

    @property
    def ready(self) -> bool:
        """True if no card is still being made."""
        return all(process.poll() is not None for _, process, _ in self._running.values())

    def text(self) -> str:
        """Returns all cards, waiting for those that are not finished."""
        for preset, (command, process, kept) in list(self._running.items()):
            output, errors = process.communicate()
            del self._running[preset]
            if process.returncode != 0:
                raise ToolError(command, errors)
            self._known[preset] = output
            _keep(kept, output)
        return "\n".join(self._known.values())

    def stop(self) -> None:
        """Kills the processes of unfinished cards."""
        for _, process, _ in self._running.values():
            process.kill()
            process.communicate()
        self._running.clear()


def _keep(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(path)
    except OSError:
        pass  # A cache that cannot be written costs only time.
