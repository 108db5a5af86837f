"""SVG: from a matplotlib figure to an element that takes its colors from the page.

Figures are drawn with stand-in colors; here each becomes a CSS variable, so that one chart is
readable on a light page, on a dark one and on paper.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import matplotlib.style
from matplotlib.figure import Figure

COLORS = 8  # of the palette; style.css has a value for each, light and dark

INK, MUTED, GRID, PAPER = "#000001", "#000002", "#000003", "#000004"
SERIES = tuple(f"#0000{16 + i:02x}" for i in range(COLORS))
VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--rule)",
    PAPER: "var(--paper)",
    **{color: f"var(--series-{i})" for i, color in enumerate(SERIES)},
}

STYLE: dict[str, object] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.figsize": (4.4, 2.6),
    "font.size": 8.5,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "savefig.transparent": True,
    "svg.fonttype": "none",  # text stays text, in the page's font
    "svg.hashsalt": "sampa",  # the same figure gives the same file
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "xtick.major.width": 0.6,
    "ytick.color": MUTED,
    "ytick.major.size": 0.0,
}


@contextmanager
def figure() -> Iterator[Figure]:
    """A figure in the report's style, whatever matplotlib is set to elsewhere."""
    with matplotlib.style.context(["default", STYLE]):
        yield Figure()


def to_svg(drawn: Figure, prefix: str) -> str:
    """The figure as an element to put into a page; call it inside `figure`.

    Args:
        drawn: A figure without text from outside: labels belong to the page, which escapes them.
        prefix: What its ids begin with, unique in the page.
    """
    file = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    drawn.savefig(file, format="svg", metadata=nothing)
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
