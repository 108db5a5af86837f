"""Drawing: every kind of chart with matplotlib, in one style, for a page or as files."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sampa.lab.results.charts import Chart, Line
from sampa.lab.results.looks import look, looks
from sampa.lab.results.readings import readings
from sampa.lab.results.summary import is_beyond_chance
from sampa.lab.results.svg import PAGE, PRINT, Palette, styled, to_element, write_files

SMALL_FONT = 8.0  # points, of words inside the axes
THIN_FROM = 40  # points of a line, from which on it is thin
MARKS_A_LINE = 6
LONGEST, ROW = 48, 60  # letters of a label, and of a row of them
LEGEND_ABOVE = 4  # lines whose legend finds room above the axes; others have it to their right
HERO = 3  # the color of what is ours, and of a difference beyond chance


def page_chart(chart: Chart, prefix: str) -> str:
    """A chart as an SVG element in the colors of the page, with its readings.

    The page has the keys to its lines: words inside of a drawing shrink with it.

    Args:
        chart: The chart.
        prefix: What the ids of the element begin with, unique in the page.
    """
    with styled(PAGE):
        drawn = draw(replace(chart, legend=False), PAGE)
        element = to_element(drawn, prefix)
    colors = [look(number).color for number in looks(chart.lines)]
    rows = range(len(chart.lines)) if chart.kind == "bars" else _headed(chart.lines)[1]
    told = readings(chart, drawn.axes[0], colors, rows).as_attribute()
    return element.replace("<svg ", f"<svg data-readings='{told}' ", 1)


def write_chart(chart: Chart, folder: Path) -> None:
    """NAME.svg and NAME.png."""
    with styled(PRINT):
        write_files(draw(chart, PRINT), folder, chart.name)


def draw(chart: Chart, palette: Palette) -> Figure:
    """A chart as a figure; call it inside `styled`."""
    chart = replace(chart, lines=[replace(n, label=_short(n.label)) for n in chart.lines])
    drawn = Figure(figsize=_size(chart))
    axes = drawn.add_subplot()
    axes.set_xlabel(_short(chart.x_label))
    axes.set_ylabel(_short(chart.y_label))
    for axis, is_log in (("x", chart.log_x), ("y", chart.log_y)):
        if is_log:
            axes.set(**{f"{axis}scale": "log"})
            getattr(axes, f"{axis}axis").set_major_formatter("{x:g}")  # powers would be formulas
            getattr(axes, f"{axis}axis").set_minor_formatter("")
    getattr(_Drawing(axes, chart, palette), chart.kind)()
    return drawn


def _size(chart: Chart) -> tuple[float, float] | None:
    """Inches; what has a line of text for each value grows with them."""
    if chart.kind == "bars":
        return 4.4, 0.75 + 0.26 * len(chart.lines)
    if chart.kind == "intervals":
        return 5.2, 0.75 + 0.17 * len(_headed(chart.lines)[0])
    return None


def _short(text: str) -> str:
    """Words that leave room for what they name; the page has them in full."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _headed(lines: Sequence[Line]) -> tuple[list[str], list[int]]:
    """Labels with a heading before each group, and the places of the lines among them."""
    names: list[str] = []
    places: list[int] = []
    for group, members in groupby(lines, lambda line: line.group):
        names += [_short(group)] if group else []
        for line in members:
            places.append(len(names))
            names.append(line.label)
    return names, places


@dataclass(frozen=True)
class _Drawing:
    """A chart on its way onto its axes."""

    axes: Axes
    chart: Chart
    palette: Palette

    def lines(self) -> None:
        axes, lines = self.axes, self.chart.lines
        if self.chart.reference is not None:
            axes.axhline(
                self.chart.reference, color=self.palette.muted, linewidth=1.0, dashes=(4, 3)
            )
        for line, number in zip(lines, looks(lines), strict=True):
            self._line(line, number)
        if not self.chart.log_x and all(x == round(x) for line in lines for x in line.x):
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        self._legend()

    def _line(self, line: Line, number: int) -> None:
        drawn, count = look(number), len(self.chart.lines)
        color = self.palette.series[drawn.color]
        if line.low:
            alpha = min(0.16, 0.6 / count)  # many bands hide the lines
            self.axes.fill_between(
                line.x, line.low, line.high, color=color, alpha=alpha, linewidth=0
            )
        every = max(1, len(line.x) // MARKS_A_LINE)
        self.axes.plot(
            line.x,
            line.y,
            color=color,
            label=line.label,
            dashes=drawn.dashes or (None, None),
            linewidth=1.3 if len(line.x) >= THIN_FROM else 1.6,
            marker=drawn.marker if count > 1 or len(line.x) < THIN_FROM else "",
            markersize=5,
            markeredgecolor=self.palette.paper,
            markeredgewidth=0.7,
            markevery=(number % every, every),  # not all at the same places
        )

    # ---- bars and intervals: a line of text for each value ----------------------------------

    def bars(self) -> None:
        """One bar a line, from top to bottom, with the paper's value where there is one."""
        axes, lines = self.axes, self.chart.lines
        ours = [line.label.startswith("SAMPa") for line in lines]
        colors = [self.palette.series[HERO] if own else self.palette.muted for own in ours]
        names, values = [line.label for line in lines], [line.y[0] for line in lines]
        for bar, own in zip(axes.barh(names, values, 0.62, color=colors), ours, strict=True):
            bar.set_alpha(1.0 if own else 0.55)
        beside = axes.get_yaxis_transform()  # a column of numbers to the right
        for i, value in enumerate(values):
            axes.text(1.02, i, f"{value:.2f}", transform=beside, va="center")
        self._papers(range(len(lines)))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")

    def intervals(self) -> None:
        """Values with what their errors allow; those that leave the reference out have a color."""
        axes, lines, zero = self.axes, self.chart.lines, self.chart.reference or 0.0
        names, places = _headed(lines)
        axes.axvline(zero, color=self.palette.muted, linewidth=0.8)
        for line, y in zip(lines, places, strict=True):
            value, low, high = line.y[0], line.low[0], line.high[0]
            margin = value - low if value > zero else high - value
            is_sure = is_beyond_chance(value - zero, margin)
            color = self.palette.series[HERO] if is_sure else self.palette.muted
            axes.plot([low, high], [y, y], color=color, linewidth=1.4)
            axes.plot(value, y, "o", color=color, markersize=4.5)
        self._papers(places)
        axes.set_yticks(range(len(names)), names)
        for label, y in zip(axes.get_yticklabels(), range(len(names)), strict=True):
            if y not in places:
                label.set(color=self.palette.ink, fontweight="bold")
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")

    def _papers(self, places: Sequence[int]) -> None:
        """The paper's value, the second of a line, as a diamond."""
        lines = zip(self.chart.lines, places, strict=True)
        for value, y in [(line.y[1], y) for line, y in lines if line.y[1:]]:
            self.axes.plot(
                value,
                y,
                "D",
                color=self.palette.ink,
                markerfacecolor=self.palette.paper,
                markersize=4.2,
            )

    def points(self) -> None:
        """The points of each line as small marks, their mean as a large one."""
        axes, lines = self.axes, self.chart.lines
        for line, number in zip(lines, looks(lines), strict=True):
            drawn = look(number)
            marks: dict[str, Any] = {"marker": drawn.marker, "linestyle": "none"}
            marks["color"] = self.palette.series[drawn.color]
            x, y = statistics.fmean(line.x), statistics.fmean(line.y)
            if line.low:
                axes.plot([x, x], [line.low[0], line.high[0]], color=marks["color"], linewidth=1.0)
            if len(line.x) > 1:
                axes.plot(line.x, line.y, ms=3.5, alpha=0.6, markeredgewidth=0, **marks)
            axes.plot(x, y, ms=8, markeredgecolor=self.palette.paper, label=line.label, **marks)
        axes.set_xlim(left=0)
        axes.margins(y=0.1)
        self._legend()

    def _legend(self) -> None:
        labels = [line.label for line in self.chart.lines]
        style: dict[str, Any] = {"fontsize": SMALL_FONT, "frameon": False, "handlelength": 2.4}
        if not self.chart.legend or len(labels) == 1:
            return
        if len(labels) > LEGEND_ABOVE:
            self.axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **style)
        else:
            columns = max(1, min(LEGEND_ABOVE, ROW // max(map(len, labels))))
            style |= {"ncols": columns, "borderpad": 0}
            self.axes.legend(loc="lower left", bbox_to_anchor=(0, 1), **style)
