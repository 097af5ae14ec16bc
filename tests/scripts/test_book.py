"""Links between the pages lead somewhere, and the book has every page.

Offline, and without mdBook: pages are parsed as a forge's renderer parses them.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SUMMARY = DOCS / "SUMMARY.md"
SCRIPT = ROOT / "scripts" / "book.sh"
PARSER = MarkdownIt("commonmark").enable("table")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
ATTRIBUTE = re.compile(r'\b(?:src|srcset|href)="([^"\s]+)"')
NAMED = re.compile(r'<[a-z]+\s[^>]*\b(?:id|name)="([^"]+)"')
PARTS = ["Start", "Operate", "Commands", "Design", "Lab", "Reproductions", "Glossary"]


@cache
def tokens(page: Path) -> list[Token]:
    """Returns the tokens of a page, inline ones included."""
    found = []
    for token in PARSER.parse(page.read_text()):
        found.append(token)
        found.extend(token.children or [])
    return found


def links(page: Path) -> Iterator[str]:
    """Yields the targets of links and pictures that stay in the tree."""
    for token in tokens(page):
        if token.type == "link_open":
            found = [str(token.attrGet("href"))]
        elif token.type == "image":
            found = [str(token.attrGet("src"))]
        elif token.type in ("html_inline", "html_block"):
            found = ATTRIBUTE.findall(token.content)
        else:
            continue
        yield from (link for link in found if not ELSEWHERE.match(link))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Returns the fragments of a page, named as GitHub and mdBook name headings."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for before, token in zip([None, *tokens(page)], tokens(page), strict=False):
        if token.type in ("html_inline", "html_block"):
            found.update(NAMED.findall(token.content))
        if before is None or before.type != "heading_open":
            continue
        text = "".join(
            part.content
            for part in token.children or []
            if part.type in ("text", "code_inline", "softbreak")
        )
        slug = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)


def target(page: Path, link: str) -> Path:
    """Returns the file or directory that a link leads to."""
    path = link.partition("#")[0]
    return (page.parent / path).resolve() if path else page


@cache
def pages() -> list[Path]:
    """Lists the Markdown files of the tree, those not yet committed included."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("the tree is no git repository")
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def chapters() -> list[Path]:
    """Lists the pages of the book in their order."""
    return [target(SUMMARY, link) for link in links(SUMMARY)]


def staged() -> list[Path]:
    """Lists the files and directories that scripts/book.sh links into the book's source."""
    text = SCRIPT.read_text()
    loop = re.search(r"for entry in (.*); do", text)
    assert loop, "scripts/book.sh lists the entries of the root"
    single = re.findall(r'ln -s "\$PWD/([a-z/]+)"', text)
    return [ROOT / name for name in [*loop[1].split(), *single]]


def test_every_link_leads_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages()
        for link in links(page)
        if not target(page, link).exists()
    ]
    assert not dead, "links to what is not there:\n" + "\n".join(dead)


def test_every_anchor_is_a_heading() -> None:
    dead = []
    for page in pages():
        for link in links(page):
            fragment = link.partition("#")[2]
            other = target(page, link)
            if fragment and other.suffix == ".md" and fragment not in anchors(other):
                dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert not dead, "links to headings that are not there:\n" + "\n".join(dead)


def test_every_page_is_in_the_book_once() -> None:
    named = Counter(chapters())
    missing = [str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md") if page not in named]
    assert sorted(missing) == ["docs/SUMMARY.md"]
    assert not [page for page, times in named.items() if times > 1]


def test_the_book_has_its_parts_in_order() -> None:
    headings = re.findall(r"^# (.+)$", SUMMARY.read_text(), re.M)
    assert headings == ["Contents", *PARTS]


def test_links_of_the_book_stay_in_the_book() -> None:
    """A page that is no chapter, a directory and a file that is not copied would be dead links."""
    named = set(chapters())
    copied = [entry for entry in staged() if entry.is_dir()]
    dead = []
    for page in named:
        for link in links(page):
            other = target(page, link)
            inside = other in named or (
                other.suffix != ".md"
                and not other.is_dir()
                and any(other.is_relative_to(entry) for entry in copied)
            )
            if not inside:
                dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert not dead, "links that lead out of the book:\n" + "\n".join(dead)


def test_the_index_lists_every_page() -> None:
    """Each page of docs/ is in docs/README.md, or in a directory's list that it names."""
    index = DOCS / "README.md"
    linked = {target(index, link) for link in links(index)}
    for page in [page for page in linked if page.name == "README.md" and page != index]:
        linked.update(target(page, link) for link in links(page))
    unlisted = [
        str(page.relative_to(ROOT))
        for page in DOCS.rglob("*.md")
        if page not in linked and page not in (index, SUMMARY)
    ]
    assert not unlisted, f"docs/README.md lists neither these nor their directories: {unlisted}"


def test_every_make_target_that_is_shown_exists() -> None:
    defined = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.M))
    missing = []
    for page in pages():
        for token in tokens(page):
            if token.type not in ("code_inline", "fence"):
                continue
            for line in token.content.splitlines():
                begun = re.match(r"(?:[$#] )?(?:sudo )?make ((?:[a-z][a-z0-9-]* ?)+)", line)
                shown = begun[1].split() if begun else []
                missing += [
                    f"{page.relative_to(ROOT)}: {name}" for name in shown if name not in defined
                ]
    assert not missing, "make has no such target:\n" + "\n".join(missing)


def test_headings_are_named_as_a_forge_names_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `hemi x` (P1): what?\n\n## Twice\n\n## Twice\n\n<a id='no'>\n")
    assert anchors(page) == {"a-hemi-x-p1-what", "twice", "twice-1"}


def test_links_are_found_wherever_they_stand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '| a |\n| --- |\n| [b](c.md#d) |\n\n<img src="e.svg">\n\n![f][g]\n\n[g]: h.png\n\n'
        "`[no](i.md)`\n\n```\n[no](j.md)\n```\n\n[k](https://example.org)\n"
    )
    assert sorted(links(page)) == ["c.md#d", "e.svg", "h.png"]
