"""Tables of an outcome: Markdown for files, rich for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from sampa.lab.reproduce.outcome import Comparison, Entry, Outcome
from sampa.lab.reproduce.pictures import shown
from sampa.lab.training.tables import Spread

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


def entry_cells(entry: Entry, decimals: int) -> list[str]:
    difference = "" if entry.difference is None else f"{entry.difference:+.{decimals}f}"
    paper = "–" if entry.paper is None else str(entry.paper)
    ours = plain(entry.ours, decimals)
    return [entry.row, entry.column, paper, ours, str(entry.ours.n), difference]


def comparison_cells(c: Comparison, decimals: int) -> list[str]:
    paper = "–" if c.paper is None else f"{c.paper:+.{decimals}f}"
    ours = signed(c.ours, decimals)
    return [c.row, f"{c.column} − {c.baseline}", paper, ours, str(c.ours.n), c.verdict]


def plain(s: Spread, decimals: int) -> str:
    """A mean with its standard deviation."""
    deviation = f" ± {s.std:.{decimals}f}" if s.n > 1 else ""
    return f"{s.mean:.{decimals}f}{deviation}"


def signed(s: Spread, decimals: int) -> str:
    """A difference with its standard error."""
    error = f" ± {s.standard_error:.{decimals}f}" if s.n > 1 else ""
    return f"{s.mean:+.{decimals}f}{error}"


def terminal_tables(outcome: Outcome) -> list[Table]:
    found: list[Table] = []
    if outcome.entries:
        rows = [entry_cells(entry, outcome.decimals) for entry in outcome.entries]
        found.append(_terminal(heading(outcome), HEAD, rows))
    compared = [comparison_cells(c, outcome.decimals) for c in outcome.comparisons()]
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
        rows = [entry_cells(entry, outcome.decimals) for entry in outcome.entries]
        parts += [*table_lines(HEAD, rows), "", f"Ours: {outcome.unit}.", ""]
    compared = outcome.comparisons()
    if compared:
        parts += ["## Differences on the same seeds", ""]
        rows = [comparison_cells(c, outcome.decimals) for c in compared]
        parts += [*table_lines(PAIRED, rows), ""]
        parts += ["A difference under two standard errors is too small to tell.", ""]
    parts += [
        line for chart in shown(outcome) for line in _picture(chart.name, chart.title, chart.note)
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
