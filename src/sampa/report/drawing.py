"""Drawing: charts that come as data, in the report's style."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampa.report.charts import look
from sampa.report.svg import COLORS, SERIES
from sampa.reproduce.outcome import Chart, Line


def draw(chart: Chart) -> Figure:
    """A chart in the report's style and stand-in colors; call it inside `figure`."""
    drawn = Figure()
    axes = drawn.add_subplot()
    DRAWERS[chart.kind](axes, chart)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    if chart.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")  # powers would be set as formulas
        axes.yaxis.set_minor_formatter("")
    return drawn


def _lines(axes: Axes, chart: Chart) -> None:
    for i, line in enumerate(chart.lines):
        _line(axes, line, i)
    if len(chart.lines) > 1:
        axes.legend(fontsize=7, frameon=False)


def _line(axes: Axes, line: Line, style: int) -> None:
    drawn = look(style)
    color = SERIES[drawn.color]
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.16, linewidth=0)
    every = max(1, len(line.x) // 6)
    marks: dict[str, Any] = {"marker": drawn.marker, "markersize": 4, "markevery": every}
    dashes = drawn.dashes or (None, None)
    axes.plot(line.x, line.y, color=color, label=line.label, dashes=dashes, **marks)


def _bars(axes: Axes, chart: Chart) -> None:
    """One bar a line, from top to bottom."""
    names = [line.label for line in chart.lines]
    colors = [SERIES[i % COLORS] for i in range(len(names))]
    axes.barh(names, [line.y[0] for line in chart.lines], color=colors)
    for i, line in enumerate(chart.lines):
        axes.text(line.y[0], i, f" {line.y[0]:.2f}", va="center", fontsize=7)
    axes.invert_yaxis()
    axes.margins(x=0.15)


def _points(axes: Axes, chart: Chart) -> None:
    for i, line in enumerate(chart.lines):
        drawn = look(i)
        axes.plot(line.x, line.y, linestyle="none", marker=drawn.marker, color=SERIES[drawn.color])
        axes.annotate(
            line.label, (line.x[0], line.y[0]), (4, 4), textcoords="offset points", fontsize=7
        )
    axes.margins(0.15)


DRAWERS: Mapping[str, Callable[[Axes, Chart], None]] = {
    "lines": _lines,
    "bars": _bars,
    "points": _points,
}
