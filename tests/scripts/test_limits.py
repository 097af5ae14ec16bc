"""Checks that docs/limits.md agrees with the code, and lists every bound of the listeners."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "limits.md"
CRATES = ROOT / "crates"

# The directory of a section's bare file names.
FOLDERS = {
    "The engine": CRATES / "engine/src/engine",
    "The volume and its format": CRATES / "engine/src",
}
SERVER = CRATES / "server/src"
IO = CRATES / "io/src"
# The files that bound what whoever connects can take up. Each of their constants is on the page.
LISTENERS = (
    SERVER / "export.rs",
    *(SERVER / "export" / name for name in ("pace.rs", "quota.rs", "request.rs")),
    *(SERVER / "export" / name for name in ("output.rs", "admission.rs", "complaints.rs")),
    SERVER / "control/connections.rs",
    SERVER / "control/routes.rs",
    CRATES / "nbd/src/limits.rs",
)

CONSTANT = re.compile(
    r"^\s*(?:pub(?:\([a-z]+\))? )?const ([A-Z][A-Z0-9_]*): ([^=]+?) = (.+?);", re.M | re.S
)
NAME = re.compile(r"`(_?[A-Z][A-Z0-9_]*)`")
PATH = re.compile(r"`([a-z_/]+\.rs)`")
TIMES = {"MICROSECOND": 10**3, "MILLISECOND": 10**6, "SECOND": 10**9}
UNITS = {"us": 10**3, "millis": 10**6, "secs": 10**9}


@dataclass(frozen=True)
class Row:
    """A row of the page for one constant. `file` is `None` if the named file lacks it."""

    name: str
    file: Path | None
    text: str


def constants(path: Path) -> dict[str, str]:
    """Returns the constants that a file defines, with their expressions."""
    found = {}
    for name, kind, value in CONSTANT.findall(path.read_text(encoding="utf-8")):
        found[name] = value if "&str" not in kind else ""
    return {name: value for name, value in found.items() if value}


def value_of(name: str, path: Path) -> int:
    """Returns the value of a constant. Times are nanoseconds."""
    return evaluate(constants(path)[name], path)


def evaluate(expression: str, path: Path) -> int:
    """Evaluates an expression of constants in the context of a file."""
    source = expression
    expression = re.sub(
        r"\b(\d[\d_]*)(?:u\d+|usize|i\d+)?\b", lambda m: m[1].replace("_", ""), expression
    )
    expression = re.sub(r" as \w+", "", expression)
    expression = re.sub(
        r"Duration::from_(secs|millis)\((.+?)\)",
        lambda m: f"({m[2]}) * {UNITS[m[1]]}",
        expression,
    )

    def of_other(match: re.Match[str]) -> str:
        other = match[0].split("::")[-1]
        if other in TIMES:
            return str(TIMES[other])
        return str(value_of(other, path if other in constants(path) else home_of(other)))

    expression = re.sub(r"(?:\w+::)*[A-Z][A-Z0-9_]+\b", of_other, expression)
    assert re.fullmatch(r"[\d\s().+*/<-]+", expression), f"{path}: {source}"
    # Digits and operators only.
    return int(eval(expression.replace("/", "//")))


def home_of(name: str) -> Path:
    """Returns the one file that defines a constant used by others."""
    homes = [path for path in CRATES.glob("*/src/**/*.rs") if name in constants(path)]
    assert homes, f"no file defines {name}"
    return homes[0]


def forms(value: int) -> Iterator[str]:
    """Yields the forms in which the page may write a value: a number, a size or a time."""
    yield f"{value:,}"
    yield str(value)
    for unit, factor in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("PiB", 1 << 50)):
        if value % factor == 0:
            yield f"{value // factor} {unit}"
            yield f"{value // factor}"
    times = (("ns", 1), ("µs", 10**3), ("ms", 10**6), ("s", 10**9), ("h", 3600 * 10**9))
    for unit, factor in (*times, ("days", 86400 * 10**9)):
        if value % factor == 0:
            yield f"{value // factor} {unit}"
            yield f"{value // factor}"
    # A bound in seconds, or a share.
    yield f"{value / 3600:g} h"
    yield {4: "a quarter", 5: "1/32"}.get(value, f"{value}")


def settings() -> dict[str, str]:
    """Returns the engine's settings that are numbers, with the expressions of their defaults."""
    text = (CRATES / "engine/src/settings.rs").read_text(encoding="utf-8")
    found = {}
    for block in re.findall(r"impl Default for \w+ \{.*?\n\}", text, re.S):
        for name, value in re.findall(r"^ +([a-z_]+): (.+),$", block, re.M):
            if re.fullmatch(r"[A-Z\d_ *<]+", value):
                found[name] = value
    return found


def rows() -> Iterator[Row]:
    """Yields the page's rows that name constants and the file that has them."""
    folder, default = SERVER, None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
            paths = PATH.findall(line)
            default = file_of(paths[0], folder) if paths else None
            folder = FOLDERS.get(heading.split(" (")[0], SERVER)
        if not line.startswith("| "):
            continue
        names: list[str] = []
        for name in NAME.findall(line):
            stem = names[-1].rpartition("_")[0] if name.startswith("_") else ""
            names.append(stem + name)
        named = PATH.findall(line)
        paths = [file_of(path, folder) for path in named] or [default]
        for name in names:
            homes = [path for path in paths if path and name in constants(path)]
            homes = homes or [path for path in moved(named) if name in constants(path)]
            yield Row(name, homes[0] if homes else None, line)


def file_of(path: str, folder: Path) -> Path | None:
    """Returns the file that a row names, or `None` if it is none."""
    crate, _, rest = path.partition("/")
    candidates = (
        folder / path,
        SERVER / path,
        IO / path,
        ROOT / path,
        CRATES / crate / "src" / rest,
    )
    return next((found for found in candidates if found.is_file()), None)


def moved(named: list[str]) -> Iterator[Path]:
    """Yields the files of the same names elsewhere: a bound outlives the place of its file."""
    for path in named:
        yield from sorted(CRATES.glob(f"*/src/**/{Path(path).name}"))


def is_shown(value: int, text: str) -> bool:
    """Returns true if a row shows a value, as a whole number and not a part of one."""
    return any(
        re.search(rf"(?<![\d,.]){re.escape(form)}(?![\d,]\d|\d|\.\d)", text)
        for form in forms(value)
    )


def test_the_page_has_the_values_of_the_code() -> None:
    wrong = []
    for row in rows():
        if row.file is None:
            wrong.append(f"{row.name} is not in the file that the page names: {row.text}")
            continue
        value = value_of(row.name, row.file)
        if not is_shown(value, row.text):
            wrong.append(f"{row.name} is {value}, the page says: {row.text}")
    assert not wrong, "\n".join(wrong)


def test_the_page_has_the_settings_of_the_engine() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    wrong = []
    for name, expression in settings().items():
        value = evaluate(expression, CRATES / "engine/src/settings.rs")
        line = next(
            (
                line
                for line in lines
                if line.startswith("| ") and f"`{name}`" in line.split(" | ")[0]
            ),
            None,
        )
        if line is None or not is_shown(value, line):
            wrong.append(f"{name} is {value}, the page says: {line}")
    assert not wrong, "\n".join(wrong)


def test_every_bound_of_a_listener_is_listed() -> None:
    listed = {row.name for row in rows()}
    bound = re.compile(r"(_MAX|_MIN|_TIMEOUT|_TIME|_BYTES|_PER_[A-Z]+)$")
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in LISTENERS
        for name in constants(path)
        if name not in listed and bound.search(name)
    ]
    assert not missing, "docs/limits.md lacks:\n" + "\n".join(missing)
