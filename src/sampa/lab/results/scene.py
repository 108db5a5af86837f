"""Scenes: drawings as data, in points from the upper left corner.

`drawing` makes them from charts; `svg` and `png` write them. Colors are named as in style.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Literal

At = tuple[float, float]

FONT = 8.5  # points
# Widths of letters in ems, those of a wide font: a page has its reader's.
NARROW_LETTERS, WIDE_LETTERS = frozenset("ijlIft.,:;'|!()[] /-"), frozenset("mwMWQO@%−×+=")
WIDTHS = {
    **dict.fromkeys(ascii_uppercase, 0.72),
    **dict.fromkeys(NARROW_LETTERS, 0.37),
    **dict.fromkeys(WIDE_LETTERS, 0.95),
}
LETTER = 0.66
BOLD = 1.12  # times as wide


@dataclass(frozen=True)
class Stroke:
    """A line through points; a single one is not seen."""

    points: Sequence[At]
    color: str
    width: float
    dashes: tuple[float, ...] = ()


@dataclass(frozen=True)
class Area:
    """A filled polygon."""

    points: Sequence[At]
    color: str
    opacity: float = 1.0


@dataclass(frozen=True)
class Marks:
    """The same marker at several points.

    Attributes:
        shape: matplotlib's name of the marker, as in `looks.MARKERS`.
        size: Its diameter.
        edge: The color of its outline.
    """

    points: Sequence[At]
    shape: str
    size: float
    color: str
    edge: str = "paper"
    edge_width: float = 0.0
    opacity: float = 1.0


@dataclass(frozen=True)
class Words:
    """A line of text.

    Attributes:
        at: The anchor, at half of the height of the letters.
        upwards: Whether it is read from below to above.
    """

    at: At
    text: str
    anchor: Literal["start", "middle", "end"] = "middle"
    color: str = "muted"
    size: float = FONT
    bold: bool = False
    upwards: bool = False


Shape = Stroke | Area | Marks | Words


@dataclass
class Scene:
    """A drawing: parts, each over those before it."""

    width: float
    height: float
    parts: list[Shape] = field(default_factory=list)

    def add(self, *parts: Shape) -> None:
        self.parts.extend(parts)


def width_of(text: str, size: float = FONT, *, bold: bool = False) -> float:
    """About how wide a text is."""
    return size * (BOLD if bold else 1.0) * sum(WIDTHS.get(letter, LETTER) for letter in text)


def shortened(text: str, width: float, size: float = FONT) -> str:
    """A text that is not wider than that; the page has it in full."""
    if width_of(text, size) <= width:
        return text
    while text and width_of(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text.rstrip()}…"
