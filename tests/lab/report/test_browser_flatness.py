"""Landscapes in a real browser: in a report, and on the page of `sampa flatness`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest

from sampa.lab.flatness.page import flatness_page as flatness_page
from sampa.lab.flatness.saved import write_found
from sampa.lab.flatness.settings import FLATNESS_FILE
from sampa.lab.report import make_report
from tests.lab.flatness.sweeps import found
from tests.lab.report.browsing import DESKTOP, PHONE, brightness, needs_chromium, overflow
from tests.lab.report.folders import write_grid

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize

pytestmark = needs_chromium


@pytest.fixture(scope="module", params=["report", "flatness"])
def address(request: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of both pages that show landscapes."""
    root = tmp_path_factory.mktemp("landscapes")
    file = root / "page.html"
    if request.param == "flatness":
        file.write_text(flatness_page(found(points=7)), encoding="utf-8")
    else:
        write_grid(root / "runs")
        write_found(found(points=7), root / "runs" / "flatness" / FLATNESS_FILE)
        (root / "runs" / "flatness" / "notes.md").write_text(f"Written by\n\n    {'long ' * 40}\n")
        file.write_text(make_report([root / "runs"]).html, encoding="utf-8")
    return file.as_uri()


def test_numbers_are_shown_under_the_pointer_and_under_a_finger(page: Page) -> None:
    """The page's policy lets this one script run, or nothing would be shown."""
    figure = page.locator(".heat-maps figure").first
    cells = figure.locator("rect")
    assert cells.count() == 49
    cells.nth(24).hover()
    assert figure.locator("output").inner_text() == "0.00, 0.00: 3"
    cells.nth(0).dispatch_event("pointerdown")
    assert figure.locator("output").inner_text() == "−1.00, −1.00: 5"
    page.mouse.move(0, 0)
    assert figure.locator("output").inner_text() == ""


def test_maps_of_the_methods_are_side_by_side_and_of_one_size(page: Page) -> None:
    boxes = [map.bounding_box() for map in page.locator(".heat-maps").first.locator("svg").all()]
    assert len(boxes) == 3
    assert None not in boxes
    assert len({(round(b["y"]), round(b["width"]), round(b["height"])) for b in boxes if b}) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("window", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_page_is_never_wider_than_the_window(
    page: Page, scheme: Literal["dark", "light"], window: ViewportSize
) -> None:
    page.set_viewport_size(window)
    page.emulate_media(color_scheme=scheme)
    assert overflow(page) <= 0
    scale = brightness(page, ".heat-scale text", "fill")
    assert scale > 140 if scheme == "dark" else scale < 120


def test_two_maps_stand_beside_each_other_on_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    first, second = (page.locator(".heat-maps svg").nth(i).bounding_box() for i in (0, 1))
    assert first is not None
    assert second is not None
    assert first["y"] == second["y"]
    assert second["x"] > first["x"] + first["width"]
