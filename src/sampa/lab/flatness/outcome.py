"""What a sweep found, and its tables: every measure of every method, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from sampa.lab.conditions import Conditions
from sampa.lab.flatness.kinds import MEASURES, NUMBERS
from sampa.lab.flatness.settings import SweepSettings
from sampa.lab.results.summary import Summary, paired, summarize
from sampa.lab.results.table import ABSENT, Cell, Table, row

if TYPE_CHECKING:  # both wait for torch, and a report needs neither
    from sampa.lab.flatness.subjects import Subject
    from sampa.lab.flatness.sweep import Measurement

SCORE = "accuracy"


@dataclass(frozen=True)
class MeasuredModel:
    """What a result says of a subject: all but the places of this machine."""

    name: str
    recipe: str
    method: str
    seed: int
    which: str | None = None
    state: str = ""


@dataclass(frozen=True)
class Found:
    """A sweep's results.

    Attributes:
        values: By measure and subject (or subjects): one number for each batch, or a picture's
            lists.
        gradients: What a measure costs, in gradients over all samples, on average.
    """

    settings: SweepSettings
    subjects: list[MeasuredModel]
    values: dict[str, dict[str, Any]]
    gradients: dict[str, float]
    conditions: Conditions
    command: str

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "conditions": self.conditions.values}

    @cached_property
    def recipes(self) -> list[str]:
        return list(dict.fromkeys(s.recipe for s in self.subjects))

    def methods(self, recipe: str) -> list[str]:
        own = [s.method for s in self.subjects if s.recipe == recipe]
        return list(dict.fromkeys(own))

    def by_seed(self, measure: str, recipe: str, method: str) -> dict[int, float]:
        """The mean over batches of each seed."""
        found = self.values.get(measure, {})
        return {
            s.seed: float(np.mean(found[s.name]))
            for s in self.subjects
            if (s.recipe, s.method) == (recipe, method) and s.name in found
        }

    def over_batches(self, measure: str, recipe: str, method: str) -> list[float]:
        """The values of the batches of the only seed."""
        (name,) = (s.name for s in self.subjects if (s.recipe, s.method) == (recipe, method))
        return list(self.values[measure][name])

    def between(self, measure: str, recipe: str) -> list[dict[str, Any]]:
        """The pictures of a measure that are between models of a recipe."""
        names = [f"{s.name} → " for s in self.subjects if s.recipe == recipe]
        found = self.values.get(measure, {}).items()
        return [value for name, value in found if name.startswith(tuple(names))]

    def cost(self, measure: str) -> str:
        """In words, for what stands beside a picture."""
        return f"Cost: {self.gradients[measure]:.0f} gradients over these samples for each."

    @property
    def checkpoint(self) -> str:
        """Which models of the runs these are."""
        which = {s.which for s in self.subjects}
        words = {"last": "the last epoch", "best": "the epoch that was best on validation"}
        return " and ".join(words.get(str(w), "the epoch that each run reports") for w in which)


def collected(
    jobs: Sequence[Measurement], settings: SweepSettings, conditions: Conditions, command: str
) -> Found:
    """The results of the jobs that are done."""
    values: dict[str, dict[str, Any]] = {}
    costs: dict[str, list[float]] = {}
    subjects: dict[str, Subject] = {job.subject.name: job.subject for job in jobs}
    for job in jobs:
        result = job.result()
        if result is not None:
            values.setdefault(job.measure, {})[job.name] = result.values
            costs.setdefault(job.measure, []).append(result.gradients)
    told = [field.name for field in fields(MeasuredModel)]
    return Found(
        settings,
        [MeasuredModel(**{n: getattr(s, n) for n in told}) for s in subjects.values()],
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


def flatness_table(found: Found, recipe: str) -> Table:
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
        told = f"{cost:.0f}" if cost >= 1 else f"{cost:.1f}" if cost else "–"
        rows.append(row(MEASURES[name].title, *cells, Cell(told, cost)))
    over = "seeds" if several else "batches"
    batches, size = found.settings.batches, found.settings.batch_size
    note = (
        f"Means with their 95 % interval (Student's t) over {over}; each value is the mean over "
        f"{batches} batches of {size} training samples, of the model of {found.checkpoint}. "
        "Cost: gradients over these samples. "
        f"ρ = {found.settings.rho:g}, adaptive {found.settings.adaptive_rho:g} (l2) and "
        f"{found.settings.linf_rho:g} (l∞), the same for all."
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


def percent_table(found: Found, recipe: str) -> Table | None:
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


def barrier_table(found: Found, recipe: str) -> Table | None:
    """How high the loss rises between models."""
    rows = []
    for path in found.between("path", recipe):
        (first, second), x, loss = path["marks"], path["x"], path["loss"]
        inside = [value for at, value in zip(x, loss, strict=True) if 0 <= at <= 1]
        values = (inside[0], max(inside), inside[-1], path["barrier"])
        rows.append(
            row(f"{first} → {second}", *(Cell(significant(v, math.nan), v) for v in values))
        )
    note = (
        "Training loss on the straight line between two models, BatchNorm's statistics moving with "
        "the weights. The barrier is the largest rise above the straight line between the losses "
        "of the ends (Frankle et al., 2020)."
    )
    columns = ("line", "loss at its start", "highest", "loss at its end", "barrier")
    if not rows:
        return None
    notes = (note, found.cost("path"))
    return Table(f"Loss barriers, {recipe}", columns, tuple(rows), notes)


def _percent(summary: Summary, scale: float) -> Cell:
    mean, margin = 100 * summary.mean / scale, 100 * summary.margin / scale
    own = f"{mean:+.1f}" if math.isnan(margin) else f"{mean:+.1f} ± {margin:.1f}"
    text = f"{own}\u00a0%"  # never on a line of its own
    return Cell(text, mean, unsure=not summary.is_sure)
