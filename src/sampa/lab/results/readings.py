"""Readings: the values that a chart in a page tells where it is pointed at.

All words are made here; the page's script looks for the nearest reading and shows it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from sampa.lab.results.axis import Axis
from sampa.lab.results.charts import Chart, full_label, number
from sampa.lab.results.scene import Scene

# Inside an attribute in single quotes, where none of these may be as it is.
ESCAPES = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&'"}


@dataclass(frozen=True)
class Reading:
    """What is told at one place of a chart.

    Attributes:
        x: Of the drawing's width in percent; None if the place is a whole row.
        y: Of its height, from above; None if the place is a whole column.
        head: What all values have in common.
        values: By the names of the readings; empty where one has none.
    """

    x: float | None
    y: float | None
    head: str
    values: list[str]


@dataclass(frozen=True)
class Readings:
    """All readings of a chart.

    Attributes:
        names: Of the values.
        colors: Of the names, by their number in the palette; empty if they have none.
    """

    names: list[str]
    colors: list[int]
    places: list[Reading]

    def as_attribute(self) -> str:
        """For an attribute in single quotes."""
        values = {**asdict(self), "places": [list(asdict(p).values()) for p in self.places]}
        return json.dumps(values, ensure_ascii=False, separators=(",", ":")).translate(ESCAPES)


@dataclass(frozen=True)
class Places:
    """Where values are, in percent of a drawing from its upper left corner."""

    scene: Scene
    x: Axis
    y: Axis

    def across(self, value: float) -> float:
        return round(100 * self.x.place(value) / self.scene.width, 2)

    def down(self, value: float) -> float:
        return round(100 * self.y.place(value) / self.scene.height, 2)


def readings(chart: Chart, places: Places, colors: Sequence[int], rows: Sequence[int]) -> Readings:
    """What a chart tells.

    Args:
        chart: The chart.
        places: Where its values are drawn.
        colors: Of its lines.
        rows: The places of bars and intervals on the y axis.
    """
    if chart.kind == "lines":
        names = [line.label for line in chart.lines]
        return Readings(names, list(colors), list(_columns(chart, places)))
    if chart.kind == "points":
        names = [chart.x_label, chart.y_label or "value"]
        return Readings(names, [], list(_points(chart, places)))
    names = ["ours", "from", "to", "paper"]
    return Readings(names, [], list(_rows(chart, places, rows)))


def _columns(chart: Chart, places: Places) -> Iterator[Reading]:
    """The values of all lines at every x that one of them has and that is shown."""
    found = [dict(zip(line.x, line.y, strict=True)) for line in chart.lines]
    for x in sorted({x for values in found for x in values}):
        texts, at = [_text(values.get(x, math.nan)) for values in found], places.across(x)
        if any(texts) and math.isfinite(at):
            yield Reading(at, None, f"{chart.x_label} {x:g}", texts)


def _points(chart: Chart, places: Places) -> Iterator[Reading]:
    for line in chart.lines:
        for x, y in zip(line.x, line.y, strict=True):
            across, down = places.across(x), places.down(y)
            if math.isfinite(across) and math.isfinite(down):
                yield Reading(across, down, line.label, [_text(x), _text(y)])


def _rows(chart: Chart, places: Places, rows: Sequence[int]) -> Iterator[Reading]:
    for line, row in zip(chart.lines, rows, strict=True):
        ours, *paper = line.y
        shown = [ours, *(line.low or [math.nan]), *(line.high or [math.nan]), *paper]
        values = [*map(_text, shown), ""][:4]
        yield Reading(None, places.down(row), full_label(line), values)


def _text(value: float) -> str:
    return number(value) if math.isfinite(value) else ""
