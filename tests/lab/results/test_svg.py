"""Charts: valid SVG, the same every time, with colors that the page decides."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from sampa.lab.results import drawing
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.drawing import page_chart
from sampa.lab.results.looks import MARKERS, look
from sampa.lab.results.svg import COLORS, NAMES

TEMPLATES = Path(drawing.__file__).parent / "templates"
BAND = Line("a", [1, 2, 3], [0.11, 0.12, 0.13], [0.1, 0.11, 0.12], [0.12, 0.13, 0.14], look=0)
CLOUD = Line("a", [1.0, 2.0], [90.0, 91.0], look=1)
SWEEP = Line("sampa", [0.0, 0.2], [90.0, 91.0], [89.5, 91.0], [90.5, 91.0], look=2)
CHARTS = {
    "curve": Chart("c", "t", "epoch", "", [BAND], legend=False),
    "time": Chart("c", "t", "seconds", "", [CLOUD], kind="points", legend=False),
    "sweep": Chart("c", "t", "λ", "", [SWEEP], reference=89.0),
}


def drawings() -> dict[str, str]:
    return {kind: page_chart(chart) for kind, chart in CHARTS.items()}


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return drawings()


@pytest.mark.parametrize("kind", ["curve", "time", "sweep"])
def test_a_chart_is_one_well_formed_element(drawn: dict[str, str], kind: str) -> None:
    root = ET.fromstring(drawn[kind])
    assert root.tag.endswith("svg")
    assert "viewBox" in root.attrib
    assert not {"width", "height"} & set(root.attrib)  # the page decides
    assert not root.findall(".//{*}style")  # it would style the whole page


@pytest.mark.parametrize("kind", ["curve", "time", "sweep"])
def test_all_colors_are_the_pages(drawn: dict[str, str], kind: str) -> None:
    fixed = set(re.findall(r"#[0-9a-f]{6}\b", drawn[kind]))
    assert not fixed
    assert "var(--series-" in drawn[kind]


@pytest.mark.parametrize("kind", ["curve", "time", "sweep"])
def test_the_font_is_the_pages(drawn: dict[str, str], kind: str) -> None:
    assert "<text" in drawn[kind]
    assert "DejaVu" not in drawn[kind]


@pytest.mark.parametrize("kind", ["curve", "time", "sweep"])
def test_charts_of_a_page_share_no_ids(drawn: dict[str, str], kind: str) -> None:
    assert not re.findall(r' id="|url\(|href=', drawn[kind])


def test_the_same_series_give_the_same_bytes(drawn: dict[str, str]) -> None:
    assert drawings() == drawn


def test_numbers_on_the_axes_keep_their_digits(drawn: dict[str, str]) -> None:
    """Coordinates are rounded, the text of ticks is not."""
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", drawn["curve"])
    assert {"0.105", "0.125", "epoch"} <= {text.strip() for text in texts}


def test_gaps_and_single_points_can_be_drawn() -> None:
    values = [1.0, math.nan, 3.0]
    gap = Line("a", [1, 2, 3], values, values, values, look=0)
    point = Line("b", [1], [1.0], [1.0], [1.0], look=9)
    chart = Chart("c", "t", "epoch", "", [gap, point], legend=False)
    assert page_chart(chart).startswith("<svg")


def test_looks_do_not_repeat_before_colors_and_markers_are_used_up() -> None:
    looks = {(look(i).color, look(i).marker) for i in range(COLORS * len(MARKERS))}
    assert len(looks) == COLORS * len(MARKERS)
    assert look(0).dashes != look(COLORS).dashes


def test_the_style_sheet_has_every_color_for_light_dark_and_print() -> None:
    css = (TEMPLATES / "style.css").read_text()
    for name in NAMES:
        assert css.count(f"--{name}: #") == 3, name


@pytest.mark.parametrize("theme", [0, 1, 2])
def test_text_and_lines_stand_out_from_the_page(theme: int) -> None:
    """WCAG 2.2: 4.5 to 1 for text, 3 to 1 for what a chart is made of."""
    css = (TEMPLATES / "style.css").read_text().split(":root")[1:][theme]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", css))
    for page in ("paper", "soft"):
        assert all(contrast(colors[name], colors[page]) > 4.5 for name in ("ink", "muted", "link"))
    series = [colors[f"series-{i}"] for i in range(COLORS)]
    assert all(contrast(color, colors["paper"]) > 3 for color in series)


def contrast(a: str, b: str) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
