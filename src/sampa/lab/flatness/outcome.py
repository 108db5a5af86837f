"""What a sweep found, as tables: intervals, and which measures go with accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sampa.lab.flatness.measures import MEASURES, NUMBERS
from sampa.lab.flatness.settings import Settings
from sampa.lab.flatness.subjects import Subject
from sampa.lab.flatness.sweep import Job
from sampa.lab.results.summary import Summary, paired, summarize
from sampa.lab.results.table import ABSENT, Cell, Table, row

SCORE = "accuracy"
PERMUTATIONS = 20_000  # of the test of a rank correlation
FEWEST = 5  # models, from which on a correlation is worth a word


@dataclass(frozen=True)
class Found:
    """A sweep's results.

    Attributes:
        subjects: As `Subject.as_json` tells them.
        values: By measure and subject: one number for each batch, or a picture's lists.
        gradients: What a measure costs, in gradients over all samples, on average.
    """

    settings: dict[str, Any]
    subjects: list[dict[str, Any]]
    values: dict[str, dict[str, Any]]
    gradients: dict[str, float]
    conditions: dict[str, Any]
    command: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @cached_property
    def recipes(self) -> list[str]:
        return list(dict.fromkeys(s["recipe"] for s in self.subjects))

    def methods(self, recipe: str) -> list[str]:
        own = [s["method"] for s in self.subjects if s["recipe"] == recipe]
        return list(dict.fromkeys(own))

    def by_seed(self, measure: str, recipe: str, method: str) -> dict[int, float]:
        """The mean over batches of each seed."""
        found = self.values.get(measure, {})
        return {
            s["seed"]: float(np.mean(found[s["name"]]))
            for s in self.subjects
            if (s["recipe"], s["method"]) == (recipe, method) and s["name"] in found
        }

    def over_batches(self, measure: str, recipe: str, method: str) -> list[float]:
        """The values of the batches of the only seed."""
        (name,) = (
            s["name"] for s in self.subjects if (s["recipe"], s["method"]) == (recipe, method)
        )
        return list(self.values[measure][name])


def collected(
    jobs: Sequence[Job], settings: Settings, conditions: dict[str, Any], command: str
) -> Found:
    """The results of the jobs that are done."""
    values: dict[str, dict[str, Any]] = {}
    costs: dict[str, list[float]] = {}
    subjects: dict[str, Subject] = {job.subject.name: job.subject for job in jobs}
    for job in jobs:
        result = job.result()
        if result is not None:
            values.setdefault(job.measure, {})[job.subject.name] = result["values"]
            costs.setdefault(job.measure, []).append(result["gradients"])
    return Found(
        asdict(settings),
        [subject.as_json() for subject in subjects.values()],
        values,
        {name: float(np.mean(found)) for name, found in costs.items()},
        conditions,
        command,
    )


# ---- tables ----------------------------------------------------------------------------------


def significant(value: float, margin: float) -> str:
    """Three digits, with the margin where it is known."""
    text = f"{value:.3g}"
    return text if math.isnan(margin) else f"{text} ± {margin:.2g}"


def value_table(found: Found, recipe: str) -> Table:
    """Every measure of every method: the mean with its 95 % interval."""
    methods = found.methods(recipe)
    rows = []
    several = False
    for name in (n for n in NUMBERS if n in found.values):
        cells: list[Cell] = []
        for method in methods:
            seeds = found.by_seed(name, recipe, method)
            several |= len(seeds) > 1
            cells.append(_value_cell(found, name, recipe, method, seeds))
        cost = found.gradients[name]
        rows.append(row(MEASURES[name].title, *cells, Cell(f"{cost:.0f}" if cost else "–", cost)))
    over = "seeds" if several else "batches"
    batches, size = found.settings["batches"], found.settings["batch_size"]
    note = (
        f"Means with their 95 % interval (Student's t) over {over}; each value is the mean over "
        f"{batches} batches of {size} training samples. Cost: gradients over these samples. "
        f"ρ = {found.settings['rho']:g}, adaptive {found.settings['adaptive_rho']:g} (l2) and "
        f"{found.settings['linf_rho']:g} (l∞), the same for all."
    )
    return Table(f"Flatness, {recipe}", ("measure", *methods, "cost"), tuple(rows), (note,))


def _value_cell(
    found: Found, name: str, recipe: str, method: str, seeds: Mapping[int, float]
) -> Cell:
    if not seeds:
        return ABSENT
    values = list(seeds.values())
    if len(values) == 1 and name != SCORE:
        values = found.over_batches(name, recipe, method)
    summary = summarize(values)
    return Cell(significant(summary.mean, summary.margin), summary.mean)


def difference_table(found: Found, recipe: str) -> Table | None:
    """Every method against the first, on the same seeds, in percent of the first."""
    first, *others = found.methods(recipe)
    rows = []
    for name in (n for n in NUMBERS if n in found.values):
        base = found.by_seed(name, recipe, first)
        cells = []
        for method in others:
            own = found.by_seed(name, recipe, method)
            scale = abs(float(np.mean(list(base.values())))) if base else 0.0
            scale = 100.0 if name == SCORE else scale  # points
            summary = paired(own, base) if scale > 0 else None
            cells.append(ABSENT if summary is None else _percent(summary, scale))
        rows.append(row(MEASURES[name].title, *cells))
    if not others or not any(cell is not ABSENT for line in rows for cell in line[1:]):
        return None
    note = (
        f"Differences on the same seeds in percent of {first}'s mean (of accuracy in points), with "
        "their 95 % interval; less is flatter."
    )
    columns = ("measure", *(f"{method} − {first}" for method in others))
    return Table(f"Against {first}, {recipe}", columns, tuple(rows), (note,))


def _percent(summary: Summary, scale: float) -> Cell:
    mean, margin = 100 * summary.mean / scale, 100 * summary.margin / scale
    text = f"{mean:+.1f} %" if math.isnan(margin) else f"{mean:+.1f} ± {margin:.1f} %"
    return Cell(text, mean, unsure=not summary.is_sure)


@dataclass(frozen=True)
class Correlation:
    """How a measure goes with test accuracy, by ranks.

    Attributes:
        tau: Kendall's τ: −1 if the flatter is always better, 1 if the sharper is.
        n: Models.
        p: How often a random order has a τ as far from 0.
    """

    tau: float
    n: int
    p: float

    @property
    def verdict(self) -> str:
        if self.n < FEWEST or math.isnan(self.tau):
            return "too few models"
        if self.p > 0.05:
            return "cannot be told from chance"
        return "flatter goes with better" if self.tau < 0 else "sharper goes with better"


def correlation(values: Sequence[float], scores: Sequence[float]) -> Correlation:
    """Kendall's τ with its permutation test (a fixed seed: the same numbers every time)."""
    n = len(values)
    if n < 2:
        return Correlation(math.nan, n, math.nan)
    upper = np.triu_indices(n, 1)

    def signs(of: Sequence[float]) -> np.ndarray:
        array = np.asarray(of, dtype=float)
        return np.sign(array[:, None] - array[None, :])

    a, b = signs(values), signs(scores)
    tau = float((a * b)[upper].mean())
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(PERMUTATIONS):
        order = random.permutation(n)
        hits += abs(float((a[np.ix_(order, order)] * b)[upper].mean())) >= abs(tau) - 1e-12
    return Correlation(tau, n, (hits + 1) / (PERMUTATIONS + 1))


def correlations(found: Found, recipe: str) -> dict[str, Correlation]:
    """Of every measure with test accuracy, over all models of a recipe."""
    own = [s["name"] for s in found.subjects if s["recipe"] == recipe]
    scores = found.values.get(SCORE, {})
    result: dict[str, Correlation] = {}
    for name in (n for n in NUMBERS if n in found.values and n != SCORE):
        both = [s for s in own if s in found.values[name] and s in scores]
        values = [float(np.mean(found.values[name][s])) for s in both]
        result[name] = correlation(values, [float(np.mean(scores[s])) for s in both])
    return result


def correlation_table(found: Found) -> Table | None:
    """Which measure goes with test accuracy, recipe by recipe."""
    by_recipe = {r: correlations(found, r) for r in found.recipes}
    told = {r: c for r, c in by_recipe.items() if any(x.n >= FEWEST for x in c.values())}
    if not told:
        return None
    rows = []
    for name in dict.fromkeys(n for c in told.values() for n in c):
        cells: list[Cell] = []
        for c in told.values():
            one = c.get(name)
            if one is None or math.isnan(one.tau):
                cells += [ABSENT, ABSENT]
                continue
            text = f"{one.tau:+.2f} (p = {one.p:.2g})"
            cells += [Cell(text, one.tau), Cell(one.verdict)]
        rows.append(row(MEASURES[name].title, *cells))
    columns = [c for r in told for c in (f"τ, {r}", "in words")]
    note = (
        "Kendall's τ between the measure and test accuracy over all models of a recipe, methods "
        "and seeds together, with the p-value of a permutation test; one test for each line, "
        "none corrected for their number."
    )
    return Table("Does it go with test accuracy?", ("measure", *columns), tuple(rows), (note,))
