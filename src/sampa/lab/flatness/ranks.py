"""Does a measure of flatness go with test accuracy? Rank correlations over models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from sampa.lab.flatness.kinds import MEASURES, NUMBERS
from sampa.lab.flatness.outcome import SCORE, Found
from sampa.lab.results.table import ABSENT, Cell, Table, row

PERMUTATIONS = 20_000  # of the test of a rank correlation
CHUNKS = 50  # they are taken in, so that memory stays small
FEWEST = 5  # models, from which on a correlation is worth a word


@dataclass(frozen=True)
class Correlation:
    """How a measure goes with test accuracy, by ranks.

    Attributes:
        tau: Kendall's τ: −1 if the lower (flatter) is always better, 1 if the higher is.
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
            return "not significant"
        return f"{'lower' if self.tau < 0 else 'higher'} goes with better accuracy"


def correlation(values: Sequence[float], scores: Sequence[float]) -> Correlation:
    """Kendall's τ with its permutation test (a fixed seed: the same numbers every time)."""
    return _correlation(tuple(values), tuple(scores))


@cache  # tables and sentences of a page ask for the same ones
def _correlation(values: tuple[float, ...], scores: tuple[float, ...]) -> Correlation:
    n = len(values)
    if n < 2 or any(map(math.isnan, (*values, *scores))):
        return Correlation(math.nan, n, math.nan)
    first, second = np.triu_indices(n, 1)
    a, b = _signs(values), _signs(scores)[first, second]
    found = int(a[first, second] @ b)
    sums = [
        a[order[:, first], order[:, second]] @ b for order in np.array_split(_orders(n), CHUNKS)
    ]
    hits = sum(int((abs(each) >= abs(found)).sum()) for each in sums)
    return Correlation(found / len(b), n, (hits + 1) / (PERMUTATIONS + 1))


def _signs(of: Sequence[float]) -> np.ndarray:
    """Of all differences; whole numbers, so that sums of them are exact in any order."""
    array = np.asarray(of, dtype=float)
    above = (array[:, None] > array[None, :]).astype(np.int32)
    return above - above.T


@cache  # every measure of as many models has the same
def _orders(n: int) -> np.ndarray:
    random = np.random.default_rng(0)
    return np.array([random.permutation(n) for _ in range(PERMUTATIONS)])


def correlations(found: Found, recipe: str) -> dict[str, Correlation]:
    """Of every measure with test accuracy, over all models of a recipe."""
    own = [s.name for s in found.subjects if s.recipe == recipe]
    scores = found.values.get(SCORE, {})
    result: dict[str, Correlation] = {}
    for name in (n for n in NUMBERS if n in found.values and n != SCORE):
        both = [s for s in own if s in found.values[name] and s in scores]
        values = [float(np.mean(found.values[name][s])) for s in both]
        result[name] = correlation(values, [float(np.mean(scores[s])) for s in both])
    return result


def correlation_table(found: Found, recipes: Sequence[str] | None = None) -> Table | None:
    """Which measure goes with test accuracy, for some recipes or all."""
    by_recipe = {r: correlations(found, r) for r in recipes or found.recipes}
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
            text = f"{one.tau:+.2f} (p = {one.p:.2g}, n = {one.n})"
            cells += [Cell(text, one.tau), Cell(one.verdict)]
        rows.append(row(MEASURES[name].title, *cells))
    columns = [c for r in told for c in (f"τ, {r}", "in words")]
    note = (
        "Kendall's τ between the measure and test accuracy over all models of a recipe, methods "
        "and seeds together, with the p-value of a permutation test and the number of models; "
        "negative where the flatter models are the better ones. One test for each line, none "
        "corrected for their number; models of one method are not independent of each other."
    )
    return Table("Does it go with test accuracy?", ("measure", *columns), tuple(rows), (note,))
