"""Files of the repository as pages of the site, and links between them.

Pages in docs link to source, tests and results beside them, as a reader of the repository expects.
The site has no such files. So every file that is linked, and what it links in turn, becomes a page
below `repository/`, and links are turned there. Without mkdocs, so that tests need none.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = "repository"
LIST = "*"  # in place of a file's name: the list of a folder's pages
PICTURES = (".svg", ".png")
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json"}

# Code first, so that what looks like a link inside of it is left alone.
_LINK = re.compile(r"^```.*?^```|`[^`\n]*`|\]\(([^)#\s]+)((?:#[^)\s]*)?)\)", re.DOTALL | re.M)


class DeadLink(ValueError):
    """A link to a file that is not there."""


def file_of(uri: str) -> Path:
    """The file of the repository that a page of the site shows."""
    if not uri.startswith(f"{OUTSIDE}/"):
        return DOCS / uri
    path = ROOT / uri.removeprefix(f"{OUTSIDE}/")
    if path.exists():
        return path
    return path.parent / LIST if path.name == "index.md" else path.with_suffix("")


def uri_of(path: Path) -> str:
    """Where the site shows a file: a page in docs, or one below `repository/`."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    uri = f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"
    if path.name == LIST:
        return uri.removesuffix(LIST) + "index.md"
    return uri if path.suffix in (".md", *PICTURES) else f"{uri}.md"


def linked_files(text: str, path: Path) -> list[Path]:
    """Files of the repository that a page links to.

    Raises:
        DeadLink: If one is not there, or is outside of the repository.
    """
    found: list[Path] = []
    for match in _LINK.finditer(text):
        link = match[1]
        if link is None or re.match(r"\w+:", link):
            continue
        target = Path(posixpath.normpath(path.parent.joinpath(link).as_posix()))
        if not target.is_relative_to(ROOT) or not target.exists():
            raise DeadLink(f"{path.relative_to(ROOT)}: {link!r} must be in the repository")
        if target.is_dir():
            target /= "README.md" if (target / "README.md").exists() else LIST
        found.append(target)
    return found


def with_site_links(text: str, uri: str) -> str:
    """A page with its links turned to where the site shows their targets."""
    here = file_of(uri)

    def turned(match: re.Match[str]) -> str:
        if match[1] is None or re.match(r"\w+:", match[1]):
            return match[0]
        (target,) = linked_files(match[0], here)
        return f"]({posixpath.relpath(uri_of(target), posixpath.dirname(uri) or '.')}{match[2]})"

    return _LINK.sub(turned, text)


def outside_files(pages: Iterable[Path]) -> list[Path]:
    """All files outside of docs that these pages link to, and what those link to in turn."""
    found: dict[Path, None] = {}
    waiting = list(pages)
    while waiting:
        page = waiting.pop()
        for target in linked_files(as_page(page), page):
            if target.is_relative_to(DOCS) or target in found:
                continue
            found[target] = None
            if target.suffix == ".md" or target.name == LIST:
                waiting.append(target)
    return sorted(found)


def as_page(path: Path) -> str:
    """A file as Markdown: itself if it is Markdown, else its text as code; or a folder's list."""
    name = path.relative_to(ROOT).as_posix()
    if path.name == LIST:
        pages = sorted(path.parent.glob("*/README.md"))
        heads = [page.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ") for page in pages]
        rows = [f"- [{h}]({p.parent.name}/README.md)" for h, p in zip(heads, pages, strict=True)]
        return "\n".join([f"# {name.removesuffix('/' + LIST)}", "", *rows, ""])
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    fence = "`" * 6  # longer than any inside
    return f"# {name}\n\n{fence}{LANGUAGES.get(path.suffix, 'text')}\n{text}{fence}\n"
