"""Drawing: every kind of chart as a scene, in one style, for a page or as files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path

from sampa.lab.results.axis import Axis, axis_of
from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.looks import look, looks
from sampa.lab.results.plot import Plot, empty_plot
from sampa.lab.results.readings import Places, readings
from sampa.lab.results.scene import Area, At, Marks, Stroke, Words
from sampa.lab.results.summary import is_beyond_chance
from sampa.lab.results.svg import to_element, to_file

THIN_FROM = 40  # points of a line, from which on it is thin
MARKS_A_LINE = 6
HERO = "series-3"  # the color of what is ours, and of a difference beyond chance
BAR = 0.31  # half of the height of a bar, of its row


def page_chart(chart: Chart) -> str:
    """A chart as an SVG element in the colors of the page, with its readings.

    The page has the keys to its lines: words inside of a drawing shrink with it.
    """
    drawn = draw(replace(chart, legend=False))
    colors = [look(number).color for number in looks(chart.lines)]
    told = readings(chart, Places(drawn.scene, drawn.x, drawn.y), colors, rows_of(chart)[1])
    return to_element(drawn.scene, told.as_attribute())


def write_chart(chart: Chart, folder: Path) -> None:
    """NAME.svg and NAME.png."""
    from sampa.lab.results.png import write_png  # only who needs one waits for matplotlib

    scene = draw(chart).scene
    (folder / f"{chart.name}.svg").write_text(to_file(scene), encoding="utf-8")
    write_png(scene, folder / f"{chart.name}.png")


def draw(chart: Chart) -> Plot:
    """A chart as a scene, with its axes."""
    rows, places = rows_of(chart)
    drawn = empty_plot(chart, *_axes(chart, len(rows)), rows)
    if chart.kind == "lines":
        _lines(chart, drawn)
    elif chart.kind == "points":
        _points(chart, drawn)
    elif chart.kind == "bars":
        _bars(chart, drawn, places)
    else:
        _intervals(chart, drawn, places)
    return drawn


def rows_of(chart: Chart) -> tuple[dict[int, tuple[str, bool]], list[int]]:
    """Names of rows and whether they head a group, and the places of the lines among them."""
    rows: dict[int, tuple[str, bool]] = {}
    places: list[int] = []
    if chart.kind not in ("bars", "intervals"):
        return rows, places
    for group, members in groupby(chart.lines, lambda line: line.group):
        if group and chart.kind == "intervals":
            rows[len(rows)] = group, True
        for line in members:
            places.append(len(rows))
            rows[len(rows)] = line.label, False
    return rows, places


def _axes(chart: Chart, rows: int) -> tuple[Axis, Axis]:
    """The axes that show all of a chart."""
    lines = chart.lines
    reference = [] if chart.reference is None else [chart.reference]
    values = [*chain.from_iterable((*n.y, *n.low, *n.high) for n in lines), *reference]
    if chart.kind == "bars":
        return axis_of(chain.from_iterable(n.y for n in lines), floor=True), _row_axis(rows)
    if chart.kind == "intervals":
        return axis_of([*values, *([] if reference else [0.0])]), _row_axis(rows)
    across = list(chain.from_iterable(n.x for n in lines))
    if chart.kind == "points":
        return axis_of(across, floor=True), axis_of(values, is_log=chart.log_y, margin=0.1)
    return axis_of(across, is_log=chart.log_x), axis_of(values, is_log=chart.log_y)


def _row_axis(rows: int) -> Axis:
    return Axis(-0.6, rows - 0.4)


# ---- lines and points ------------------------------------------------------------------------


def _lines(chart: Chart, drawn: Plot) -> None:
    if chart.reference is not None:
        y = drawn.y.place(chart.reference)
        drawn.scene.add(Stroke([(drawn.x.start, y), (drawn.x.end, y)], "muted", 1.0, (4, 3)))
    for line, number in zip(chart.lines, looks(chart.lines), strict=True):
        _line(chart, drawn, line, number)


def _line(chart: Chart, drawn: Plot, line: Line, number: int) -> None:
    seen, count, scene = look(number), len(chart.lines), drawn.scene
    color = f"series-{seen.color}"
    if line.low:
        opacity = min(0.16, 0.6 / count)  # many bands hide the lines
        band = zip(drawn.points(line.x, line.low), drawn.points(line.x, line.high), strict=True)
        for part in _unbroken([(low, high) for low, high in band]):
            lower, upper = zip(*part, strict=True)
            scene.add(Area([*lower, *reversed(upper)], color, opacity))
    points = drawn.points(line.x, line.y)
    width = 1.3 if len(line.x) >= THIN_FROM else 1.6
    for part in _unbroken([(point,) for point in points]):
        scene.add(Stroke([point for (point,) in part], color, width, seen.dashes))
    if count > 1 or len(line.x) < THIN_FROM:
        every = max(1, len(line.x) // MARKS_A_LINE)
        shown = points[number % every :: every]  # not all at the same places
        scene.add(Marks(_seen(shown), seen.marker, 5.0, color, edge_width=0.7))


def _points(chart: Chart, drawn: Plot) -> None:
    """The points of each line as small marks, their mean as a large one."""
    for line, number in zip(chart.lines, looks(chart.lines), strict=True):
        seen = look(number)
        color, x = f"series-{seen.color}", statistics.fmean(line.x)
        if line.low:
            ends = drawn.points([x, x], [line.low[0], line.high[0]])
            drawn.scene.add(Stroke(_seen(ends), color, 1.0))
        if len(line.x) > 1:
            small = _seen(drawn.points(line.x, line.y))
            drawn.scene.add(Marks(small, seen.marker, 3.5, color, opacity=0.6))
        mean = _seen(drawn.points([x], [statistics.fmean(line.y)]))
        drawn.scene.add(Marks(mean, seen.marker, 8.0, color, edge_width=1.0))


def _seen(points: Sequence[At]) -> list[At]:
    """The points that can be drawn."""
    return [point for point in points if all(map(math.isfinite, point))]


def _unbroken(columns: Sequence[tuple[At, ...]]) -> list[list[tuple[At, ...]]]:
    """The parts of a line or band between its gaps."""
    together = groupby(columns, lambda column: len(_seen(column)) == len(column))
    return [list(part) for whole, part in together if whole]


# ---- bars and intervals: a row for each value ------------------------------------------------


def _bars(chart: Chart, drawn: Plot, places: Sequence[int]) -> None:
    """One bar a line, from top to bottom, with the paper's value if it prints one."""
    for line, row in zip(chart.lines, places, strict=True):
        own, value = line.label.startswith("SAMPa"), line.y[0]
        left, right = drawn.x.place(0.0), drawn.x.place(value)
        top, bottom = drawn.y.place(row - BAR), drawn.y.place(row + BAR)
        color, opacity = (HERO, 1.0) if own else ("muted", 0.55)
        if math.isfinite(right):
            corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
            drawn.scene.add(Area(corners, color, opacity))
        beside = (drawn.x.end + 6, drawn.y.place(row))  # a column of numbers to the right
        drawn.scene.add(Words(beside, f"{value:.2f}", "start", "ink"))
    _papers(chart, drawn, places)


def _intervals(chart: Chart, drawn: Plot, places: Sequence[int]) -> None:
    """Values with what their errors allow; those that leave the reference out have a color."""
    zero = chart.reference or 0.0
    x = drawn.x.place(zero)
    drawn.scene.add(Stroke([(x, drawn.y.start), (x, drawn.y.end)], "muted", 0.8))
    for line, row in zip(chart.lines, places, strict=True):
        value, low, high = line.y[0], line.low[0], line.high[0]
        margin = value - low if value > zero else high - value
        color = HERO if is_beyond_chance(value - zero, margin) else "muted"
        drawn.scene.add(Stroke(_seen(drawn.points([low, high], [row, row])), color, 1.4))
        drawn.scene.add(Marks(_seen(drawn.points([value], [row])), "o", 4.5, color))
    _papers(chart, drawn, places)


def _papers(chart: Chart, drawn: Plot, places: Sequence[int]) -> None:
    """The paper's value, the second of a line, as a diamond."""
    found = [(line.y[1], row) for line, row in zip(chart.lines, places, strict=True) if line.y[1:]]
    points = _seen([(drawn.x.place(value), drawn.y.place(row)) for value, row in found])
    drawn.scene.add(Marks(points, "D", 4.2, "paper", edge="ink", edge_width=1.0))
