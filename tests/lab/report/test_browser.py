"""The page in a real browser: nothing fails, nothing is fetched, everything fits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

import pytest

from sampa.lab.report import make_report
from tests.lab.report.browsing import (
    DESKTOP,
    PHONE,
    brightness,
    column,
    needs_chromium,
    overflow,
)
from tests.lab.report.folders import EVIL, a_run, write_grid, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, ViewportSize

pytestmark = needs_chromium
LONG = "a-method-with-quite-a-long-name-of-its-own"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("browser")
    scores = {"sgd": (90.0, 91.0, 92.0), "sam": (91.0, 93.0, 92.0), "sampa": (9.0, 100.0)}
    root = write_grid(folder / "runs", {**scores, EVIL: (80.0,), LONG: (9.5,)})
    write_run(root / "half", a_run("asam"), finished=False)
    paper = {"metric": "accuracy", "values": {"sam": [94.26, 0.7], "sgd": [94.0, 0.1]}}
    (root / "paper.json").write_text(json.dumps(paper))
    file = folder / "report.html"
    file.write_text(make_report([root]).html)
    return file.as_uri()


def table_of(page: Page) -> Locator:
    return page.locator("table.sortable").first


def header(page: Page, name: str) -> Locator:
    return table_of(page).get_by_role("columnheader", name=name)


def open_details(page: Page) -> None:
    page.get_by_text("Conditions, settings and single runs").click()
    assert page.get_by_role("heading", name="Conditions", exact=True).is_visible()


def test_the_page_opens_without_complaint_or_request(page: Page) -> None:
    assert page.title() == "5 methods on toy – sampa report"
    assert page.locator("figure svg").count() == 7


def test_charts_are_drawn_and_described(page: Page) -> None:
    chart = page.get_by_role("img", name="Validation accuracy")
    box = chart.bounding_box()
    assert box is not None
    assert box["width"] > 400
    assert box["height"] > 200


def test_markup_in_a_name_stays_text(page: Page) -> None:
    assert EVIL in column(table_of(page), 0)
    assert page.locator("script").count() == 1
    assert "taken over" not in page.title()


def test_a_click_sorts_up_and_the_next_one_down(page: Page) -> None:
    scores = header(page, "test accuracy")
    scores.get_by_role("button").click()
    assert scores.get_attribute("aria-sort") == "ascending"
    assert column(table_of(page), 0) == [LONG, "sampa", EVIL, "sgd", "sam"]  # 9.5, 54.5, 80, 91, 92
    scores.get_by_role("button").click()
    assert scores.get_attribute("aria-sort") == "descending"
    assert column(table_of(page), 0) == ["sam", "sgd", EVIL, "sampa", LONG]


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_key_sorts_too(page: Page, key: str) -> None:
    button = header(page, "n").first.get_by_role("button")
    button.focus()
    page.keyboard.press(key)
    assert column(table_of(page), 1) == ["1", "1", "2", "3", "3"]
    page.keyboard.press(key)
    assert column(table_of(page), 1) == ["3", "3", "2", "1", "1"]


def test_headers_are_reached_with_the_tab_key(page: Page) -> None:
    header(page, "method").get_by_role("button").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "n"


def test_one_column_at_a_time_is_marked_as_sorted(page: Page) -> None:
    header(page, "seconds").get_by_role("button").click()
    header(page, "method").get_by_role("button").click()
    assert page.locator("[aria-sort]").count() == 1
    assert column(table_of(page), 0)[1:] == [LONG, "sam", "sampa", "sgd"]


def test_what_has_no_value_stays_last_both_ways(page: Page) -> None:
    difference = header(page, "against sgd").get_by_role("button")
    for _ in range(2):
        difference.click()
        assert column(table_of(page), 2 + 1)[-1] == "–"


def test_numbers_are_right_aligned_with_equal_digits(page: Page) -> None:
    cell = page.locator("table.numbers td").first
    styles = cell.evaluate(
        "e => [getComputedStyle(e).textAlign, getComputedStyle(e).fontVariantNumeric]"
    )
    assert styles[0] == "right"
    assert "tabular-nums" in styles[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("window", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_page_is_never_wider_than_the_window(
    page: Page, scheme: Literal["dark", "light"], window: ViewportSize
) -> None:
    page.set_viewport_size(window)
    page.emulate_media(color_scheme=scheme)
    open_details(page)
    assert overflow(page) <= 0


def test_wide_tables_scroll_by_themselves_on_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    widths = "e => [e.scrollWidth, e.clientWidth]"
    inner, outer = page.locator(".scroll").first.evaluate(widths)
    assert inner > outer


def test_dark_turns_page_and_charts(page: Page) -> None:
    tick, text = ".chart text", "fill"
    page.emulate_media(color_scheme="light")
    assert brightness(page, "body", "backgroundColor") > 240
    assert brightness(page, tick, text) < 120
    page.emulate_media(color_scheme="dark")
    assert brightness(page, "body", "backgroundColor") < 40
    assert brightness(page, tick, text) > 140


def test_print_is_dark_on_white_without_controls(page: Page) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    assert brightness(page, "body", "backgroundColor") == 255
    assert brightness(page, "body", "color") == 0
    arrow = "getComputedStyle(document.querySelector('th button'), '::after').display"
    assert page.evaluate(arrow) == "none"


def test_paper_shows_what_is_folded(page: Page) -> None:
    assert page.pdf().startswith(b"%PDF")
    assert page.locator("details:not([open])").count() == 0


def test_without_scripts_everything_but_sorting_is_there(browser: Browser, address: str) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(address)
    assert column(table_of(page), 0)[:3] == ["sgd", "sam", "sampa"]
    assert page.locator("th button").count() == 0
    page.close()
