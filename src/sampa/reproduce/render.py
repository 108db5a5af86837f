"""Tables of an outcome: Markdown for files, rich for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from sampa.reproduce.outcome import Comparison, Entry, Outcome
from sampa.train.tables import shown

SCALE_NAMES = {
    "paper": "the paper's settings",
    "cpu": "reduced to two CPU cores",
    "smoke": "a test",
}
HEAD = ("", "method", "paper", "ours", "n", "ours − paper")
PAIRED = ("", "compared", "paper", "ours, paired by seed ± s.e.", "n", "order")


def heading(outcome: Outcome) -> str:
    return f"{outcome.id}: {outcome.title}"


def conditions(outcome: Outcome) -> str:
    """What every heading says: the scale, the data, the network and the epochs."""
    return f"Scale: {SCALE_NAMES[outcome.scale]}. {outcome.about}."


def entry_cells(entry: Entry) -> list[str]:
    difference = "" if entry.difference is None else f"{entry.difference:+.2f}"
    paper = "–" if entry.paper is None else str(entry.paper)
    return [entry.row, entry.column, paper, str(entry.ours), str(entry.ours.n), difference]


def comparison_cells(c: Comparison) -> list[str]:
    paper = "–" if c.paper is None else f"{c.paper:+.2f}"
    return [c.row, f"{c.column} − {c.baseline}", paper, shown(c.ours), str(c.ours.n), c.verdict]


def terminal_tables(outcome: Outcome) -> list[Table]:
    found: list[Table] = []
    if outcome.entries:
        rows = [entry_cells(entry) for entry in outcome.entries]
        found.append(_terminal(heading(outcome), HEAD, rows))
    compared = [comparison_cells(c) for c in outcome.comparisons()]
    if compared:
        found.append(_terminal("differences", PAIRED, compared))
    return found


def _terminal(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title)
    for i, column in enumerate(head):
        table.add_column(column, justify="left" if i < 2 else "right", no_wrap=i > 1)
    for row in rows:
        table.add_row(*row)
    return table


def markdown(outcome: Outcome, command: str, notes: str = "") -> str:
    """The whole result as a page."""
    parts = [f"# {heading(outcome)}", "", conditions(outcome), ""]
    parts += [f"In the paper: `{outcome.label}`. {outcome.claim}".rstrip(), ""]
    if outcome.entries:
        parts += [*table_lines(HEAD, [entry_cells(e) for e in outcome.entries]), ""]
        parts += [f"Ours: {outcome.unit}, mean ± standard deviation over seeds.", ""]
    compared = outcome.comparisons()
    if compared:
        parts += ["## Differences on the same seeds", ""]
        parts += [*table_lines(PAIRED, [comparison_cells(c) for c in compared]), ""]
        parts += ["A difference under two standard errors is too small to tell.", ""]
    parts += [
        line for chart in outcome.charts for line in _picture(chart.name, chart.title, chart.note)
    ]
    parts += [line for fact in outcome.facts for line in (fact, "")]
    parts += [notes.strip(), ""] if notes.strip() else []
    parts += _tuning(outcome)
    parts += [
        "## Conditions",
        "",
        "Written by",
        "",
        f"    {command}",
        "",
        *_facts(outcome.conditions),
    ]
    return "\n".join(parts).rstrip() + "\n"


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = "|".join("---" if i < 2 else "--:" for i in range(len(head)))
    return [_line(head), f"|{rule}|", *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _picture(name: str, title: str, note: str) -> list[str]:
    return [f"![{title}]({name}.svg)", "", f"{title}. {note}".rstrip(), ""]


def _tuning(outcome: Outcome) -> list[str]:
    """What was chosen, from which scores."""
    lines: list[str] = []
    for name, tuned in outcome.tuning.items():
        choice = tuned["choice"]
        lines += [f"## Tuning: {name}", ""]
        lines += [
            f"Chosen on validation data, with a seed that is not reported: learning rate "
            f"{choice['lr']:g} for all methods, ρ = {choice['rho']:g} for SAM.",
            "",
        ]
        rows = [[key, f"{score:.2f}"] for key, score in tuned["scores"].items()]
        lines += [*table_lines(("run", "best validation score"), rows), ""]
    return lines


def _facts(values: dict[str, Any], before: str = "") -> list[str]:
    lines: list[str] = []
    for name, value in values.items():
        if isinstance(value, dict):
            lines += _facts(value, f"{before}{name} ")
        else:
            several = " and ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(f"- {before}{name}: {several}")
    return lines
