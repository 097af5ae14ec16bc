"""Shell blocks of a Markdown page: the commands it shows and what it says they print."""

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
    # Lines shown below it; empty if the page shows none.
    output: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}: $ {self.text}"


def commands(page: Path, name: str, prompts: tuple[str, ...] = ("$ ",)) -> list[Command]:
    """Every command of a page's shell blocks, in order: fences of a shell, indented blocks.

    `prompts`: what a line with a command begins with. `("$ ", "# ")` if the page has a root's, too.
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
    """The contents of a page's fences in one language."""
    return [
        token.content
        for token in MarkdownIt("commonmark").parse(page.read_text())
        if token.type == "fence" and token.info.strip() == language
    ]


def _split(content: str, marks: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The commands of a block, each with the output below it.

    Where no line begins with a prompt, each line is a command, unless it is a comment. A line
    that ends in a backslash goes on with the next.
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
    # A leg's file system or drive decides it.
    (r"\bblocks of \d+", "blocks of <n>"),
    # Counts of requests in `hemi status`.
    (r"^(read|write|zero|flush) +\d+", r"\1 <n>"),
    # Of latencies there may be none in the last ten seconds; of freezes any number.
    (r"\b\d+, longest <time>", "<time>"),
    (r"(?<!\S)-(?!\S)", "<time>"),
    # In a table, columns are as wide as what is in them.
    (r" +", " "),
)


def stable(line: str) -> str:
    """A line without what differs from run to run: ids, dates, sizes, times, counts."""
    for pattern, placeholder in _PLACEHOLDERS:
        line = re.sub(pattern, placeholder, line)
    return line.strip()


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """Whether a command printed what its page shows, but for what differs from run to run.

    A line that is an ellipsis stands for any number of lines.
    """
    pattern = []
    for line in shown:
        text = stable(line)
        pattern.append("(?:.*\n)*" if text == ELLIPSIS else re.escape(text) + "\n")
    lines = [stable(line) for line in printed.strip("\n").splitlines()]
    return re.fullmatch("".join(pattern), "".join(f"{line}\n" for line in lines)) is not None
