"""Shell blocks of a Markdown page: its commands and the output that it shows for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

SHELL = ("console", "sh", "bash", "shell")


@dataclass(frozen=True)
class Command:
    """A command as a page shows it."""

    page: str
    # Line of its block on the page, from 1.
    line: int
    text: str
    # Lines shown below it. Empty if the page shows none.
    output: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}: $ {self.text}"


def commands(page: Path, name: str, prompts: tuple[str, ...] = ("$ ",)) -> list[Command]:
    """Returns every command of a page's shell blocks in order: fences of a shell, and indented
    blocks.

    `prompts` are the beginnings of a command's line, `("$ ", "# ")` if the page also has root's.
    """
    found: list[Command] = []
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        fence = token.type == "fence" and token.info.strip() in SHELL
        if fence or token.type == "code_block":
            assert token.map is not None, "every block has lines"
            line = token.map[0] + 1
            for text, output in _split(token.content, prompts):
                found.append(Command(name, line, text, output))
    return found


def blocks(page: Path, language: str) -> list[str]:
    """Returns the contents of a page's fences in one language."""
    return [
        token.content
        for token in MarkdownIt("commonmark").parse(page.read_text())
        if token.type == "fence" and token.info.strip() == language
    ]


def _split(content: str, marks: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields the commands of a block, each with the output below it.

    If no line begins with a prompt, each line is a command, unless it is a comment. A line that
    ends in a backslash continues on the next.
    """
    prompts = any(line.startswith(marks) for line in content.splitlines())
    command: list[str] = []
    output: list[str] = []
    for line in content.splitlines():
        if command and command[-1].endswith("\\"):
            command.append(line)
        elif line.startswith(marks) or (not prompts and re.match(r"\s*[^\s#]", line)):
            if command:
                yield "\n".join(command), _trimmed(output)
            command, output = [(line[2:] if prompts else line).strip()], []
        elif prompts:
            output.append(line)
    if command:
        yield "\n".join(command), _trimmed(output)


def _trimmed(lines: list[str]) -> tuple[str, ...]:
    text = "\n".join(lines).strip("\n")
    return tuple(text.splitlines())


ELLIPSIS = "…"

_PLACEHOLDERS = (
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<id>"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "<date>"),
    (r"\b\d+(\.\d+)? ?(B|bytes|[KMGTP]i?B)(?![\w/])", "<size>"),
    (r"\b\d+(\.\d+)? ?(ns|us|µs|ms|s|min|h|d)\b", "<time>"),
    # Depends on the file system or drive of a leg.
    (r"\bblocks of \d+", "blocks of <n>"),
    # Counts of requests in `hemi status`.
    (r"^(read|write|zero|flush) +\d+", r"\1 <n>"),
    # There may be no latencies in the last ten seconds, and any number of freezes.
    (r"\b\d+, longest <time>", "<time>"),
    (r"(?<!\S)-(?!\S)", "<time>"),
    # The columns of a table are as wide as their content.
    (r" +", " "),
)


def stable(line: str) -> str:
    """Returns a line without parts that differ from run to run: ids, dates, sizes, times,
    counts."""
    for pattern, placeholder in _PLACEHOLDERS:
        line = re.sub(pattern, placeholder, line)
    return line.strip()


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """Returns true if a command printed what its page shows, except for parts that differ each run.

    A line that is an ellipsis stands for any number of lines.
    """
    pattern = []
    for line in shown:
        text = stable(line)
        pattern.append("(?:.*\n)*" if text == ELLIPSIS else re.escape(text) + "\n")
    lines = [stable(line) for line in printed.strip("\n").splitlines()]
    return re.fullmatch("".join(pattern), "".join(f"{line}\n" for line in lines)) is not None
