"""Looking at a page with a real browser: what the tests of both kinds of pages need."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, ViewportSize

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

PHONE: ViewportSize = {"width": 390, "height": 844}
SMALL: ViewportSize = {"width": 360, "height": 740}
DESKTOP: ViewportSize = {"width": 1200, "height": 900}


@contextmanager
def started() -> Iterator[Browser]:
    """A browser; without sandbox, since tests run as root in containers and the page is ours."""
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, address: str) -> Iterator[Page]:
    """The page; ends with an error if the browser complained or fetched anything."""
    page = browser.new_page(viewport=DESKTOP)
    page.set_default_timeout(10_000)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(address)
    yield page
    page.close()
    assert not complaints
    assert [url for url in requests if not url.startswith("data:")] == [address]


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def section(page: Page, name: str) -> Locator:
    """A section of the page by its name."""
    return page.locator("main > section").filter(
        has=page.locator("h2", has_text=re.compile(f"^{re.escape(name)}"))
    )


def unfold(page: Page) -> None:
    """Open all that is folded."""
    page.evaluate("document.querySelectorAll('details').forEach((part) => part.open = true)")


def settle(page: Page) -> None:
    """Wait until the page has seen what became of it: observers are told after a frame."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def brightness(page: Page, selector: str, prop: str) -> float:
    """The mean of the three channels of a computed color."""
    script = "([s, p]) => getComputedStyle(document.querySelector(s))[p]"
    color = page.evaluate(script, [selector, prop])
    return sum(map(float, color[color.index("(") + 1 : -1].split(",")[:3])) / 3


def column(table: Locator, number: int) -> list[str]:
    """The texts of a column of a table, from top to bottom."""
    rows = table.locator("tbody tr").all()
    return [row.locator("th, td").nth(number).inner_text().strip() for row in rows]
