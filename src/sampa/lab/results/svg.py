"""Files of a matplotlib figure: an element that takes its colors from a page, SVG, and PNG.

For a page, figures are drawn with stand-in colors; here each becomes a CSS variable, so that one
chart is readable on a light page, on a dark one and on paper.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from sampa.lab.results.looks import COLORS, STYLE


@dataclass(frozen=True)
class Palette:
    """The colors that a figure is drawn with; style.css has the same names."""

    ink: str
    muted: str
    rule: str
    paper: str
    series: tuple[str, ...]


PAGE = Palette(
    "#000001", "#000002", "#000003", "#000004", tuple(f"#0000{16 + i:02x}" for i in range(COLORS))
)
# The page's light colors: a file has no style sheet to take them from.
PRINT = Palette(
    "#1b1f24",
    "#57606a",
    "#dfe3e8",
    "#ffffff",
    ("#858c94", "#bf3a00", "#1560c8", "#00604a", "#b5409a", "#c08400", "#3398de", "#4a1c8f"),
)
VARIABLES = {
    **{getattr(PAGE, name): f"var(--{name})" for name in ("ink", "muted", "rule", "paper")},
    **{color: f"var(--series-{i})" for i, color in enumerate(PAGE.series)},
}
TIGHT: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.08}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@contextmanager
def styled(palette: Palette) -> Iterator[None]:
    """The one style, whatever matplotlib is set to elsewhere; draw and save figures inside it."""
    colors: dict[str, object] = {
        "grid.color": palette.rule,
        "text.color": palette.ink,
        **dict.fromkeys(("axes.edgecolor", "axes.labelcolor"), palette.muted),
        **dict.fromkeys(("xtick.color", "ytick.color"), palette.muted),
    }
    with matplotlib.style.context(["default", STYLE, colors]):
        yield


def write_files(drawn: Figure, folder: Path, name: str) -> None:
    """NAME.svg and NAME.png, on a white ground."""
    (folder / f"{name}.svg").write_text(to_file(drawn), encoding="utf-8")
    drawn.savefig(folder / f"{name}.png", format="png", dpi=200, **TIGHT)


def to_file(drawn: Figure) -> str:
    """The figure as an SVG of its own, on a white ground; it must have the colors of `PRINT`."""
    svg = io.StringIO()
    drawn.savefig(svg, format="svg", metadata=NO_METADATA, **TIGHT)
    return "\n".join(line.rstrip() for line in svg.getvalue().splitlines()) + "\n"


def to_element(drawn: Figure, prefix: str) -> str:
    """The figure as an element to put into a page; it must have the colors of `PAGE`.

    Args:
        drawn: A figure; its text is escaped.
        prefix: What its ids begin with, unique in the page.
    """
    file = io.StringIO()
    for patch in (drawn.patch, *(axes.patch for axes in drawn.axes)):  # the page shows through
        patch.set(facecolor="none", edgecolor="none")
    # As `savefig` does it, but for a first drawing of all that only finds the layout.
    FigureCanvasSVG(drawn).print_svg(file, metadata=NO_METADATA)
    text = file.getvalue()
    text = text[text.index("<svg") :].rstrip()
    # matplotlib's own style would hold for the whole page.
    text = re.sub(r"\s*<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    text = _fluid(text)
    text = _own_ids(text, prefix)
    text = re.sub(r'="[^"]*"', lambda m: _rounded(m[0]), text)
    return re.sub("|".join(VARIABLES), lambda m: VARIABLES[m[0]], text)


def _rounded(attribute: str) -> str:
    """Hundredths of a point are fine enough, and half the size."""
    return re.sub(r"-?\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}", attribute)


def _fluid(text: str) -> str:
    """As wide as the page allows, in its font, and silent: the page describes the chart."""
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    body = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", body)  # matplotlib < 3.11
    body = re.sub(r" *font-family: [^;\"]*;?", "", body)
    return f'<svg {box[0]} aria-hidden="true" focusable="false">{body}'


def _own_ids(text: str, prefix: str) -> str:
    """Ids that no other chart has, and only where something refers to them."""
    used = set(chain.from_iterable(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text)))
    text = re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", text)
    text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}-", text)
    return text.replace("xlink:href", "href")
