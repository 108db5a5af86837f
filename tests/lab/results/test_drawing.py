"""Charts that come as data: every kind is drawn, in the page's colors, and text stays text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.drawing import HERO, draw, page_chart, write_chart
from sampa.lab.results.looks import looks
from sampa.lab.results.scene import Marks, Scene, Words, width_of

EVIL = "<script>alert('x')</script>"
LINES = [Line(name, [1.0, 2.0], [3.0, 4.0], [2.0, 3.0], [4.0, 5.0]) for name in ("SAM", EVIL)]
VALUES = [Line(name, [1.0], [3.0, 4.0], [2.0], [4.0], group=EVIL) for name in ("SAM", EVIL)]
CHARTS = {
    "lines": Chart("c", "t", EVIL, EVIL, LINES, log_x=True, log_y=True),
    "bars": Chart("c", "t", "x", "", VALUES, kind="bars"),
    "intervals": Chart("c", "t", "x", "", VALUES, kind="intervals"),
    "points": Chart("c", "t", "x", EVIL, [Line(EVIL, [1.0], [3.0], [2.0], [4.0])], kind="points"),
}


def drawn(kind: str) -> str:
    return page_chart(CHARTS[kind])


def styles(names: list[str]) -> list[int]:
    return looks([Line(name, [], []) for name in names])


def scene_of(lines: list[Line]) -> Scene:
    return draw(Chart("c", "t", "", "", lines, kind="intervals")).scene


@pytest.mark.parametrize("kind", CHARTS)
def test_a_chart_has_only_the_pages_colors(kind: str) -> None:
    svg = drawn(kind)
    assert not re.findall(r"#[0-9a-f]{6}\b", svg)
    assert "var(--" in svg


@pytest.mark.parametrize("kind", CHARTS)
def test_markup_in_a_label_stays_text(kind: str) -> None:
    root = ET.fromstring(drawn(kind))
    assert EVIL in " ".join(root.itertext())
    assert not root.findall(".//{*}script")


def test_a_method_looks_alike_in_all_charts() -> None:
    alone, beside = styles(["SAMPa-0.2"]), styles(["SGD", "other", "SAMPa-0.2", "SAM"])
    assert alone[0] == beside[2]
    assert len(set(beside)) == 4


def test_what_ours_is_held_against_is_gray() -> None:
    assert styles(["bound from V", "V"])[0] == styles(["paper", "ours"])[0] == 0


def test_many_lines_all_look_different() -> None:
    names = ["SAM", *map(str, range(20)), "SAMPa-0"]
    assert len(set(styles(names))) == 22


def test_intervals_have_a_heading_for_each_group() -> None:
    names = (("a", "x"), ("a", "y"), ("b", "x"))
    scene = scene_of([Line(label, [0.0], [1.0], [0.5], [1.5], group) for group, label in names])
    found = [part for part in scene.parts if isinstance(part, Words) and part.anchor == "end"]
    assert [(part.text, part.bold) for part in found] == [
        *(("a", True), ("x", False), ("y", False)),
        *(("b", True), ("x", False)),
    ]
    heights = [part.at[1] for part in found]
    assert heights == sorted(heights)


def test_only_a_difference_beyond_chance_has_a_color() -> None:
    """Also where an interval has no length: none at all is no difference."""
    ends = {"sure": (2.0, 1.0, 3.0), "just": (2.0, 0.0, 4.0), "unsure": (1.0, -1.0, 3.0)}
    ends |= {"always 1": (1.0, 1.0, 1.0), "always 0": (0.0, 0.0, 0.0)}
    lines = [Line(name, [0.0], [y], [low], [high]) for name, (y, low, high) in ends.items()]
    marks = [part for part in scene_of(lines).parts if isinstance(part, Marks)]
    colors = [part.color for part in marks if part.shape == "o"]
    assert [color == HERO for color in colors] == [True, True, False, True, False]


@pytest.mark.parametrize("kind", CHARTS)
def test_endless_words_leave_room_for_the_drawing(kind: str) -> None:
    chart, endless = CHARTS[kind], "endless " * 50
    lines = [Line(f"{endless}{i}", n.x, n.y, n.low, n.high) for i, n in enumerate(chart.lines)]
    drawn = draw(replace(chart, lines=lines, x_label=endless, y_label=endless))
    assert drawn.x.end - drawn.x.start > 60
    for part in drawn.scene.parts:
        if isinstance(part, Words):
            length = width_of(part.text, part.size, bold=part.bold)
            assert length < (drawn.scene.height if part.upwards else drawn.scene.width)


@pytest.mark.parametrize("kind", CHARTS)
def test_files_have_the_colors_of_a_light_page_on_white(kind: str, tmp_path: Path) -> None:
    write_chart(CHARTS[kind], tmp_path)
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "c.svg").read_text(encoding="utf-8")
    assert "var(" not in svg  # it has no style sheet
    assert "#ffffff" in svg
