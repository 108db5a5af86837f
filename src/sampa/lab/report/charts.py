"""Charts: from series to SVG. All words but axis names are the page's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from sampa.lab.report.series import Band, Cloud, Sweep
from sampa.lab.report.svg import COLORS, INK, MUTED, PAPER, SERIES, figure, to_svg


@dataclass(frozen=True)
class Look:
    """How a variant is drawn: color, marker and dashes, so that no one of them is needed.

    Attributes:
        color: Its number in the palette.
        marker: matplotlib's name of the marker.
        path: The same marker as an SVG path around (0, 0), for the legend.
        dashes: Lengths of strokes and gaps; empty for a solid line.
    """

    color: int
    marker: str
    path: str
    dashes: tuple[float, ...]


# One more than there are colors, so that a pair of both comes again after 72 variants only.
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
DASHES: tuple[tuple[float, ...], ...] = ((), (4.0, 2.0), (1.2, 1.6), (6.0, 2.0, 1.2, 2.0))
MARKS_A_LINE = 6


def look(style: int) -> Look:
    """The look of a variant by its number; the dashes change when the colors are used up."""
    marker, path = MARKERS[style % len(MARKERS)]
    return Look(style % COLORS, marker, path, DASHES[style // COLORS % len(DASHES)])


def curve_chart(bands: Sequence[Band], prefix: str) -> str:
    """Mean lines over epochs, each in the band of its seeds."""
    with figure() as drawn:
        axes = drawn.add_subplot()
        alpha = min(0.16, 0.6 / len(bands))  # many bands hide the lines
        for band in bands:
            color = SERIES[look(band.style).color]
            axes.fill_between(band.x, band.low, band.high, color=color, alpha=alpha, linewidth=0)
        for band in bands:
            _line(axes, band)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.margins(x=0.02)
        return to_svg(drawn, prefix)


def time_chart(clouds: Sequence[Cloud], prefix: str) -> str:
    """The test metric against the seconds of each run; the mean is the large mark."""
    with figure() as drawn:
        axes = drawn.add_subplot()
        for cloud in clouds:
            style, x, y = look(cloud.style), *zip(*cloud.points, strict=True)
            marks: dict[str, Any] = {"marker": style.marker, "color": SERIES[style.color]}
            axes.plot(x, y, linestyle="none", ms=3.5, alpha=0.6, markeredgewidth=0, **marks)
            axes.plot(*cloud.center, linestyle="none", ms=8, markeredgecolor=PAPER, **marks)
        axes.set_xlim(left=0)
        axes.set_xlabel("seconds of training")
        axes.margins(y=0.1)
        return to_svg(drawn, prefix)


def sweep_chart(sweep: Sweep, prefix: str) -> str:
    """The test metric over λ, with the deviation of the seeds."""
    with figure() as drawn:
        axes = drawn.add_subplot()
        if sweep.reference is not None:
            axes.axhline(sweep.reference, color=MUTED, linewidth=1.0, dashes=(4, 3))
        style = look(sweep.style)
        axes.errorbar(
            sweep.lams,
            sweep.mean,
            sweep.std,
            color=SERIES[style.color],
            marker=style.marker,
            elinewidth=1.0,
            capsize=3,
        )
        axes.set_xlabel("λ", color=INK)
        axes.margins(0.06, 0.12)
        return to_svg(drawn, prefix)


def _line(axes: Axes, band: Band) -> None:
    style = look(band.style)
    every = max(1, len(band.x) // MARKS_A_LINE)
    axes.plot(
        band.x,
        band.mean,
        color=SERIES[style.color],
        marker=style.marker,
        markersize=4.5,
        markeredgecolor=PAPER,
        markeredgewidth=0.7,
        markevery=(band.style % every, every),  # not all at the same epochs
        dashes=style.dashes or (None, None),
        solid_capstyle="round",
    )
