"""An experiment's part of the page: a table or figure of the paper, as it was reproduced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markupsafe import Markup

from sampa.lab.report.recipe import Facts, RecipeView
from sampa.lab.report.records import flat
from sampa.lab.results.charts import Chart
from sampa.lab.results.html import minus
from sampa.lab.results.outcome import Comparison, Entry, Outcome
from sampa.lab.results.outcome_tables import difference_table, paper_cell, scale_line, value_table
from sampa.lab.results.pictures import all_charts
from sampa.lab.results.table import Table, mean


@dataclass(frozen=True)
class ExperimentView:
    """One experiment's part of the page.

    Attributes:
        verdicts: How many of the differences that the paper prints too have each verdict.
        finding: What came out, in one sentence; empty if the verdicts say it.
        recipes: What was trained for it, by the row of its table.
    """

    outcome: Outcome
    anchor: str
    about: str
    claim: str
    verdicts: dict[str, int]
    finding: str
    values: Table
    differences: Table
    charts: Sequence[Chart]
    notes: Markup
    conditions: Facts
    recipes: dict[str, RecipeView]

    @property
    def has_paper(self) -> bool:
        """Whether the paper prints any of the values."""
        return any(entry.paper is not None for entry in self.outcome.entries)


def experiment_view(
    outcome: Outcome, anchor: str, recipes: Sequence[RecipeView] = ()
) -> ExperimentView:
    verdicts = counted_verdicts(outcome.comparisons())
    prefix, rows = outcome.run_prefix, outcome.rows()
    own = {
        r.recipe.name.removeprefix(prefix): r for r in recipes if r.recipe.name.startswith(prefix)
    }
    order = sorted(own, key=lambda row: rows.index(row) if row in rows else len(rows))
    tunings = {
        f"tuning: {name}": [
            f"learning rate {tuned.choice.lr:g} for all methods, ρ = {tuned.choice.rho:g} for SAM; "
            f"best of {len(tuned.scores)} runs on held-back data"
        ]
        for name, tuned in outcome.tuning.items()
    }
    return ExperimentView(
        outcome=outcome,
        anchor=anchor,
        about=scale_line(outcome),
        claim=sentence(outcome.claim),
        verdicts=verdicts,
        finding="" if verdicts else finding(outcome),
        values=value_table(outcome).without_empty_columns(),
        differences=difference_table(outcome).without_empty_columns(),
        charts=all_charts(outcome),
        notes=notes_as_html(outcome.notes),
        conditions={**tunings, **{k: [v] for k, v in flat(outcome.conditions).items()}},
        recipes={row: own[row] for row in order},
    )


def counted_verdicts(compared: Sequence[Comparison]) -> dict[str, int]:
    """How the order of methods compares with the paper's."""
    found = Counter(c.verdict for c in compared if c.paper is not None)
    order = ("as in the paper", "not as in the paper", "too small to tell")
    return {verdict: found[verdict] for verdict in order if found[verdict]}


def finding(outcome: Outcome) -> str:
    """What came out where the paper prints no differences: a fact, a tally, or a value."""
    if outcome.facts:
        return outcome.facts[0]
    tallies: dict[str, Counter[str]] = {}
    for c in outcome.comparisons():
        tallies.setdefault(c.baseline, Counter())[c.verdict] += 1
    if tallies:
        counts = {
            name: ", ".join(f"{n} {verdict}" for verdict, n in found.most_common())
            for name, found in tallies.items()
        }
        return sentence("; ".join(f"against {name}: {count}" for name, count in counts.items()))
    beside = [entry for entry in outcome.entries if entry.paper and "SAMPa" in entry.column]
    chosen = (beside or list(outcome.entries))[-1:]
    return sentence("; ".join(_value(entry, outcome.decimals) for entry in chosen))


def _value(entry: Entry, decimals: int) -> str:
    value = f"{entry.row}, {entry.column}: {minus(mean(entry.ours, decimals).text)}"
    paper = minus(paper_cell(entry.paper).text)
    return value if entry.paper is None else f"{value}; in the paper {paper}"


def sentence(text: str) -> str:
    """With a capital and a full stop; symbols and names keep their first letter."""
    if not text:
        return ""
    first = text.split()[0].rstrip(",:")
    is_word = first.isascii() and first.isalpha() and first.islower()
    capital = text[:1].upper() if is_word else text[:1]
    return f"{capital}{text[1:].rstrip('.')}."


def notes_as_html(text: str) -> Markup:
    """Notes by hand: HTML in them stays text, and nothing is fetched.

    All headings are of the level below the experiment's.
    """
    markdown = MarkdownIt("commonmark", {"html": False}).disable(["image", "link", "autolink"])
    tokens = markdown.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = "h3"
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))
