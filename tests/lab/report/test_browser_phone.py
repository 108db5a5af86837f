"""Recorded experiments on a phone, and charts that tell their values: in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.lab.report.browsing import (
    DESKTOP,
    PHONE,
    needs_chromium,
    opened,
    section,
    settle,
    unfold,
)
from tests.lab.report.recorded import BESIDE, RECORDED, RECORDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, ViewportSize

pytestmark = needs_chromium

# Texts that are shown, but not whole: their frame ends before they do; at all places of scrolling.
CUT = """async (frame) => {
  const { left, right } = frame.getBoundingClientRect();
  const cut = [];
  const drawn = () => new Promise(requestAnimationFrame);
  for (let at = 0; at <= frame.scrollWidth - frame.clientWidth; at += 35) {
    frame.scrollLeft = at;
    await drawn();
    await drawn();
    const texts = document.createTreeWalker(frame, NodeFilter.SHOW_TEXT);
    for (let text; (text = texts.nextNode()); ) {
      const range = document.createRange();
      range.selectNode(text);
      const box = range.getBoundingClientRect();
      const cell = text.parentElement.closest('th, td');
      if (!cell || !text.data.trim() || text.parentElement.closest('.hidden')) continue;
      if (getComputedStyle(cell).opacity === '0') continue;
      if (getComputedStyle(cell).clipPath !== 'none') continue;
      const outside = box.right < left || box.left > right;
      if (!outside && (box.left < left - 1 || box.right > right + 1)) cut.push(text.data);
    }
  }
  return cut;
}"""


@pytest.fixture(scope="module")
def address(recorded: str) -> str:
    return recorded


@pytest.fixture
def phone(tab: Page, address: str) -> Iterator[Page]:
    with opened(tab, address) as page:
        page.set_viewport_size(PHONE)
        yield page


def charts_of(page: Page, title: str) -> Locator:
    return page.locator(".chart", has=page.get_by_role("img", name=title)).first


def tip(chart: Locator) -> list[str]:
    """The lines of what a chart tells now."""
    return [text.strip() for text in chart.get_by_role("status").inner_text().splitlines() if text]


# ---- the page --------------------------------------------------------------------------------


def test_the_first_sight_is_short_and_every_section_is_named(phone: Page) -> None:
    height = phone.evaluate("document.documentElement.scrollHeight")
    assert height < 10 * PHONE["height"]
    sections = phone.locator("main > section h2").filter(visible=True)
    assert sections.count() == 3 + len(RECORDED)  # the summary, the hostile one, the recipe


@pytest.mark.parametrize("window", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_a_link_opens_its_section_and_stays_in_sight(page: Page, window: ViewportSize) -> None:
    page.set_viewport_size(window)
    link = page.get_by_role("navigation").get_by_role("link", name="tab-noise")
    link.click()
    part = section(page, "tab-noise")
    part.locator("table.values").wait_for(state="visible")
    settle(page)
    heading, bar = part.get_by_role("heading", level=2).bounding_box(), link.bounding_box()
    assert heading is not None
    assert bar is not None
    assert 0 <= bar["y"] < window["height"] / 2
    beside = bar["x"] + bar["width"] <= heading["x"]
    assert beside or heading["y"] >= bar["y"] + bar["height"]
    assert heading["y"] < window["height"] / 3
    page.mouse.wheel(0, 300)
    settle(page)
    assert link.get_attribute("aria-current") == "true"
    assert link.bounding_box() is not None


def test_an_address_with_a_section_opens_it(tab: Page, address: str) -> None:
    with opened(tab, address) as page:
        first = page.locator("details.part").first
        assert first.get_attribute("open") is None
        page.evaluate("location.hash = '#experiment-1'")
        page.locator("details.part[open]").wait_for()
        assert first.get_attribute("open") is not None


def test_one_legend_stays_in_sight_with_every_chart_of_a_recipe(phone: Page) -> None:
    part = section(phone, BESIDE)
    part.locator("summary").first.click()
    legends = part.get_by_role("list", name="Legend")
    assert legends.count() == 1
    for chart in part.locator("figure").all():
        chart.evaluate("e => e.scrollIntoView({ block: 'end' })")
        settle(phone)
        box, bar = legends.bounding_box(), phone.get_by_role("navigation").bounding_box()
        assert box is not None
        assert bar is not None
        assert bar["y"] + bar["height"] - 1 <= box["y"]
        assert box["y"] + box["height"] <= PHONE["height"]


# ---- tables ----------------------------------------------------------------------------------


def test_no_number_of_a_table_is_cut_wherever_it_is_scrolled_to(phone: Page) -> None:
    unfold(phone)
    settle(phone)
    frames = phone.locator(".scroll").all()
    assert len(frames) > 30
    wide = 0
    for frame in frames:
        width = frame.evaluate("e => e.scrollWidth - e.clientWidth")
        hint = frame.locator("xpath=following-sibling::p[1]")
        assert hint.inner_text().startswith("Scroll the table sideways")
        assert hint.is_visible() == (width > 1)
        wide += width > 1
        assert frame.evaluate(CUT) == []
    assert wide > 0


def test_a_hint_says_that_a_table_goes_on_until_its_end_is_seen(phone: Page) -> None:
    part = section(phone, BESIDE)
    part.locator("summary").first.click()
    frame = part.get_by_role("region", name=f"Results of {BESIDE}")
    fade = "e => getComputedStyle(e).maskImage"
    assert part.get_by_text("Scroll the table sideways").first.is_visible()
    assert "gradient" in frame.evaluate(fade)
    frame.evaluate("e => { e.scrollLeft = e.scrollWidth }")
    settle(phone)
    assert frame.evaluate(fade) == "none"
    phone.set_viewport_size(DESKTOP)
    settle(phone)
    assert not part.get_by_text("Scroll the table sideways").first.is_visible()


def test_the_rows_of_a_group_stand_below_its_name(phone: Page) -> None:
    part = section(phone, "tab-noise")
    part.locator("summary").first.click()
    group, first, again = (
        part.locator("table.values tbody").locator(css).first.bounding_box()
        for css in ("th", "td", "tr.again td")
    )
    assert group is not None
    assert first is not None
    assert again is not None
    assert group["y"] + group["height"] <= first["y"] + 1
    assert group["x"] == first["x"] == again["x"]
    settle(phone)
    opacity = "e => getComputedStyle(e).opacity"  # 0 for what would be cut: the name cuts nothing
    named = part.locator("table.values tbody tr:not(.again) td:nth-child(2)").all()
    assert {cell.evaluate(opacity) for cell in named} == {"1"}


# ---- charts ----------------------------------------------------------------------------------


@pytest.fixture
def beside(page: Page) -> Locator:
    part = section(page, BESIDE)
    part.locator("summary").first.click()
    return part


def test_a_chart_tells_the_values_that_the_mouse_points_at(beside: Locator) -> None:
    chart = charts_of(beside.page, "Validation accuracy")
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] - 15, "y": 30})
    # Means over seeds at epoch 3 of 3, where validation is 1 below the scores.
    assert tip(chart) == ["epoch 3", "sgd", "89.5", "sam", "91", "sampa", "91.5", "asam", "8.25"]
    guide = chart.locator(".guide").bounding_box()
    assert guide is not None
    assert guide["x"] > box["x"] + 0.9 * box["width"]
    beside.page.mouse.move(0, 0)
    assert tip(chart) == []


def test_the_arrow_keys_step_through_the_values(beside: Locator) -> None:
    chart = charts_of(beside.page, "Training loss")
    chart.focus()
    heads: list[str] = []
    for key in ("ArrowRight", "ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home"):
        beside.page.keyboard.press(key)
        heads.append(tip(chart)[0])
    assert heads == [f"epoch {n}" for n in (1, 2, 3, 3, 2, 1)]
    beside.page.keyboard.press("Escape")
    assert tip(chart) == []


def test_points_rows_and_bars_tell_theirs(beside: Locator) -> None:
    time = charts_of(beside.page, "Test accuracy against time")
    time.focus()
    beside.page.keyboard.press("Home")
    assert tip(time) == ["sgd", "seconds of training", "10", "value", "90"]
    part = section(beside.page, "tab-noise")
    part.locator("summary").first.click()
    same = beside.page.get_by_role("img", name="Differences on the same")
    rows = part.locator(".chart", has=same)
    rows.focus()
    beside.page.keyboard.press("Home")
    recorded = json.loads((RECORDS / "tab-noise" / "results.json").read_text(encoding="utf-8"))
    first = recorded["comparisons"][0]
    head, _, ours, *_, paper = tip(rows)
    assert head == f"{first['row']}, {first['column']} − {first['baseline']}"
    assert float(ours.replace("−", "-")) == pytest.approx(first["ours"]["mean"], rel=1e-3)
    assert float(paper.replace("−", "-")) == pytest.approx(first["paper"], rel=1e-3)


def test_a_touch_tells_values_too(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(address)
    section(page, BESIDE).locator("summary").first.tap()
    chart = charts_of(page, "Validation accuracy")
    chart.scroll_into_view_if_needed()
    chart.tap()
    assert tip(chart)[:3] == ["epoch 2", "sgd", "88.5"]
    page.get_by_role("heading", name="Charts").last.tap()
    assert tip(chart) == []
    context.close()


def test_a_chart_without_a_neighbor_has_its_words_in_the_empty_cell(beside: Locator) -> None:
    figures = beside.locator("figure")
    figures.first.evaluate("figure => figure.remove()")
    assert figures.count() % 2 == 1
    last = figures.last
    chart, caption = (last.locator(css).bounding_box() for css in (".chart", "figcaption"))
    assert chart is not None
    assert caption is not None
    assert caption["x"] > chart["x"] + chart["width"]
    assert caption["y"] < chart["y"] + chart["height"]


def test_values_in_words_are_never_a_wall_of_text(page: Page) -> None:
    """A chart of many values has them in the table below it, and under the mouse."""
    unfold(page)
    shown = page.locator(".aloud").filter(visible=True).all_inner_texts()
    assert shown
    assert max(map(len, shown)) < 500
