"""Plots: axes with their grid, ticks and names, and the legend, around what a chart shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sampa.lab.results.axis import Axis
from sampa.lab.results.charts import Chart
from sampa.lab.results.looks import look, looks
from sampa.lab.results.scene import FONT, At, Marks, Scene, Stroke, Words, shortened, width_of

CHART_WIDTH, CHART_HEIGHT = 316.8, 187.2
INTERVALS = 374.4  # points wide
ROW_HEIGHTS = {"bars": 18.7, "intervals": 12.3}  # points for each
PAD, NAME, TICK, THIN = 6.0, 13.0, 3.5, 0.6
MOST_ROWS_WIDE = 0.6  # of the width, for the names of rows
LEGEND = 8.0  # points, of its words
KEY, LEGEND_ROW = 26.0, 12.0
FEW = 4  # lines whose legend finds room above the axes; others have it to their right

RowNames = Mapping[int, tuple[str, bool]]
"""Names of rows by their places, and whether they head a group."""


@dataclass(frozen=True)
class Plot:
    """A scene with axes, to be drawn into."""

    scene: Scene
    x: Axis
    y: Axis

    def points(self, x: Sequence[float], y: Sequence[float]) -> list[At]:
        """Where values are drawn."""
        return [(self.x.place(a), self.y.place(b)) for a, b in zip(x, y, strict=True)]


def empty_plot(chart: Chart, x: Axis, y: Axis, rows: RowNames) -> Plot:
    """An empty chart of the right size."""
    scene = Scene(*_size(chart, len(rows)))
    names = {
        place: shortened(name, MOST_ROWS_WIDE * scene.width) for place, (name, _) in rows.items()
    }
    labels = _labels(chart)
    above = labels if len(labels) <= FEW else []
    top = PAD + LEGEND_ROW * len(_legend_rows(above))
    bottom = scene.height - PAD - NAME - (NAME if chart.x_label else 0.0)
    y = replace(y, start=top, end=bottom) if rows else replace(y, start=bottom, end=top)
    ticks = {} if rows else y.ticks(min(9, max(2, int((bottom - top) / 15))))
    named = [width_of(name, bold=rows[place][1]) for place, name in names.items()]
    widest = max((*named, *map(width_of, ticks.values())), default=0.0)
    left = PAD + widest + 5 + (NAME if chart.y_label else 0.0)
    beside = [f"{line.y[0]:.2f}" for line in chart.lines] if chart.kind == "bars" else []
    x = replace(x, start=left, end=scene.width - PAD - 8 - max(map(width_of, beside), default=0.0))
    made = Plot(scene, x, y)
    _across(made, chart)
    for value, text in ticks.items():
        at = y.place(value)
        scene.add(Stroke([(left, at), (x.end, at)], "rule", THIN))
        scene.add(Words((left - 5, at), text, "end"))
    for place, name in names.items():
        heads = rows[place][1]
        color = "ink" if heads else "muted"
        scene.add(Words((left - 5, y.place(place)), name, "end", color, bold=heads))
    _axis_names(made, chart)
    _legend(made, chart, labels)
    return made


def _size(chart: Chart, rows: int) -> tuple[float, float]:
    """What has a line of text for each value grows with them."""
    if not rows:
        return CHART_WIDTH, CHART_HEIGHT
    width = INTERVALS if chart.kind == "intervals" else CHART_WIDTH
    return width, 54 + ROW_HEIGHTS[chart.kind] * rows


def _across(made: Plot, chart: Chart) -> None:
    """The x axis, with ticks whose texts have room."""
    x = made.x
    whole = chart.kind == "lines" and all(float(v).is_integer() for n in chart.lines for v in n.x)
    ticks: dict[float, str] = {}
    for most in (8, 6, 5, 4, 3, 2):
        ticks = x.ticks(most, whole=whole)
        if sum(width_of(text) + 8 for text in ticks.values()) <= x.end - x.start:
            break
    draw_ticks(made, ticks)


def draw_ticks(made: Plot, ticks: Mapping[float, str]) -> None:
    """The line of the x axis with its ticks, their texts, and the grid above them."""
    scene, x, y = made.scene, made.x, made.y
    bottom = max(y.start, y.end)
    for value, text in ticks.items():
        at = x.place(value)
        scene.add(Stroke([(at, bottom), (at, min(y.start, y.end))], "rule", THIN))
        scene.add(Stroke([(at, bottom), (at, bottom + TICK)], "muted", THIN))
        scene.add(Words((at, bottom + TICK + 6.5), text))
    scene.add(Stroke([(x.start, bottom), (x.end, bottom)], "muted", THIN))


def _axis_names(made: Plot, chart: Chart) -> None:
    scene, x, y = made.scene, made.x, made.y
    if chart.x_label:
        # Under the axis if it has room, else under the whole drawing.
        wide = width_of(chart.x_label) > x.end - x.start
        middle = scene.width / 2 if wide else (x.start + x.end) / 2
        text = shortened(chart.x_label, scene.width - 2 * PAD)
        scene.add(Words((middle, scene.height - PAD - FONT / 2 + 1), text))
    if chart.y_label:
        text = shortened(chart.y_label, scene.height - 2 * PAD)
        middle = (y.start + y.end) / 2
        half = width_of(text) / 2
        at = min(max(middle, half + PAD), scene.height - half - PAD)
        scene.add(Words((PAD + FONT / 2, at), text, upwards=True))


# ---- the legend ------------------------------------------------------------------------------


def _labels(chart: Chart) -> list[str]:
    """What a legend names; empty if there is none."""
    needed = chart.legend and len(chart.lines) > 1 and chart.kind in ("lines", "points")
    return (
        [shortened(line.label, CHART_WIDTH / 2, LEGEND) for line in chart.lines] if needed else []
    )


def _legend_rows(labels: Sequence[str]) -> list[Sequence[str]]:
    """RowNames above the axes."""
    columns = max(1, min(FEW, int((CHART_WIDTH - 2 * PAD) / _entry(labels))))
    return [labels[i : i + columns] for i in range(0, len(labels), columns)]


def _entry(labels: Sequence[str]) -> float:
    """How wide an entry of the legend is, with its key and the space after it."""
    return KEY + max((width_of(text, LEGEND) for text in labels), default=0.0) + 10


def _legend(made: Plot, chart: Chart, labels: Sequence[str]) -> None:
    """Above the axes, or to their right."""
    scene, width = made.scene, _entry(labels)
    places: list[At] = []
    if len(labels) <= FEW:
        for number, row in enumerate(_legend_rows(labels)):
            y = PAD + LEGEND_ROW * (number + 0.5) - 2
            places += [(PAD + i * width, y) for i in range(len(row))]
    else:
        places = [(scene.width, PAD + LEGEND_ROW * (i + 0.5)) for i in range(len(labels))]
        scene.width += width
        scene.height = max(scene.height, places[-1][1] + LEGEND_ROW)
    numbers = looks(chart.lines) if labels else []
    for (x, y), text, number in zip(places, labels, numbers, strict=True):
        seen = look(number)
        color = f"series-{seen.color}"
        if chart.kind == "lines":
            scene.add(Stroke([(x, y), (x + KEY - 6, y)], color, 1.6, seen.dashes))
        middle = [(x + KEY / 2 - 3, y)]
        scene.add(Marks(middle, seen.marker, 5.0, color, edge_width=0.7))
        scene.add(Words((x + KEY, y), text, "start", "ink", LEGEND))
