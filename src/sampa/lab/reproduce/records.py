"""Records: an outcome as files.

`python -m sampa.lab.reproduce.records results/reproduce` writes the pages and figures of all
records below a folder again, from the numbers that are stored there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sampa.lab.files import replace_file
from sampa.lab.results.outcome import RESULTS, Choice, Outcome, read_outcome
from sampa.lab.results.outcome_tables import UNSURE, difference_table, scale_line, value_table
from sampa.lab.results.pictures import all_charts
from sampa.lab.results.table import Table, as_markdown, row


def write_outcome(outcome: Outcome, folder: Path, *, plots: bool) -> None:
    """Write README.md and results.json, and the figures if asked."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(outcome.as_json(), indent=1, ensure_ascii=False, allow_nan=False)
    replace_file(folder / RESULTS, f"{text}\n".encode())
    replace_file(folder / "README.md", outcome_page(outcome).encode())
    if plots:
        from sampa.lab.results.drawing import write_chart

        for chart in all_charts(outcome):
            write_chart(chart, folder)


def outcome_page(outcome: Outcome) -> str:
    """The whole result in Markdown."""
    claim = f"In the paper: `{outcome.label}`. {outcome.claim}".rstrip()
    parts = [f"# {outcome.heading}", scale_line(outcome), claim]
    if outcome.entries:
        parts += ["\n".join(as_markdown(value_table(outcome))), f"Ours: {outcome.unit}."]
    if outcome.comparisons():
        table = "\n".join(as_markdown(difference_table(outcome)))
        parts += ["## Differences on the same seeds", table, UNSURE]
    for chart in all_charts(outcome):
        parts += [f"![{chart.title}]({chart.name}.svg)", f"{chart.title}. {chart.note}".rstrip()]
    parts += [*outcome.facts, *filter(None, [outcome.notes.strip()]), *_tuning(outcome)]
    parts += ["## Conditions", "Written by", f"    {outcome.command}"]
    parts.append(outcome.conditions.as_markdown())
    return "\n\n".join(parts).rstrip() + "\n"


def _tuning(outcome: Outcome) -> list[str]:
    """What was chosen, from which scores."""
    parts: list[str] = []
    for name, tuned in outcome.tuning.items():
        rows = tuple(row(run, score) for run, score in tuned.scores.items())
        parts += [
            f"## Tuning: {name}",
            "Chosen on validation data, with a seed that is not reported: learning rate "
            f"{tuned.choice.lr:g} for all methods, ρ = {_radii(tuned.choice)}.",
            "\n".join(as_markdown(Table(name, ("run", "best validation score"), rows))),
        ]
    return parts


def _radii(choice: Choice) -> str:
    own = choice.rhos or {"SAM": choice.rho}
    return ", ".join(f"{rho:g} for {method}" for method, rho in own.items())


def main(root: Path) -> int:
    for file in sorted(root.rglob(RESULTS)):
        outcome = read_outcome(file)
        if outcome is not None:
            write_outcome(outcome, file.parent, plots=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
