"""The recorded experiments in a real browser: all there, sorted by a click, readable anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from tests.lab.report.browsing import (
    PHONE,
    brightness,
    column,
    needs_chromium,
    overflow,
    section,
    unfold,
)
from tests.lab.report.folders import EVIL
from tests.lab.report.recorded import RECORDED, WITH_RUNS
from tests.marks import rest_is_slow

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def address(recorded: str) -> str:
    return recorded


def unfolded(page: Page, name: str) -> Locator:
    part = section(page, name)
    part.locator("details").evaluate_all("all => all.forEach((part) => part.open = true)")
    return part


@pytest.mark.parametrize("name", rest_is_slow(RECORDED, *RECORDED[:1]))
def test_every_experiment_is_there_with_table_and_picture(page: Page, name: str) -> None:
    part = unfolded(page, name)
    assert part.locator("table.sheet").first.locator("tbody tr").count() > 0
    pictures = part.locator(".chart svg")
    assert pictures.count() > 0
    box = pictures.first.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 100
    link = page.get_by_role("link", name=name, exact=True)
    assert page.locator(link.get_attribute("href") or "").inner_text().startswith(name)


def test_experiments_come_in_the_papers_order(page: Page) -> None:
    shown = page.locator("nav.sections a").all_inner_texts()
    assert shown[1 : len(RECORDED) + 1] == RECORDED


def test_the_summary_counts_how_often_the_order_is_the_papers(page: Page) -> None:
    lead = page.locator(".lead").inner_text()
    assert "differences between methods that the paper prints too" in lead
    assert page.locator("summary .verdict").filter(visible=True).count() > 3


def test_what_was_trained_for_an_experiment_is_part_of_it(page: Page) -> None:
    part = unfolded(page, WITH_RUNS)
    assert part.get_by_role("img", name="Sharpness gap of the step").is_visible()
    assert part.get_by_role("img", name="Validation accuracy").is_visible()


def test_words_by_hand_are_shown_with_names_as_code(page: Page) -> None:
    part = unfolded(page, "tab-noise")
    assert part.get_by_role("heading", name="What we make of it").is_visible()
    assert part.locator("p code", has_text="train_accuracy").count() == 1


@pytest.mark.parametrize(
    ("number", "name", "numbers", "missing"),
    [
        (3, "ours", ["−5.50 ± 0.71", "9.25 ± 0.35", "10.50 ± 0.71"], []),
        (2, "paper", ["9", "95.00 ± 0.10"], ["–"]),
    ],
)
def test_means_sort_as_numbers_and_what_is_not_printed_stays_last(
    page: Page, number: int, name: str, numbers: list[str], missing: list[str]
) -> None:
    table = unfolded(page, EVIL).locator("table.values")
    button = table.locator("thead button").nth(number)
    assert button.inner_text() == name
    button.click()
    assert column(table, number) == numbers + missing
    button.click()
    assert column(table, number) == numbers[::-1] + missing


def test_a_repeated_name_is_soft_after_sorting_too(page: Page) -> None:
    table = unfolded(page, "tab-noise").locator("table.values")
    names, soft = "tr => tr.cells[0].innerText", "tr => tr.classList.contains('again')"
    for _ in range(2):
        rows = table.locator("tbody tr").all()
        shown = [row.evaluate(names) for row in rows]
        again = [i > 0 and shown[i] == shown[i - 1] for i in range(len(shown))]
        assert [row.evaluate(soft) for row in rows] == again
        table.get_by_role("columnheader", name="method").get_by_role("button").click()


def test_columns_with_nothing_in_them_are_left_out(page: Page) -> None:
    heads = unfolded(page, "fig-toy").locator("table.values th[scope=col]").all_inner_texts()
    assert heads == ["row", "method", "ours", "n"]


def test_markup_stays_text_everywhere(page: Page) -> None:
    part = unfolded(page, EVIL)
    assert part.count() == 1
    assert page.locator("script").count() == 1
    assert "taken over" not in page.title()
    assert part.locator("svg text", has_text=EVIL[:24]).count() >= 2  # axes; the long one is cut
    assert part.locator("h3", has_text=EVIL).is_visible()  # notes
    assert part.locator("code", has_text=EVIL).count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 360, 1280])
def test_the_page_is_never_wider_than_the_window(
    page: Page, scheme: Literal["dark", "light"], width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    unfold(page)
    assert overflow(page) <= 0


def test_words_in_charts_are_large_enough_on_a_phone(page: Page) -> None:
    """In pixels of the screen: the drawings are scaled down."""
    page.set_viewport_size(PHONE)
    unfold(page)
    script = """() => [...document.querySelectorAll('.chart svg')].map((svg) => {
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      const size = (text) => parseFloat(getComputedStyle(text).fontSize);
      return scale * Math.min(...[...svg.querySelectorAll('text')].map(size));
    })"""
    assert min(page.evaluate(script)) > 8.5


def test_no_word_of_a_chart_begins_beyond_its_edge(page: Page) -> None:
    """On a phone that edge is the edge of the screen, nearly."""
    page.set_viewport_size(PHONE)
    unfold(page)
    script = """() => [...document.querySelectorAll('.chart svg')].flatMap((svg) => {
      const edge = svg.getBoundingClientRect().left;
      const beyond = (text) => text.getBoundingClientRect().left < edge - 1;
      return [...svg.querySelectorAll('text')].filter(beyond).map((text) => text.textContent);
    })"""
    assert page.evaluate(script) == []


def test_dark_turns_bars_and_verdicts_too(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    assert brightness(page, ".verdict.agrees", "color") < 110
    page.emulate_media(color_scheme="dark")
    assert brightness(page, "body", "backgroundColor") < 40
    assert brightness(page, ".verdict.agrees", "color") > 110


def test_a_sheet_of_paper_holds_every_table(page: Page) -> None:
    """A4 less its margins is 680 pixels wide; what is wider would be cut off."""
    page.set_viewport_size({"width": 680, "height": 980})
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert overflow(page) <= 0
    assert brightness(page, "body", "backgroundColor") == 255
    assert page.locator("details:not(.single):not([open])").count() == 0
    assert not page.locator(".single").first.is_visible()
