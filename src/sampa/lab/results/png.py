"""Scenes as PNG files, painted by matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sampa.lab.results.scene import Area, Marks, Scene, Shape, Stroke
from sampa.lab.results.svg import PRINT

INCH = 72.0  # points


def write_png(scene: Scene, file: Path) -> None:
    """The scene on a white ground."""
    with matplotlib.style.context(["default", {"text.parse_math": False}]):
        figure = Figure(figsize=(scene.width / INCH, scene.height / INCH))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, scene.width), ylim=(scene.height, 0))
        axes.set_axis_off()
        for order, part in enumerate(scene.parts):
            _paint(axes, part, {"zorder": order, "clip_on": False})
        figure.savefig(file, format="png", dpi=200, facecolor=PRINT["paper"])


def _paint(axes: Axes, part: Shape, style: dict[str, Any]) -> None:
    color = PRINT[part.color]
    if isinstance(part, Stroke):
        dashes = part.dashes or (None, None)
        across, down = zip(*part.points, strict=True)
        axes.plot(across, down, color=color, lw=part.width, dashes=dashes, **style)
    elif isinstance(part, Area):
        axes.fill(*zip(*part.points, strict=True), color=color, alpha=part.opacity, lw=0, **style)
    elif isinstance(part, Marks):
        for x, y in part.points:
            axes.plot(
                x,
                y,
                part.shape,
                color=color,
                ms=part.size,
                mec=PRINT[part.edge],
                mew=part.edge_width,
                alpha=part.opacity,
                **style,
            )
    else:
        axes.text(
            *part.at,
            part.text,
            color=color,
            size=part.size,
            ha={"start": "left", "middle": "center", "end": "right"}[part.anchor],
            va="center",
            weight="bold" if part.bold else "normal",
            rotation=90 if part.upwards else 0,
            **style,
        )
