"""Flatness in a report: what `sampa flatness` found about the models of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sampa.lab.flatness.kinds import MEASURES, NUMBERS
from sampa.lab.flatness.outcome import SCORE, Found
from sampa.lab.flatness.page import RecipeSection, part_of
from sampa.lab.flatness.ranks import correlation_table, correlations
from sampa.lab.report.experiment import notes_as_html
from sampa.lab.results.summary import summarize
from sampa.lab.results.table import Table


@dataclass(frozen=True)
class Measured:
    """A flatness.json, with the notes beside it."""

    found: Found
    notes: str = ""


@dataclass(frozen=True)
class FlatnessView:
    """The part of the page about one recipe of a flatness.json; its id there is the anchor."""

    measured: Measured
    recipe: str
    anchor: str
    template: str = "flatness_section.html.j2"

    @property
    def name(self) -> str:
        return f"flatness: {self.recipe}"

    @property
    def title(self) -> str:
        models = sum(s.recipe == self.recipe for s in self.measured.found.subjects)
        return f"{models} model{'' if models == 1 else 's'}"

    @property
    def verdicts(self) -> dict[str, int]:
        return {}

    @property
    def finding(self) -> str:
        return flatness_finding(self.measured.found, self.recipe)

    @property
    def part(self) -> RecipeSection:
        return part_of(self.measured.found, self.recipe, self.anchor)

    @property
    def ranks(self) -> Table | None:
        """Whether a measure goes with test accuracy."""
        return correlation_table(self.measured.found, [self.recipe])

    @property
    def notes(self) -> Markup:
        return notes_as_html(self.measured.notes)

    @property
    def about(self) -> str:
        return f"Measured by {self.measured.found.command}, commit {self._commit}."

    @property
    def _commit(self) -> object:
        return self.measured.found.conditions.values.get("commit", "not recorded")


def flatness_finding(found: Found, recipe: str) -> str:
    """Which method is flattest by the first measure, and whether that goes with accuracy."""
    measured = [n for n in NUMBERS if n in found.values and n not in (SCORE, "loss")]
    methods = found.methods(recipe)
    if not measured:
        return f"Landscapes of {', '.join(methods)}."
    name = measured[0]
    seeds = {m: list(found.by_seed(name, recipe, m).values()) for m in methods}
    means = {m: summarize(values) for m, values in seeds.items() if values}
    if not means:
        return ""
    best = min(means, key=lambda m: means[m].mean)
    text = f"Lowest mean {MEASURES[name].title}: {best}, {means[best].mean:.3g}"
    ranks = correlations(found, recipe).get(name)
    if ranks is None or ranks.verdict == "too few models":
        return f"{text}."
    tau = f"{ranks.tau:+.2f}".replace("-", "−")
    return (
        f"{text}. Over {ranks.n} models its rank correlation with test accuracy is {tau} "
        f"(p = {ranks.p:.2g}): {ranks.verdict}."
    )


def flatness_views(flatness: Sequence[Measured]) -> list[FlatnessView]:
    """A section for each recipe of each file."""
    pairs = [(measured, recipe) for measured in flatness for recipe in measured.found.recipes]
    return [FlatnessView(s, r, f"flatness-{i}") for i, (s, r) in enumerate(pairs, start=1)]
