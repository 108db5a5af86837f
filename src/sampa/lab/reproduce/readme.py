"""The README's results, written between two markers from what is in results/.

Run it with `make readme`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sampa.lab.reproduce.outcome import Outcome
from sampa.lab.reproduce.plan import AVERAGE
from sampa.lab.reproduce.render import HEAD, conditions, entry_cells, table_lines

BEGIN, END = "<!-- results: written by make readme -->", "<!-- end of results -->"
TABLES = {"tab-cifar10": AVERAGE, "tab-noise": "40 %"}  # by experiment: the row that is shown
FIGURES = {
    "tab-noise/label-noise": "Test accuracy under label noise",
    "fig-gradient-gap/gradient-cosine": "Cosine of ∇f(x_t) and ∇f(y_t) over training",
}


def block(results: Path) -> str:
    """The part between the markers, markers included."""
    lines = [BEGIN, ""]
    for name, row in TABLES.items():
        saved = json.loads((results / name / "results.json").read_text(encoding="utf-8"))
        outcome = Outcome.from_json(saved)
        entries = [e for e in outcome.entries if e.row == row]
        rows = [entry_cells(entry, outcome.decimals) for entry in entries]
        lines += [f"**[{name}](results/reproduce/{name}/README.md)**: {outcome.title}.", ""]
        lines += [conditions(outcome), "", *table_lines(HEAD, rows), ""]
    for figure, title in FIGURES.items():
        lines += [f"![{title}](results/reproduce/{figure}.svg)", ""]
    return "\n".join([*lines, END])


def updated(readme: str, results: Path) -> str:
    """A README with its block renewed.

    Raises:
        ValueError: If it has no markers.
    """
    start, end = readme.find(BEGIN), readme.find(END)
    if start < 0 or end < start:
        raise ValueError(f"README.md must have {BEGIN!r} and, after it, {END!r}")
    return readme[:start] + block(results) + readme[end + len(END) :]


def main(root: Path) -> int:
    file = root / "README.md"
    text = updated(file.read_text(encoding="utf-8"), root / "results" / "reproduce")
    file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path()))
