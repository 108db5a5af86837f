"""A sweep: hyper-parameters on a grid, judged on validation data, and which of them is best."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TypeVar

from sampa.lab.results.outcome import Entry, RunResult, compared
from sampa.lab.results.table import Cell, Table, difference, mean, number_cell, row

LIMITS = {"rho": (0.0, math.inf), "lam": (0.0, 1.0)}  # there is nothing to try beyond

Key = TypeVar("Key")
Point = dict[str, float]
"""Hyper-parameters by name."""


def highest_mean(scores: Mapping[Key, Sequence[float]]) -> Key:
    """What has the highest mean score, the first of equals."""
    return max(scores, key=lambda key: statistics.fmean(scores[key]))


def points_of(grid: Mapping[str, Sequence[float]]) -> list[Point]:
    """Every combination of values, the last name's changing fastest; no values leave a name out."""
    named = {name: list(dict.fromkeys(values)) for name, values in grid.items() if values}
    return [dict(zip(named, values, strict=True)) for values in product(*named.values())]


def in_words(point: Point) -> str:
    """Such as `rho 0.1, lam 0.2`."""
    return ", ".join(f"{name} {value:g}" for name, value in point.items())


@dataclass(frozen=True)
class Tried:
    """A point of the grid, and what its runs came to.

    Attributes:
        results: Of those that are done, by seed.
        diverged: The seeds of those whose loss left all bounds.
    """

    point: Point
    results: dict[int, RunResult]
    diverged: tuple[int, ...] = field(default=())

    @property
    def scores(self) -> dict[int, float]:
        """On validation data, by seed; what diverged is worse than anything."""
        found = {seed: result.best_validation for seed, result in self.results.items()}
        found |= dict.fromkeys(self.diverged, -math.inf)
        return {seed: s if math.isfinite(s) else -math.inf for seed, s in found.items()}

    @property
    def entry(self) -> Entry:
        return Entry("validation", in_words(self.point), self.scores)


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """The point with the highest mean score; None if something diverged at every one."""
    chosen = tried[highest_mean({i: list(t.scores.values()) for i, t in enumerate(tried)})]
    return chosen if all(map(math.isfinite, chosen.scores.values())) else None


def at_edge(best: Point, grid: Mapping[str, Sequence[float]]) -> list[str]:
    """A sentence for each hyper-parameter whose best value is the last one tried to one side."""
    said: list[str] = []
    for name, value in best.items():
        low, high = min(grid[name]), max(grid[name])
        lowest, highest = LIMITS[name]
        if low == high or value not in (low, high) or value in (lowest, highest):
            continue
        side, factor = ("smallest", 0.5) if value == low else ("largest", 2.0)
        further = sorted(min(value * factor**i, highest) for i in range(3))
        values = ",".join(f"{v:g}" for v in dict.fromkeys(further))
        said.append(
            f"the best {name} is the {side} that was tried: look further, --{name} {values}"
        )
    return said


def sweep_table(title: str, metric: str, tried: Sequence[Tried], notes: Sequence[str]) -> Table:
    """Every point with its validation score, and its difference to the best."""
    started = [t for t in tried if t.scores]
    best = best_of(started) if started else None
    rows = [
        row(
            *(number_cell(value, "g") for value in t.point.values()),
            *(len(t.scores), _score(t), _gap(t, best), "best" if t is best else ""),
        )
        for t in tried
    ]
    columns = (*tried[0].point, "n", f"validation {metric}", "against best ± 95 %", "")
    about = "The best validation score of a run, mean ± standard deviation over seeds."
    if any(t.diverged for t in tried):
        about += " What diverged counts as worst."
    return Table(title, columns, tuple(rows), (about, *notes))


def _score(tried: Tried) -> Cell:
    if tried.diverged:
        of = f" ({len(tried.diverged)} of {len(tried.scores)})" if tried.results else ""
        return Cell(f"diverged{of}", -math.inf)
    return mean(tried.entry.ours) if tried.scores else Cell("not done")


def _gap(tried: Tried, best: Tried | None) -> Cell:
    if best is None or tried.diverged or not tried.scores:
        return difference(None)
    found = compared(tried.entry, best.entry)
    return difference(None if found is None else found.ours)
