"""Series: from recipes to what charts draw, and to words for those who do not see them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sampa.lab.report.groups import Recipe, Variant, family, is_number, shared_settings
from sampa.lab.report.records import Curve, flat
from sampa.lab.report.summarize import duration, scores, signs
from sampa.lab.training.tables import spread


@dataclass(frozen=True)
class Band:
    """A variant's curve: the mean over seeds, and the lowest and highest of them."""

    label: str
    style: int
    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class Cloud:
    """A variant's runs as points, seconds against the test metric, and their mean."""

    label: str
    style: int
    points: list[tuple[float, float]]
    center: tuple[float, float]


@dataclass(frozen=True)
class Sweep:
    """A method over its λ: mean and standard deviation of the test metric.

    Attributes:
        method: The method, with the settings that all points share.
        std: 0 where there is one seed only.
        reference: The baseline's mean, if it is none of the points.
    """

    method: str
    style: int
    lams: list[float]
    mean: list[float]
    std: list[float]
    reference: float | None


# ---- curves ----------------------------------------------------------------------------------


def bands(recipe: Recipe, name: str) -> list[Band]:
    """A curve by epoch for each variant that has it."""
    found = [band(v, [r.curves.get(name, {}) for r in v.records]) for v in recipe.variants]
    return [b for b in found if any(map(math.isfinite, b.mean))]


def band(variant: Variant, curves: Sequence[Curve]) -> Band:
    """The curves of a variant's seeds as one; an epoch counts the seeds that came to it."""
    epochs = sorted({epoch for curve in curves for epoch in curve})
    values = [[curve[e] for curve in curves if e in curve] for e in epochs]
    return Band(
        variant.label,
        variant.style,
        [float(e) for e in epochs],
        [statistics.fmean(v) for v in values],
        [_unless_nan(min, v) for v in values],
        [_unless_nan(max, v) for v in values],
    )


def describe_bands(found: Sequence[Band]) -> str:
    """The curves in words."""
    parts = [f"{b.label}: {number(b.mean[0])} to {number(b.mean[-1])}" for b in found]
    return f"Mean over seeds, from first to last epoch. {'; '.join(parts)}."


# ---- time and λ ------------------------------------------------------------------------------


def clouds(recipe: Recipe) -> list[Cloud]:
    """What each variant reaches, and how long it takes."""
    found: list[Cloud] = []
    for variant in recipe.variants:
        points = [(r.seconds, r.test[recipe.metric]) for r in variant.records]
        center = statistics.fmean(p[0] for p in points), statistics.fmean(p[1] for p in points)
        found.append(Cloud(variant.label, variant.style, points, center))
    return found


def describe_clouds(found: Sequence[Cloud]) -> str:
    parts = [f"{c.label}: {number(c.center[1])} in {duration(c.center[0])} seconds" for c in found]
    return f"Means over seeds. {'; '.join(parts)}."


def sweeps(recipe: Recipe) -> list[Sweep]:
    """The variants that differ in λ only, for each method where there are two or more."""
    families: dict[tuple[tuple[str, str], ...], list[Variant]] = {}
    for variant in recipe.variants:
        if is_number(variant.hyperparameters.get("lam")):
            families.setdefault(_all_but_lam(variant), []).append(variant)
    return [_sweep(recipe, v) for v in families.values() if len({lam(x) for x in v}) > 1]


def lam(variant: Variant) -> float:
    value = variant.hyperparameters.get("lam")
    assert is_number(value)
    return float(value)


def describe_sweep(found: Sweep) -> str:
    pairs = zip(found.lams, found.mean, strict=True)
    return "; ".join(f"λ = {lam:g}: {number(mean)}" for lam, mean in pairs) + "."


def _sweep(recipe: Recipe, variants: Sequence[Variant]) -> Sweep:
    by_lam: dict[float, list[float]] = {}
    for variant in sorted(variants, key=lam):
        tests = [record.test[recipe.metric] for record in variant.records]
        by_lam.setdefault(lam(variant), []).extend(tests)
    spreads = [spread(values) for values in by_lam.values()]
    apart = recipe.baseline not in variants
    return Sweep(
        method=family(variants[0].method),
        style=variants[0].style,
        lams=list(by_lam),
        mean=[s.mean for s in spreads],
        std=[s.std if s.n > 1 else 0.0 for s in spreads],
        reference=scores(recipe, recipe.baseline).mean if apart else None,
    )


def _all_but_lam(variant: Variant) -> tuple[tuple[str, str], ...]:
    """Everything that decides a variant's result, besides λ and the seed."""
    settings = shared_settings(variant.records[0].run)
    options = {k: v for k, v in variant.hyperparameters.items() if k != "lam"}
    method = {"method": family(variant.method), "options": options}
    return tuple({**settings, **flat(method)}.items())


def number(value: float) -> str:
    """Four digits are enough for reading aloud."""
    return signs(f"{value:.4g}")


def _unless_nan(choose: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    """The smallest or largest; NaN if any of them is, whatever their order."""
    return math.nan if any(map(math.isnan, values)) else choose(values)
