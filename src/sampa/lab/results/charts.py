"""Charts as data: what they show, and the same in words; `drawing` draws them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

EXTREMES = "Mean over seeds; the band reaches from the lowest to the highest."
TOLD_POINTS = 12  # points of a single line, up to which each is told in words


@dataclass(frozen=True)
class Line:
    """A named series.

    Attributes:
        y: Of bars and intervals: our value and, where the paper prints one, the paper's.
        low: The lower end of the band or interval around it; empty if there is none.
        high: The upper end.
        group: What intervals are gathered under; empty if nothing.
        look: The number of its look; chosen by its label if not given.
    """

    label: str
    x: list[float]
    y: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    group: str = ""
    look: int | None = None


@dataclass(frozen=True)
class Chart:
    """A picture as data.

    Attributes:
        name: Of its files, and of its ids in a page.
        note: What one must know to read it.
        kind: Lines; bars (one value a line, named by its label) or intervals around values, both
            with the paper's as a second value; or points, with the mean of each line.
        reference: A value that others are held against: of y in lines, of x in intervals.
        legend: Whether it names its lines; a page may have keys to them elsewhere.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    note: str = ""
    kind: Literal["lines", "bars", "intervals", "points"] = "lines"
    log_y: bool = False
    log_x: bool = False
    reference: float | None = None
    legend: bool = True

    @staticmethod
    def from_json(values: dict[str, Any]) -> Chart:
        lines = [Line(**line) for line in values["lines"]]
        return replace(Chart(**values), lines=lines)


def over_seeds(
    label: str, x: Sequence[float], values: Sequence[Sequence[float]], look: int | None = None
) -> Line:
    """The mean at each x, in the band from the lowest to the highest."""

    def each(how: Callable[[Sequence[float]], float]) -> list[float]:
        # min and max of values with a NaN depend on its place among them.
        return [math.nan if any(map(math.isnan, v)) else how(v) for v in values]

    return Line(label, list(x), each(statistics.fmean), each(min), each(max), look=look)


def chart_in_words(chart: Chart) -> str:
    """The chart for those who do not see it."""
    axis = chart.y_label or f"Mean over seeds, from first to last {chart.x_label}"
    if chart.kind in ("bars", "intervals"):
        axis = chart.x_label
        parts = [f"{full_label(line)}: {_with_paper(line.y)}" for line in chart.lines]
    elif chart.kind == "points":
        axis = f"{chart.y_label or 'Mean'} against {chart.x_label}"
        centers = [(n.label, statistics.fmean(n.x), statistics.fmean(n.y)) for n in chart.lines]
        parts = [f"{label}: {number(y)} at {number(x)}" for label, x, y in centers]
    elif len(chart.lines) == 1 and 1 < len(chart.lines[0].x) <= TOLD_POINTS:
        points = zip(chart.lines[0].x, chart.lines[0].y, strict=True)
        return "; ".join(f"{chart.x_label} = {x:g}: {number(y)}" for x, y in points) + "."
    else:
        ends = {n.label: dict.fromkeys((number(n.y[0]), number(n.y[-1]))) for n in chart.lines}
        parts = [f"{label}: {' to '.join(values)}" for label, values in ends.items()]
    return f"{axis}. {'; '.join(parts)}."


def number(value: float) -> str:
    """Four digits are enough for reading aloud."""
    return f"{value:.4g}".replace("-", "−")


def full_label(line: Line) -> str:
    """With the group that it belongs to."""
    return f"{line.group}, {line.label}" if line.group else line.label


def _with_paper(values: Sequence[float]) -> str:
    ours, *paper = map(number, values)
    return f"{ours}, in the paper {paper[0]}" if paper else ours
