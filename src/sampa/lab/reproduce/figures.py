"""Figures as files: each chart of an outcome as SVG and PNG.

`python -m sampa.lab.reproduce.figures results/reproduce` draws those of all records below a folder
again, from the numbers that are stored there.
"""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

from matplotlib.colors import to_hex

from sampa.lab.report.drawing import draw
from sampa.lab.report.svg import GRID, INK, MUTED, PAPER, SERIES, figure
from sampa.lab.reproduce.outcome import Outcome
from sampa.lab.reproduce.pictures import shown

# The page's light colors: a file has no style sheet to take them from.
PALETTE = ("#858c94", "#bf3a00", "#1560c8", "#00604a", "#b5409a", "#c08400", "#3398de", "#4a1c8f")
PRINTED = {
    INK: "#1b1f24",
    MUTED: "#57606a",
    GRID: "#dfe3e8",
    PAPER: "#ffffff",
    **dict(zip(SERIES, PALETTE, strict=True)),
}
MARGIN: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.08}


def write_charts(outcome: Outcome, folder: Path) -> None:
    """NAME.svg and NAME.png for every chart."""
    for chart in shown(outcome):
        with figure():
            drawn = draw(chart)
            svg, png = io.StringIO(), io.BytesIO()
            nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
            drawn.savefig(svg, format="svg", metadata=nothing, **MARGIN)
            (folder / f"{chart.name}.svg").write_text(_printed(svg.getvalue()), encoding="utf-8")
            for artist in drawn.findobj():
                _repaint(artist)
            drawn.savefig(
                png, format="png", dpi=200, facecolor="white", transparent=False, **MARGIN
            )
            (folder / f"{chart.name}.png").write_bytes(png.getvalue())


def _printed(svg: str) -> str:
    """The drawing with real colors on a white ground."""
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    svg = re.sub("|".join(PRINTED), lambda m: PRINTED[m[0]], svg)
    svg = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    return re.sub(r"(<svg\b[^>]*>)", rf"\1{ground}", svg, count=1)


def _repaint(artist: Any) -> None:
    """Replace stand-in colors of a drawn thing."""
    for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
        getter, setter = f"get_{name}", f"set_{name}"
        if not (hasattr(artist, getter) and hasattr(artist, setter)):
            continue
        try:
            before = to_hex(getattr(artist, getter)())
        except (TypeError, ValueError):
            continue
        if before in PRINTED:
            getattr(artist, setter)(PRINTED[before])


def main(root: Path) -> int:
    for record in sorted(root.rglob("results.json")):
        saved = json.loads(record.read_text(encoding="utf-8"))
        if "entries" in saved:  # `sampa compare` has others
            write_charts(Outcome.from_json(saved), record.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
