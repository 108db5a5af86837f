"""Scenes as SVG: an element that takes its colors from a page, or a file on a white ground."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from markupsafe import escape

from sampa.lab.results.looks import COLORS, PATHS
from sampa.lab.results.scene import FONT, Area, At, Marks, Scene, Shape, Stroke, Words

SERIES = tuple(f"series-{i}" for i in range(COLORS))
NAMES = ("ink", "muted", "rule", "paper", *SERIES)
# The page's light colors: a file has no style sheet to take them from.
LIGHT = (
    *("#1b1f24", "#57606a", "#dfe3e8", "#ffffff"),
    *("#858c94", "#bf3a00", "#1560c8", "#00604a", "#b5409a", "#c08400", "#3398de", "#4a1c8f"),
)
PRINT = dict(zip(NAMES, LIGHT, strict=True))
FAMILY = "'DejaVu Sans', Verdana, sans-serif"
PATH_SIZE = 6.0  # the diameter of the markers' paths

Color = Callable[[str], str]


def to_element(scene: Scene, readings: str) -> str:
    """The scene as an element to put into a page, as wide as that allows and in its font.

    It is silent: the page describes the chart.

    Args:
        scene: The scene; its text is escaped.
        readings: What it tells where it is pointed at, for an attribute in single quotes.
    """
    head = f'<svg data-readings=\'{readings}\' {_box(scene)} aria-hidden="true" focusable="false"'
    return f'{head} font-size="{FONT}px">{_body(scene, lambda name: f"var(--{name})")}</svg>'


def to_file(scene: Scene) -> str:
    """The scene as a file of its own, on a white ground."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {_box(scene)}'
    size = f'width="{_number(scene.width)}pt" height="{_number(scene.height)}pt"'
    ground = f'<rect width="100%" height="100%" fill="{PRINT["paper"]}"/>'
    body = _body(scene, PRINT.__getitem__)
    return f'{head} {size} font-size="{FONT}px" font-family="{FAMILY}">\n{ground}\n{body}\n</svg>\n'


def _box(scene: Scene) -> str:
    return f'viewBox="0 0 {_number(scene.width)} {_number(scene.height)}"'


def _body(scene: Scene, color: Color) -> str:
    return "\n".join(_part(part, color) for part in scene.parts)


def _part(part: Shape, color: Color) -> str:
    if isinstance(part, Stroke):
        dashes = f' stroke-dasharray="{_numbers(part.dashes)}"' if part.dashes else ""
        style = f'fill="none" stroke="{color(part.color)}" stroke-width="{part.width:g}"{dashes}'
        return f'<path d="{_path(part.points)}" {style}/>'
    if isinstance(part, Area):
        style = f'fill="{color(part.color)}"{_opacity(part.opacity)}'
        return f'<path d="{_path(part.points)}z" {style}/>'
    return _marks(part, color) if isinstance(part, Marks) else _words(part, color)


def _marks(part: Marks, color: Color) -> str:
    scale = part.size / PATH_SIZE
    edge = ""
    if part.edge_width:
        width = part.edge_width / scale
        edge = f' stroke="{color(part.edge)}" stroke-width="{width:.2f}"'
    each = "".join(
        f'<path d="{PATHS[part.shape]}" transform="translate({_numbers(at)}) scale({scale:.3g})"/>'
        for at in part.points
    )
    return f'<g fill="{color(part.color)}"{edge}{_opacity(part.opacity)}>{each}</g>'


def _words(part: Words, color: Color) -> str:
    x, y = part.at
    down = 0.35 * part.size  # the middle of the letters is on the line
    place = f'x="{_number(x)}" y="{_number(y + down)}"'
    if part.upwards:
        place = f'transform="translate({_numbers((x + down, y))}) rotate(-90)"'
    size = "" if part.size == FONT else f' font-size="{part.size:g}px"'
    bold = ' font-weight="bold"' if part.bold else ""
    style = f'text-anchor="{part.anchor}" fill="{color(part.color)}"{size}{bold}'
    return f"<text {place} {style}>{escape(part.text)}</text>"


def _path(points: Iterable[At]) -> str:
    return "M" + "L".join(map(_numbers, points))


def _opacity(value: float) -> str:
    return "" if value == 1 else f' fill-opacity="{value:.2g}"'


def _numbers(values: Iterable[float]) -> str:
    return ",".join(map(_number, values))


def _number(value: float) -> str:
    """Hundredths of a point are fine enough."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
