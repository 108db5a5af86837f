"""The recorded experiments in a real browser: all there, sorted by a click, readable anywhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from sampa.lab.report import make_report
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.outcome import Entry, Outcome
from sampa.lab.results.paper import Value
from tests.lab.report.browsing import (
    EVIL,
    PHONE,
    brightness,
    column,
    needs_chromium,
    overflow,
)
from tests.marks import rest_is_slow

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = needs_chromium
RECORDS = Path(__file__).parents[3] / "results" / "reproduce"
RECORDED = [name for name in EXPERIMENTS if (RECORDS / name).is_dir()]
WITH_RUNS = "fig-gradient-gap"  # the smallest that has any


def hostile() -> Outcome:
    """An experiment whose every word is markup, and whose numbers sort badly as text."""
    entries = (
        Entry(EVIL, EVIL, {0: 9.0, 1: 9.5}, Value(95.0, 0.1)),
        Entry(EVIL, "ten", {0: 10.0, 1: 11.0}, Value(9.0)),
        Entry(EVIL, "minus", {0: -5.0, 1: -6.0}),
    )
    line = Line(EVIL, [1.0, 2.0], [3.0, 4.0])
    return Outcome(
        id=EVIL,
        title=EVIL,
        scale="cpu",
        about=EVIL,
        label=EVIL,
        claim=EVIL,
        unit=EVIL,
        entries=entries,
        pairs=(("ten", EVIL), ("minus", EVIL)),
        charts=(Chart(EVIL, EVIL, EVIL, EVIL, [line, line], EVIL),),
        facts=(EVIL,),
        conditions={EVIL: EVIL},
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("records")
    for name in RECORDED:
        (root / name).mkdir()
        for file in ("results.json", "notes.md", "runs.jsonl" if name == WITH_RUNS else ""):
            if file and (RECORDS / name / file).exists():
                shutil.copy(RECORDS / name / file, root / name / file)
    (root / "evil").mkdir()
    (root / "evil" / "results.json").write_text(json.dumps(hostile().as_json()), encoding="utf-8")
    (root / "evil" / "notes.md").write_text(f"## {EVIL}\n\n{EVIL} `{EVIL}`\n", encoding="utf-8")
    file = root / "report.html"
    file.write_text(make_report([root]).html, encoding="utf-8")
    return file.as_uri()


def section(page: Page, name: str) -> Locator:
    return page.locator("main > section").filter(has=page.locator(f"h2:has-text({name!r})"))


@pytest.mark.parametrize("name", rest_is_slow(RECORDED, *RECORDED[:1]))
def test_every_experiment_is_there_with_table_and_picture(page: Page, name: str) -> None:
    part = section(page, f"{name}:")
    assert part.locator("table.sheet").first.locator("tbody tr").count() > 0
    pictures = part.locator("figure svg")
    assert pictures.count() > 0
    box = pictures.first.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 100
    link = page.get_by_role("link", name=name, exact=True)
    assert page.locator(link.get_attribute("href") or "").inner_text().startswith(name)


def test_experiments_come_in_the_papers_order(page: Page) -> None:
    shown = [text.split()[0] for text in page.locator(".contents dt").all_inner_texts()]
    assert shown[: len(RECORDED)] == RECORDED


def test_the_summary_counts_how_often_the_order_is_the_papers(page: Page) -> None:
    lead = page.locator(".lead").inner_text()
    assert "differences between methods that the paper prints too" in lead
    assert page.locator(".contents .verdict").count() > 3


def test_what_was_trained_for_an_experiment_is_part_of_it(page: Page) -> None:
    part = section(page, f"{WITH_RUNS}:")
    assert part.get_by_role("img", name="Sharpness gap").is_visible()
    assert part.get_by_role("img", name="Validation accuracy").is_visible()


def test_words_by_hand_are_shown_with_names_as_code(page: Page) -> None:
    part = section(page, "tab-noise:")
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
    table = section(page, EVIL).locator("table.values")
    button = table.locator("thead button").nth(number)
    assert button.inner_text() == name
    button.click()
    assert column(table, number) == numbers + missing
    button.click()
    assert column(table, number) == numbers[::-1] + missing


def test_a_repeated_name_is_soft_after_sorting_too(page: Page) -> None:
    table = section(page, "tab-noise:").locator("table.values")
    names, soft = "tr => tr.cells[0].innerText", "tr => tr.classList.contains('again')"
    for _ in range(2):
        rows = table.locator("tbody tr").all()
        shown = [row.evaluate(names) for row in rows]
        again = [i > 0 and shown[i] == shown[i - 1] for i in range(len(shown))]
        assert [row.evaluate(soft) for row in rows] == again
        table.get_by_role("columnheader", name="method").get_by_role("button").click()


def test_columns_with_nothing_in_them_are_left_out(page: Page) -> None:
    heads = section(page, "fig-toy:").locator("table.values th[scope=col]").all_inner_texts()
    assert heads == ["row", "method", "ours", "n"]


def test_markup_stays_text_everywhere(page: Page) -> None:
    part = section(page, EVIL)
    assert part.count() == 1
    assert page.locator("script").count() == 1
    assert "taken over" not in page.title()
    assert part.locator("svg text", has_text=EVIL).count() >= 2  # axes
    assert part.locator("h3", has_text=EVIL).is_visible()  # notes
    assert part.locator("code", has_text=EVIL).count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 360, 1280])
def test_the_page_is_never_wider_than_the_window(
    page: Page, scheme: Literal["dark", "light"], width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.emulate_media(color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((part) => part.open = true)")
    assert overflow(page) <= 0


def test_wide_tables_scroll_in_their_own_frame_on_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    frame = section(page, "tab-noise:").locator(".scroll").first
    inner, outer = frame.evaluate("e => [e.scrollWidth, e.clientWidth]")
    assert inner > outer
    assert frame.evaluate("e => { e.scrollLeft = 50; return e.scrollLeft }") == 50


def test_words_in_charts_are_large_enough_on_a_phone(page: Page) -> None:
    """In pixels of the screen: the drawings are scaled down."""
    page.set_viewport_size({"width": 390, "height": 844})
    script = """() => [...document.querySelectorAll('figure svg')].map((svg) => {
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      const size = (text) => parseFloat(getComputedStyle(text).fontSize);
      return scale * Math.min(...[...svg.querySelectorAll('text')].map(size));
    })"""
    assert min(page.evaluate(script)) > 8.5


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
