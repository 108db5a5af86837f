"""Figures as files: each chart of an outcome as SVG and PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampa.report.charts import look
from sampa.report.svg import COLORS, GRID, INK, MUTED, PAPER, SERIES, figure
from sampa.reproduce.outcome import Chart, Line, Outcome

# The page's light colors: a file has no style sheet to take them from.
PALETTE = ("#1f6fb4", "#c2410c", "#15803d", "#7c3aed", "#b91c7c", "#8a6d00", "#0e7490", "#57534e")
PRINTED = {
    INK: "#1c1c1a",
    MUTED: "#5b5b57",
    GRID: "#dddcd8",
    PAPER: "#ffffff",
    **dict(zip(SERIES, PALETTE, strict=True)),
}


def draw(chart: Chart) -> Figure:
    """A chart in the report's style and stand-in colors; call it inside `figure`."""
    drawn = Figure()
    axes = drawn.add_subplot()
    DRAWERS[chart.kind](axes, chart)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    if chart.log_y:
        axes.set_yscale("log")
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


def write_charts(outcome: Outcome, folder: Path) -> None:
    """NAME.svg and NAME.png for every chart."""
    for chart in outcome.charts:
        with figure():
            drawn = draw(chart)
            svg, png = io.StringIO(), io.BytesIO()
            nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            drawn.savefig(svg, format="svg", metadata=nothing)
            (folder / f"{chart.name}.svg").write_text(_printed(svg.getvalue()), encoding="utf-8")
            for artist in drawn.findobj():
                _repaint(artist)
            drawn.savefig(png, format="png", dpi=200, facecolor="white", transparent=False)
            (folder / f"{chart.name}.png").write_bytes(png.getvalue())


def _printed(svg: str) -> str:
    """The drawing with real colors on a white ground."""
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    svg = re.sub("|".join(PRINTED), lambda m: PRINTED[m[0]], svg)
    svg = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    return re.sub(r"(<svg\b[^>]*>)", rf"\1{ground}", svg, count=1)


def _repaint(artist: Any) -> None:
    """Replace stand-in colors of a drawn thing."""
    from matplotlib.colors import to_hex

    for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
        getter, setter = f"get_{name}", f"set_{name}"
        if not (hasattr(artist, getter) and hasattr(artist, setter)):
            continue
        try:
            before = to_hex(getattr(artist, getter)())
        except (TypeError, ValueError):
            continue
        if before in PRINTED:
            getattr(artist, setter)(PRINTED[before])
