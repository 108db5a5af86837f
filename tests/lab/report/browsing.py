"""Looking at a page with a real browser: what the tests of both kinds of pages need."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import (
        Browser,
        ConsoleMessage,
        Locator,
        Page,
        Request,
        ViewportSize,
    )

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
def opened(tab: Page, address: str) -> Iterator[Page]:
    """The page, loaded anew; ends with an error if the browser complained or fetched anything.

    All tests of a module use one tab: a new one is a new process, the cost of four pages.
    """
    tab.goto("about:blank")  # nothing is left of the test before: focus, hover, what was unfolded
    tab.set_viewport_size(DESKTOP)
    tab.emulate_media(media="null", color_scheme="light")
    tab.mouse.move(0, 0)
    with watched(tab) as (complaints, requests):
        tab.goto(address)
        yield tab
    assert not complaints
    assert [url for url in requests if not url.startswith("data:")] == [address]


@contextmanager
def watched(tab: Page) -> Iterator[tuple[list[str], list[str]]]:
    """What the browser complains of, and the addresses that it asks for."""
    complaints: list[str] = []
    requests: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        complaints.append(message.text)

    def on_error(error: Exception) -> None:
        complaints.append(str(error))

    def on_request(request: Request) -> None:
        requests.append(request.url)

    tab.on("console", on_console)
    tab.on("pageerror", on_error)
    tab.on("request", on_request)
    try:
        yield complaints, requests
    finally:
        tab.remove_listener("console", on_console)
        tab.remove_listener("pageerror", on_error)
        tab.remove_listener("request", on_request)


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
