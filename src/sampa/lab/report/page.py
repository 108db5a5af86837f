"""The page: from all that was found to one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sampa.lab.flatness.page import title_of
from sampa.lab.report.experiment import counted_verdicts, experiment_view
from sampa.lab.report.flatness import Measured, flatness_views
from sampa.lab.report.groups import Recipe
from sampa.lab.report.recipe import RecipeView
from sampa.lab.report.records import LeftOut
from sampa.lab.results.html import script, template
from sampa.lab.results.outcome import Outcome

COUNTED_FROM = 8  # methods, from which on they are counted
UNFOLDED = 4  # sections, from which on they are opened one by one


class Section(Protocol):
    """A part of the page: a view, and the template that shows it under the name `part`."""

    @property
    def template(self) -> str:
        """Its file."""
        ...

    @property
    def anchor(self) -> str:
        """Its id in the page."""
        ...

    @property
    def name(self) -> str:
        """What it is called in the list of sections."""
        ...

    @property
    def title(self) -> str:
        """More words for its heading; may be empty."""
        ...

    @property
    def verdicts(self) -> Mapping[str, int]:
        """How often what came out is as in the paper; empty if that is not asked."""
        ...

    @property
    def finding(self) -> str:
        """What came out, in one sentence; empty if the verdicts say it."""
        ...


@dataclass(frozen=True)
class LeftOutView:
    """What is not in the report, with the reasons."""

    items: Sequence[LeftOut]
    template: str = "left_out.html.j2"
    anchor: str = "left-out"
    name: str = "Left out"
    title: str = ""

    @property
    def verdicts(self) -> dict[str, int]:
        return {}

    @property
    def finding(self) -> str:
        return f"{len(self.items)} left out, with the reason."


@dataclass(frozen=True)
class PageView:
    """The whole page.

    Attributes:
        extent: How much was compared, in a few words each.
        lead: What the experiments say together; empty if there are none to count.
        sections: Experiments, the recipes that belong to none, the flatness of models, and what was
            left out.
    """

    title: str
    extent: tuple[str, ...]
    lead: str
    sections: list[Section]

    @property
    def folded(self) -> bool:
        """Whether the sections are opened one by one."""
        return len(self.sections) > UNFOLDED

    @property
    def is_empty(self) -> bool:
        return all(isinstance(part, LeftOutView) for part in self.sections)


def render(view: PageView) -> str:
    """The page. All text is escaped; only our own script may run."""
    text, digest = script("page.js", "hover.js")
    return template("page.html.j2", "sampa.lab.report").render(
        view=view, script=text, script_hash=digest
    )


def page_view(
    recipes: Sequence[Recipe],
    left_out: Sequence[LeftOut],
    outcomes: Sequence[Outcome] = (),
    flatness: Sequence[Measured] = (),
) -> PageView:
    views = [RecipeView(recipe, f"recipe-{i}") for i, recipe in enumerate(recipes, start=1)]
    experiments = [
        experiment_view(outcome, f"experiment-{i}", views)
        for i, outcome in enumerate(outcomes, start=1)
    ]
    nested = {part.anchor for view in experiments for part in view.recipes.values()}
    methods = list(dict.fromkeys(v.method for recipe in recipes for v in recipe.variants))
    return PageView(
        title=f"{_counted(outcomes, 'experiment')} of the paper"
        if outcomes
        else _title(recipes, methods, flatness),
        extent=_extent(recipes, methods),
        lead=_lead(outcomes),
        sections=[
            *experiments,
            *(part for part in views if part.anchor not in nested),
            *flatness_views(flatness),
            *([LeftOutView(left_out)] if left_out else []),
        ],
    )


def _title(recipes: Sequence[Recipe], methods: Sequence[str], flatness: Sequence[Measured]) -> str:
    if not recipes:
        return title_of(flatness[0].found) if flatness else "No finished runs"
    where = recipes[0].name if len(recipes) == 1 else f"{len(recipes)} recipes"
    return f"{methods[0] if len(methods) == 1 else f'{len(methods)} methods'} on {where}"


def _extent(recipes: Sequence[Recipe], methods: Sequence[str]) -> tuple[str, ...]:
    records = [run for recipe in recipes for run in recipe.runs]
    seeds = sorted({record.run.seed for record in records})
    runs = _counted(records, "finished run")
    if not records:
        return (runs,)
    named = ", ".join(methods) if len(methods) <= COUNTED_FROM else f"{len(methods)} methods"
    return runs, named, f"seed{'' if len(seeds) == 1 else 's'} {_ranges(seeds)}"


def _lead(outcomes: Sequence[Outcome]) -> str:
    found = counted_verdicts([c for outcome in outcomes for c in outcome.comparisons()])
    parts = ", ".join(f"{n} {'is' if n == 1 else 'are'} {verdict}" for verdict, n in found.items())
    total = sum(found.values())
    text = f"Of {total} differences between methods that the paper prints too, {parts}."
    return text if found else ""


def _counted(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _ranges(numbers: Sequence[int]) -> str:
    """Whole numbers in order, with runs of them joined: 0–2, 5."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(f"{g[0]}–{g[-1]}" if len(g) > 1 else f"{g[0]}" for g in groups)
