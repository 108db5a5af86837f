"""Check a site that was built: every link and anchor leads somewhere, nothing is loaded from the
network, and every public name of the package is in it.

    python -m tools.site.check build/site

mkdocs itself checks links in Markdown alone; this reads the pages.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import sampa
import sampa.flatness

PUBLIC = [
    f"{module.__name__}.{name}" for module in (sampa, sampa.flatness) for name in module.__all__
]
# What a browser fetches by itself, by tag; a link (`a`) waits to be clicked.
LOADED = {"script": "src", "img": "src", "link": "href", "source": "srcset", "iframe": "src"}


@dataclass
class Page(HTMLParser):
    """The links, loaded files and anchors of a page."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if LOADED.get(tag) in values and values.get("rel") != "canonical":
            self.loaded.append(values[LOADED[tag]])


def read(file: Path) -> Page:
    page = Page()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def is_remote(url: str) -> bool:
    return bool(urlsplit(url).netloc)


def faults(site: Path) -> list[str]:
    """What is wrong with a site, a line each."""
    pages = {file: read(file) for file in sorted(site.rglob("*.html")) if file.name != "404.html"}
    found = [
        f"{file.relative_to(site)}: {url}: {fault}"
        for file, page in pages.items()
        for url in (*page.links, *page.loaded)
        if (fault := link_fault(url, file, pages, loaded=url in page.loaded))
    ]
    for sheet in sorted(site.rglob("*.css")):
        text = sheet.read_text(encoding="utf-8")
        remote = re.findall(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)", text)
        found += [f"{sheet.relative_to(site)}: {url}: loaded from the network" for url in remote]
    anchors = set[str]().union(*(page.anchors for page in pages.values()))
    return found + [f"{name}: not in the API reference" for name in PUBLIC if name not in anchors]


def link_fault(url: str, file: Path, pages: dict[Path, Page], *, loaded: bool) -> str | None:
    """Why a link is dead or not allowed; None if it is valid."""
    if is_remote(url):
        return "loaded from the network" if loaded else None
    parts = urlsplit(url)
    if parts.scheme:
        return None  # mailto:, data:, javascript:
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return "no such file"
    page = pages.get(target)
    if parts.fragment and page and unquote(parts.fragment) not in {*page.anchors, "__top"}:
        return "no such anchor"
    return None


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    found = faults(site)
    print("\n".join(found) or f"{site}: {sum(1 for _ in site.rglob('*.html'))} pages, all well")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
