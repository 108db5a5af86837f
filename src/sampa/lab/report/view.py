"""Views: everything that the page shows, ready for the template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sampa.lab.report.charts import Look, curve_chart, look, sweep_chart, time_chart
from sampa.lab.report.collect import Problem
from sampa.lab.report.conditions import Fact, conditions, mixed, run_table, settings, time_caveat
from sampa.lab.report.experiments import ExperimentView, counts, experiment_view
from sampa.lab.report.groups import Recipe, Variant
from sampa.lab.report.series import (
    bands,
    clouds,
    describe_bands,
    describe_clouds,
    describe_sweep,
    sweeps,
)
from sampa.lab.report.summarize import Table, headline, paper_table, result_table
from sampa.lab.reproduce.outcome import Outcome, Recorded


@dataclass(frozen=True)
class Chart:
    """A chart with its words.

    Attributes:
        title: What is drawn.
        note: What one must know to read it.
        description: The chart in words, for those who do not see it.
        svg: The drawing, which has no text from outside.
    """

    title: str
    note: str
    description: str
    svg: Markup


@dataclass(frozen=True)
class RecipeView:
    """One recipe's part of the page."""

    recipe: Recipe
    anchor: str
    headline: str
    mixed: tuple[str, ...]
    table: Table
    paper: Table | None
    runs: Table
    charts: tuple[Chart, ...]
    conditions: tuple[Fact, ...]
    settings: tuple[Fact, ...]

    def look(self, variant: Variant) -> Look:
        return look(variant.style)


@dataclass(frozen=True)
class Section:
    """An experiment with the recipes that were trained for it."""

    experiment: ExperimentView
    recipes: tuple[RecipeView, ...]

    def row(self, part: RecipeView) -> str:
        """The row of the experiment's table that a recipe is."""
        return part.recipe.name.removeprefix(_prefix(self.experiment.outcome))


@dataclass(frozen=True)
class PageView:
    """The whole page.

    Attributes:
        lead: What the experiments say together; empty if there are none to count.
        recipes: Those that belong to no experiment.
    """

    title: str
    extent: tuple[str, ...]
    lead: str
    sections: tuple[Section, ...]
    recipes: tuple[RecipeView, ...]
    problems: tuple[Problem, ...]


def page_view(
    recipes: Sequence[Recipe], problems: Sequence[Problem], outcomes: Sequence[Recorded] = ()
) -> PageView:
    views = [recipe_view(recipe, f"recipe-{i}") for i, recipe in enumerate(recipes, start=1)]
    sections = tuple(_section(r, f"experiment-{i}", views) for i, r in enumerate(outcomes, start=1))
    nested = {part.anchor for section in sections for part in section.recipes}
    return PageView(
        title=f"{_count(outcomes)} of the paper" if outcomes else _title(recipes),
        extent=_extent(recipes),
        lead=_lead([r.outcome for r in outcomes]),
        sections=sections,
        recipes=tuple(part for part in views if part.anchor not in nested),
        problems=tuple(problems),
    )


def _section(recorded: Recorded, anchor: str, views: Sequence[RecipeView]) -> Section:
    prefix = _prefix(recorded.outcome)
    own = {p.recipe.name.removeprefix(prefix): p for p in views if p.recipe.name.startswith(prefix)}
    rows = recorded.outcome.rows()
    order = sorted(own, key=lambda row: rows.index(row) if row in rows else len(rows))
    return Section(experiment_view(recorded, anchor), tuple(own[row] for row in order))


def _prefix(outcome: Outcome) -> str:
    """What the names of an experiment's runs begin with, unless they are the paper's recipes."""
    return f"{outcome.id}-{outcome.scale}: "


def _count(outcomes: Sequence[Recorded]) -> str:
    return f"{len(outcomes)} experiment{_plural(outcomes)}"


def _lead(outcomes: Sequence[Outcome]) -> str:
    found = counts([c for outcome in outcomes for c in outcome.comparisons()])
    if not found:
        return ""
    parts = ", ".join(f"{count.n} {_be(count.n)} {count.verdict}" for count in found)
    total = sum(count.n for count in found)
    return f"Of {total} differences between methods that the paper prints too, {parts}."


def _be(n: int) -> str:
    return "is" if n == 1 else "are"


def recipe_view(recipe: Recipe, anchor: str) -> RecipeView:
    return RecipeView(
        recipe=recipe,
        anchor=anchor,
        headline=headline(recipe),
        mixed=tuple(mixed(recipe)),
        table=result_table(recipe),
        paper=paper_table(recipe),
        runs=run_table(recipe),
        charts=(*_curves(recipe, anchor), _time(recipe, anchor), *_sweeps(recipe, anchor)),
        conditions=tuple(conditions(recipe)),
        settings=tuple(settings(recipe)),
    )


# ---- charts ----------------------------------------------------------------------------------

BAND_NOTE = "Mean over seeds; the band reaches from the lowest to the highest."
GAP_NOTE = "Loss at the perturbed point minus that at the clean one, last batch of each epoch."
COSINE_NOTE = "Between the first and the last gradient of a step, last batch of each epoch."


def _curves(recipe: Recipe, anchor: str) -> list[Chart]:
    kinds = {
        f"validation_{recipe.metric}": (f"Validation {recipe.metric}", BAND_NOTE),
        "train_loss": ("Training loss", BAND_NOTE),
        "sharpness": ("Sharpness gap", GAP_NOTE),
        "cosine": ("Cosine of the gradients", COSINE_NOTE),
    }
    charts: list[Chart] = []
    for i, (name, (title, note)) in enumerate(kinds.items()):
        found = bands(recipe, name)
        if any(len(band.x) > 1 for band in found):  # one epoch is no curve
            svg = Markup(curve_chart(found, f"{anchor}-curve-{i}"))
            charts.append(Chart(title, note, describe_bands(found), svg))
    return charts


def _time(recipe: Recipe, anchor: str) -> Chart:
    found = clouds(recipe)
    note = f"Small marks are runs, large marks their means. {time_caveat(recipe)}".rstrip()
    svg = Markup(time_chart(found, f"{anchor}-time"))
    return Chart(f"Test {recipe.metric} against time", note, describe_clouds(found), svg)


def _sweeps(recipe: Recipe, anchor: str) -> list[Chart]:
    charts: list[Chart] = []
    for i, sweep in enumerate(sweeps(recipe)):
        title = f"Test {recipe.metric} of {sweep.method} over λ"
        note = "Mean ± standard deviation over seeds."
        if sweep.reference is not None:
            note += f" Dashed: {recipe.baseline.label}."
        svg = Markup(sweep_chart(sweep, f"{anchor}-sweep-{i}"))
        charts.append(Chart(title, note, describe_sweep(sweep), svg))
    return charts


# ---- words about the whole -------------------------------------------------------------------


def _title(recipes: Sequence[Recipe]) -> str:
    methods = _methods(recipes)
    where = recipes[0].name if len(recipes) == 1 else f"{len(recipes)} recipes"
    if not recipes:
        return "No finished runs"
    return f"{methods[0] if len(methods) == 1 else f'{len(methods)} methods'} on {where}"


NAMED = 8  # methods, from which on they are counted


def _extent(recipes: Sequence[Recipe]) -> tuple[str, ...]:
    """How much was compared, in a few words each."""
    records = [record for recipe in recipes for record in recipe.records]
    seeds = sorted({record.run.seed for record in records})
    runs = f"{len(records)} finished run{_plural(records)}"
    if not records:
        return (runs,)
    methods = _methods(recipes)
    named = ", ".join(methods) if len(methods) <= NAMED else f"{len(methods)} methods"
    return runs, named, f"seed{_plural(seeds)} {_ranges(seeds)}"


def _plural(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"


def _methods(recipes: Sequence[Recipe]) -> list[str]:
    return list(dict.fromkeys(v.method for recipe in recipes for v in recipe.variants))


def _ranges(numbers: Sequence[int]) -> str:
    """Whole numbers in order, with runs of them joined: 0–2, 5."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(f"{g[0]}–{g[-1]}" if len(g) > 1 else f"{g[0]}" for g in groups)
