"""Looks: how the lines of charts are told apart, in drawings and in the keys of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sampa.lab.results.charts import Chart, Line

COLORS = 8  # of the series; style.css has a value for each, light and dark
STYLE = Path(__file__).parent / "templates" / "chart.mplstyle"  # of all drawings


@dataclass(frozen=True)
class Look:
    """How a line is drawn: color, marker and dashes, so that no one of them is needed.

    Attributes:
        color: Its number in the palette.
        marker: matplotlib's name of the marker.
        path: The same marker as an SVG path around (0, 0), for keys in a page.
        dashes: Lengths of strokes and gaps; empty for a solid line.
    """

    color: int
    marker: str
    path: str
    dashes: tuple[float, ...]


# One more than there are colors, so that a pair of both comes again after 72 looks only.
MARKERS = (
    ("o", "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0z"),
    ("s", "M-2.7,-2.7h5.4v5.4h-5.4z"),
    ("^", "M0,-3.2L3.2,2.8H-3.2z"),
    ("D", "M0,-3.6L3.6,0L0,3.6L-3.6,0z"),
    ("v", "M0,3.2L3.2,-2.8H-3.2z"),
    ("P", "M-1.2,-3.4h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2v-2.4h2.2z"),
    ("<", "M-3.2,0L2.8,3.2V-3.2z"),
    (">", "M3.2,0L-2.8,3.2V-3.2z"),
    ("X", "M-3,-1.4L-1.4,-3L0,-1.6L1.4,-3L3,-1.4L1.6,0L3,1.4L1.4,3L0,1.6L-1.4,3L-3,1.4L-1.6,0z"),
)
PATHS = dict(MARKERS)
DASHES: tuple[tuple[float, ...], ...] = ((), (4.0, 2.0), (1.2, 1.6), (6.0, 2.0, 1.2, 2.0))

# One look for a method wherever it is drawn.
KNOWN_LOOKS = {"SGD": 0, "AdamW": 0, "SAM": 1, "SAMPa-0": 2, "SAMPa-0.2": 3, "SAMPa-0.1": 3}
REFERENCES = ("bound", "paper")  # what ours is held against, in gray


def look(number: int) -> Look:
    """A look by its number; the dashes change when the colors are used up."""
    marker, path = MARKERS[number % len(MARKERS)]
    return Look(number % COLORS, marker, path, DASHES[number // COLORS % len(DASHES)])


def looks(lines: Sequence[Line]) -> list[int]:
    """A look for each line: its own, that of a known method, or one that no other line has."""
    known = [_known_look(line) if line.look is None else line.look for line in lines]
    left = (number for number in (2, 3, 1, *range(4, 4 + len(lines))) if number not in known)
    return [next(left) if number is None else number for number in known]


def _known_look(line: Line) -> int | None:
    return 0 if line.label.startswith(REFERENCES) else KNOWN_LOOKS.get(line.label)


def keys(chart: Chart) -> list[tuple[Look, str]]:
    """The looks of a chart's lines with their labels, where it has several that need telling."""
    if not chart.legend or len(chart.lines) < 2 or chart.kind not in ("lines", "points"):
        return []
    labels = [line.label for line in chart.lines]
    return list(zip(map(look, looks(chart.lines)), labels, strict=True))
