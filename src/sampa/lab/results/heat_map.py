"""Heat maps with contours: losses on planes, side by side on one scale, as SVG.

Each cell has its numbers as a title, which browsers show under a pointer; `hover.js` shows them at
once, and on touch screens too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from contourpy import contour_generator
from markupsafe import Markup, escape

CELL = 10  # units of the drawing
# matplotlib's viridis in 64 colors, as it gives them: a page does not wait for it.
VIRIDIS = (
    "44015446075a470d6047136548186a481d6f482374482878472d7b46327e453781443b84424086404588"
    "3e49893d4e8a3a538b38588c365c8d34608d32648e31688e2f6c8e2d708e2c738e2a778e297b8e277f8e"
    "26828e24868e238a8d218e8d20928c1f968b1f9a8a1f9e891fa18721a58523a98326ad812ab07f2fb47c"
    "35b7793bbb7542be714ac16d52c5695ac86465cb5e6ece5877d15381d34d8bd64695d840a0da39aadc32"
    "b5de2bc0df25cae11fd5e21adfe318eae51af4e61efde725"
)
SHADES = tuple(f"#{VIRIDIS[i : i + 6]}" for i in range(0, len(VIRIDIS), 6))
SCALE_BAR = 4 * len(SHADES)  # width of the scale
CONTOURS = 9
PRINTED = {"var(--ink)": "#1b1f24", "var(--muted)": "#57606a"}


@dataclass(frozen=True)
class HeatMap:
    """Values on an even grid.

    Attributes:
        title: Its heading; may be empty.
        values: values[i][j] is at (x[i], y[j]).
        marks: Points of interest by name; if there are none, the one with the coordinates 0.
    """

    title: str
    x: list[float]
    y: list[float]
    values: list[list[float]]
    marks: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ColorScale:
    """One scale for several maps, logarithmic."""

    low: float
    high: float

    @staticmethod
    def of(maps: Sequence[HeatMap]) -> ColorScale:
        found = [v for m in maps for line in m.values for v in line if math.isfinite(v) and v > 0]
        low, high = (min(found), max(found)) if found else (1.0, 2.0)
        return ColorScale(low, high if high > low else 2 * low)

    def share(self, value: float) -> float:
        """0 at the lowest value of all maps, 1 at the highest."""
        if not math.isfinite(value):
            return 1.0
        value = min(max(value, self.low), self.high)
        return math.log(value / self.low) / math.log(self.high / self.low)

    def color(self, value: float) -> str:
        return SHADES[round(self.share(value) * (len(SHADES) - 1))]

    def levels(self) -> list[float]:
        ratio = self.high / self.low
        return [self.low * ratio ** (i / (CONTOURS + 1)) for i in range(1, CONTOURS + 1)]


def heat_map(shown: HeatMap, scale: ColorScale) -> Markup:
    """One map as an element; its colors are the same on light and dark pages."""
    columns, rows = len(shown.x), len(shown.y)
    width, height = CELL * columns, CELL * rows
    parts = [f'<svg class="heat" viewBox="0 0 {width} {height}" role="img"']
    parts.append(f' aria-label="{escape(_in_words(shown))}"><g shape-rendering="crispEdges">')
    for i, j in np.ndindex(columns, rows):
        value = shown.values[i][j]
        where = f"{shown.x[i]:.2f}, {shown.y[j]:.2f}".replace("-", "−")
        parts.append(
            f'<rect x="{CELL * i}" y="{CELL * (rows - 1 - j)}" width="{CELL}" height="{CELL}" '
            f'fill="{scale.color(value)}"><title>{where}: {value:.4g}</title></rect>'
        )
    # What is drawn over the cells lets the pointer through to their numbers.
    parts.append('</g><g pointer-events="none"><path class="contour" fill="none"')
    parts.append(f' d="{_contours(shown, scale)}"')
    parts.append(' stroke="#ffffff" stroke-opacity="0.75" stroke-width="0.8"/>')
    for number, (name, (x, y)) in enumerate((shown.marks or {"": (0.0, 0.0)}).items()):
        place = _place(x, shown.x), height - _place(y, shown.y)
        parts.append(_mark(name, *place, width, below=number % 2 == 1))
    return Markup("".join(parts) + "</g></svg>")


def _contours(shown: HeatMap, scale: ColorScale) -> str:
    """Paths through equal values; values are those of the cells' centers."""
    logs = np.log(np.clip(np.nan_to_num(np.array(shown.values).T, nan=scale.high), scale.low, None))
    lines = contour_generator(z=logs)
    top = CELL * len(shown.y)
    path: list[str] = []
    for level in scale.levels():
        for line in lines.lines(math.log(level)):
            places = [(CELL * (x + 0.5), top - CELL * (y + 0.5)) for x, y in np.asarray(line)]
            path.append("M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in places))
    return "".join(path)


def _place(value: float, axis: Sequence[float]) -> float:
    """Where a coordinate is drawn; values of the axis are at the middle of their cells."""
    step = (axis[-1] - axis[0]) / (len(axis) - 1) if len(axis) > 1 else 0.0
    return CELL * (0.5 + ((value - axis[0]) / step if step else 0.0))


def _mark(name: str, x: float, y: float, width: float, *, below: bool) -> str:
    """A cross, with its name beside it on the side that has room."""
    size = width / 22
    cross = f"M{x - 3:.1f},{y:.1f}h6M{x:.1f},{y - 3:.1f}v6"
    drawn = (
        f'<path d="{cross}" stroke="#000000" stroke-width="2.4"/>'
        f'<path d="{cross}" stroke="#ffffff" stroke-width="1.2"/>'
    )
    if not name:
        return drawn
    anchor, aside = ("start", 5) if x < width / 2 else ("end", -5)
    baseline = y + size + 3 if below else y - 4
    return (
        f'{drawn}<text x="{x + aside:.1f}" y="{baseline:.1f}" text-anchor="{anchor}" '
        f'font-size="{size:.1f}" fill="#ffffff" stroke="#000000" stroke-width="1.2" '
        'paint-order="stroke">'
        f"{escape(name)}</text>"
    )


def color_bar(scale: ColorScale) -> Markup:
    """The scale, with its ends and its middle (the geometric mean)."""
    cells = "".join(
        f'<rect x="{i * 4}" y="0" width="4.2" height="10" fill="{color}"/>'
        for i, color in enumerate(SHADES)
    )
    ends = ((0, "start", scale.low), (SCALE_BAR // 2, "middle", math.sqrt(scale.low * scale.high)))
    texts = "".join(
        f'<text x="{x}" y="22" text-anchor="{anchor}" fill="var(--muted)" font-size="10">'
        f"{value:.3g}</text>"
        for x, anchor, value in (*ends, (SCALE_BAR, "end", scale.high))
    )
    return Markup(
        f'<svg class="heat-scale" viewBox="0 0 {SCALE_BAR} 26" role="img" aria-label="Loss from '
        f'{scale.low:.3g} to {scale.high:.3g}, logarithmic">{cells}{texts}</svg>'
    )


def heat_map_file(maps: Sequence[HeatMap], columns: int = 4) -> str:
    """All maps and their scale as one SVG file on a white ground."""
    scale, gap, head = ColorScale.of(maps), 14, 18
    side = max(CELL * max(len(m.x), len(m.y)) for m in maps)
    rows = -(-len(maps) // columns)
    width = max(min(columns, len(maps)) * (side + gap), SCALE_BAR + gap) + gap
    height = rows * (side + head + gap) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{2 * width}" height="{2 * height}" font-family="sans-serif">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
    ]
    for number, shown in enumerate(maps):
        x = gap + number % columns * (side + gap)
        y = number // columns * (side + head + gap)
        inner = _sized(heat_map(shown, scale), side, side)
        title = f'<text y="13" font-size="10" fill="var(--ink)">{escape(shown.title)}</text>'
        parts.append(f'<g transform="translate({x},{y})">{title}')
        parts.append(f'<g transform="translate(0,{head})">{inner}</g></g>')
    bar = _sized(color_bar(scale), SCALE_BAR, 26)
    parts.append(f'<g transform="translate({gap},{height - 34})">{bar}</g></svg>\n')
    text = "".join(map(str, parts))
    for name, color in PRINTED.items():
        text = text.replace(name, color)
    return text


def _sized(element: Markup, width: int, height: int) -> str:
    """The element with a size of its own; of a Markup, `replace` would escape what it puts in."""
    return str(element).replace("<svg ", f'<svg width="{width}" height="{height}" ', 1)


def _in_words(shown: HeatMap) -> str:
    values = [v for line in shown.values for v in line]
    told: list[str] = []
    for name, mark in (shown.marks or {"the cross": (0.0, 0.0)}).items():
        i, j = (
            int(np.argmin(np.abs(np.array(axis) - at)))
            for axis, at in zip((shown.x, shown.y), mark, strict=True)
        )
        told.append(f"{shown.values[i][j]:.3g} near {name}")
    head = f"{shown.title}: " if shown.title else ""
    return f"{head}{', '.join(told)}, up to {max(values):.3g}"
