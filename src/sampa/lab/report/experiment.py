"""An experiment's part of the page: a table or figure of the paper, as it was reproduced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markupsafe import Markup

from sampa.lab.conditions import flat
from sampa.lab.report.recipe import Facts, RecipeView
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
        anchor: Its id in the page.
        recipes: What was trained for it, by the row of its table.
    """

    outcome: Outcome
    anchor: str
    recipes: dict[str, RecipeView] = field(default_factory=dict)
    template: str = "experiment.html.j2"

    @property
    def name(self) -> str:
        return self.outcome.id

    @property
    def title(self) -> str:
        return self.outcome.title

    @property
    def about(self) -> str:
        return scale_line(self.outcome)

    @property
    def claim(self) -> str:
        return sentence(self.outcome.claim)

    @property
    def verdicts(self) -> dict[str, int]:
        """How many of the differences that the paper prints too have each verdict."""
        return counted_verdicts(self.outcome.comparisons())

    @property
    def finding(self) -> str:
        """What came out, in one sentence; empty if the verdicts say it."""
        return "" if self.verdicts else outcome_finding(self.outcome)

    @property
    def has_paper(self) -> bool:
        """Whether the paper prints any of the values."""
        return any(entry.paper is not None for entry in self.outcome.entries)

    @property
    def values(self) -> Table:
        return value_table(self.outcome).without_empty_columns()

    @property
    def differences(self) -> Table:
        return difference_table(self.outcome).without_empty_columns()

    @property
    def charts(self) -> Sequence[Chart]:
        return all_charts(self.outcome)

    @property
    def notes(self) -> Markup:
        return notes_as_html(self.outcome.notes)

    @property
    def conditions(self) -> Facts:
        facts = {
            f"tuning: {name}": f"learning rate {tuned.choice.lr:g} for all methods, ρ = "
            f"{tuned.choice.rho:g} for SAM; best of {len(tuned.scores)} runs on held-back data"
            for name, tuned in self.outcome.tuning.items()
        }
        return {
            name: [text] for name, text in {**facts, **flat(self.outcome.conditions.values)}.items()
        }


def experiment_view(
    outcome: Outcome, anchor: str, recipes: Sequence[RecipeView] = ()
) -> ExperimentView:
    """An experiment with those recipes that are named after it, in the order of its rows."""
    prefix, rows = outcome.run_prefix, outcome.rows()
    names = {recipe.recipe.name: recipe for recipe in recipes}
    own = {n.removeprefix(prefix): r for n, r in names.items() if n.startswith(prefix)}
    order = sorted(own, key=lambda row: rows.index(row) if row in rows else len(rows))
    return ExperimentView(outcome, anchor, {row: own[row] for row in order})


def counted_verdicts(compared: Sequence[Comparison]) -> dict[str, int]:
    """How the order of methods compares with the paper's."""
    found = Counter(c.verdict for c in compared if c.paper is not None)
    order = ("as in the paper", "not as in the paper", "too small to tell")
    return {verdict: found[verdict] for verdict in order if found[verdict]}


def outcome_finding(outcome: Outcome) -> str:
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
