"""The README's results, written between two markers from what is in results/.

Run it with `make readme`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from sampa.lab.results.outcome import AVERAGE, RESULTS, read_outcome
from sampa.lab.results.outcome_tables import scale_line, value_table
from sampa.lab.results.table import as_markdown

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
        outcome = read_outcome(results / name / RESULTS)
        assert outcome is not None
        shown = replace(outcome, entries=tuple(e for e in outcome.entries if e.row == row))
        lines += [f"**[{name}](results/reproduce/{name}/README.md)**: {outcome.title}.", ""]
        lines += [scale_line(outcome), "", *as_markdown(value_table(shown)), ""]
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
