"""Drawing: charts that come as data, in the report's style."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampa.lab.report.charts import look
from sampa.lab.report.labels import place
from sampa.lab.report.svg import INK, MUTED, PAPER, SERIES
from sampa.lab.reproduce.outcome import Chart, Line
from sampa.lab.training.tables import is_beyond_chance

SMALL = 8.0  # points, of words inside the axes
MANY = 40  # points of a line, from which on it is thin
LONGEST, ROW = 48, 60  # letters of a label, and of a row of them
FEW = 4  # lines whose legend finds room above the axes; others have it to their right

# One look for a method wherever it is drawn: the number that `look` takes.
STYLES = {"SGD": 0, "AdamW": 0, "SAM": 1, "SAMPa-0": 2, "SAMPa-0.2": 3, "SAMPa-0.1": 3}
REFERENCES = ("bound", "paper")  # what ours is held against, in gray
HERO, OTHERS = SERIES[3], MUTED


def draw(chart: Chart) -> Figure:
    """A chart in the report's style and stand-in colors; call it inside `figure`."""
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
    DRAWERS[chart.kind](axes, chart)
    return drawn


def _size(chart: Chart) -> tuple[float, float] | None:
    """Inches; what has a line of text for each value grows with them."""
    if chart.kind == "bars":
        return 4.4, 0.75 + 0.26 * len(chart.lines)
    if chart.kind == "intervals":
        return 5.2, 0.75 + 0.17 * len(_grouped([line.label for line in chart.lines])[0])
    return None


def _short(text: str) -> str:
    """Words that leave room for what they name; the page has them in full."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def styles(labels: Sequence[str]) -> list[int]:
    """A look for each label: that of a known method, or one that nobody else has."""
    known = [0 if label.startswith(REFERENCES) else STYLES.get(label) for label in labels]
    left = (style for style in (2, 3, 1, *range(4, 4 + len(labels))) if style not in known)
    return [next(left) if style is None else style for style in known]


# ---- lines -----------------------------------------------------------------------------------


def _lines(axes: Axes, chart: Chart) -> None:
    for line, style in zip(chart.lines, styles([n.label for n in chart.lines]), strict=True):
        _line(axes, line, style, marked=len(chart.lines) > 1 or len(line.x) < MANY)
    legend: dict[str, Any] = {"fontsize": SMALL, "frameon": False, "handlelength": 2.4}
    if len(chart.lines) > FEW:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), **legend)
    elif len(chart.lines) > 1:
        columns = max(1, min(FEW, ROW // max(len(line.label) for line in chart.lines)))
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderpad=0, **legend)


def _line(axes: Axes, line: Line, style: int, *, marked: bool) -> None:
    drawn = look(style)
    color = SERIES[drawn.color]
    if line.low:
        axes.fill_between(line.x, line.low, line.high, color=color, alpha=0.16, linewidth=0)
    every = max(1, len(line.x) // 6)
    marks: dict[str, Any] = {"marker": drawn.marker if marked else "", "markersize": 5}
    marks |= {"markeredgecolor": PAPER, "markeredgewidth": 0.7}
    marks |= {"markevery": (style % every, every)}  # not all at the same places
    if len(line.x) >= MANY:
        marks["linewidth"] = 1.3
    dashes = drawn.dashes or (None, None)
    axes.plot(line.x, line.y, color=color, label=line.label, dashes=dashes, **marks)


# ---- bars and intervals: a line of text for each value --------------------------------------


def _bars(axes: Axes, chart: Chart) -> None:
    """One bar a line, from top to bottom, with the paper's value where there is one."""
    names = [line.label for line in chart.lines]
    colors = [HERO if name.startswith("SAMPa") else OTHERS for name in names]
    drawn = axes.barh(names, [line.y[0] for line in chart.lines], height=0.62, color=colors)
    for bar, color in zip(drawn, colors, strict=True):
        bar.set_alpha(1.0 if color == HERO else 0.55)
    beside = axes.get_yaxis_transform()  # a column of numbers to the right
    for i, line in enumerate(chart.lines):
        axes.text(1.02, i, f"{line.y[0]:.2f}", transform=beside, va="center")
    _papers(axes, chart, range(len(chart.lines)))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def _intervals(axes: Axes, chart: Chart) -> None:
    """Values with what their errors allow, grouped by what stands before the colon."""
    names, places = _grouped([line.label for line in chart.lines])
    axes.axvline(0, color=MUTED, linewidth=0.8)
    for line, y in zip(chart.lines, places, strict=True):
        is_sure = is_beyond_chance(line.y[0], (line.high[0] - line.low[0]) / 2)
        color = HERO if is_sure else OTHERS
        axes.plot([line.low[0], line.high[0]], [y, y], color=color, linewidth=1.4)
        axes.plot(line.y[0], y, "o", color=color, markersize=4.5)
    _papers(axes, chart, places)
    axes.set_yticks(range(len(names)), names)
    for label, y in zip(axes.get_yticklabels(), range(len(names)), strict=True):
        if y not in places:
            label.set(color=INK, fontweight="bold")
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _grouped(labels: Sequence[str]) -> tuple[list[str], list[int]]:
    """Lines of text with a heading before each group, and the places of the labels in them."""
    names: list[str] = []
    places: list[int] = []
    for group, members in groupby(labels, lambda label: label.rpartition(": ")[0]):
        names += [group] if group else []
        for label in members:
            places.append(len(names))
            names.append(label.rpartition(": ")[2])
    return names, places


def _papers(axes: Axes, chart: Chart, places: Sequence[int]) -> None:
    """The paper's value, the second of a line, as a diamond."""
    found = [(line.y[1], y) for line, y in zip(chart.lines, places, strict=True) if line.y[1:]]
    if found:
        x, y = zip(*found, strict=True)
        axes.plot(x, y, "D", color=INK, markerfacecolor=PAPER, markersize=4.2, label="paper")


# ---- points ----------------------------------------------------------------------------------


def _points(axes: Axes, chart: Chart) -> None:
    """Named points, with their deviation where it is known."""
    for line, style in zip(chart.lines, styles([n.label for n in chart.lines]), strict=True):
        drawn = look(style)
        color = SERIES[drawn.color]
        if line.low:
            axes.plot([line.x[0]] * 2, [line.low[0], line.high[0]], color=color, linewidth=1.0)
        axes.plot(line.x, line.y, linestyle="none", marker=drawn.marker, color=color)
    axes.margins(0.15)
    axes.set_xlim(axes.get_xlim())
    to_points = axes.transData.transform
    scale = 72 / axes.figure.get_dpi()
    spots = [tuple(to_points((n.x[0], n.y[0])) * scale) for n in chart.lines]
    sizes = [(0.6 * SMALL * len(line.label), 1.1 * SMALL) for line in chart.lines]
    for line, offset in zip(chart.lines, place(spots, sizes), strict=True):
        at = (line.x[0], line.y[0])
        axes.annotate(line.label, at, offset, textcoords="offset points", fontsize=SMALL)


DRAWERS: Mapping[str, Callable[[Axes, Chart], None]] = {
    "lines": _lines,
    "bars": _bars,
    "intervals": _intervals,
    "points": _points,
}
