"""Pictures of what a sweep found, as data: lines, densities, planes, measures against accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sampa.lab.files import as_file_name
from sampa.lab.flatness.kinds import MEASURES
from sampa.lab.flatness.outcome import SCORE, Found
from sampa.lab.flatness.ranks import FEWEST
from sampa.lab.results.charts import Chart, Line, over_seeds
from sampa.lab.results.heat_map import HeatMap


def charts(found: Found, recipe: str) -> list[Chart]:
    """Lines, densities, and measures against accuracy."""
    return [
        *filter(None, [draw(found, recipe) for draw in (_line_chart, _path_chart, _density_chart)]),
        *(_scatter(found, recipe, name) for name in _scattered(found, recipe)),
    ]


def _pictures(found: Found, measure: str, recipe: str, method: str) -> list[dict[str, Any]]:
    own = found.values.get(measure, {})
    return [
        own[s.name]
        for s in found.subjects
        if (s.recipe, s.method) == (recipe, method) and s.name in own
    ]


def _line_chart(found: Found, recipe: str) -> Chart | None:
    lines = []
    for number, method in enumerate(found.methods(recipe)):
        pictures = _pictures(found, "line", recipe, method)
        if pictures:
            values = list(zip(*(p["loss"] for p in pictures), strict=True))
            lines.append(over_seeds(method, pictures[0]["x"], values, number))
    note = (
        "Training loss along random filter-normalized directions (the mean of three, the same for "
        "all models); 0 is the trained model. Mean over seeds, the band from lowest to highest. "
    )
    title = f"Loss along random lines, {recipe}"
    axes = ("distance, in units of each filter's norm", "loss")
    if not lines:
        return None
    note += found.cost("line")
    return Chart(as_file_name(f"line-{recipe}"), title, *axes, lines, note, log_y=_is_wide(lines))


def _path_chart(found: Found, recipe: str) -> Chart | None:
    methods = found.methods(recipe)
    lines: list[Line] = []
    for path in found.between("path", recipe):
        start, end = path["marks"]
        look = methods.index(end) if end in methods else None
        lines.append(Line(f"{start} → {end}", path["x"], path["loss"], look=look))
    note = (
        "Training loss on the straight lines between models: 0 is the first, 1 the second. One "
        "model of each method. "
    )
    title, axes = f"Loss between models, {recipe}", ("share of the way", "loss")
    if not lines:
        return None
    note += found.cost("path")
    return Chart(as_file_name(f"path-{recipe}"), title, *axes, lines, note, log_y=_is_wide(lines))


def _is_wide(lines: Sequence[Line]) -> bool:
    """Whether the values need a logarithmic axis, which has few labels where they are near."""
    values = [v for line in lines for v in line.y if math.isfinite(v)]
    return bool(values) and min(values) > 0 and max(values) > 20 * min(values)


def _density_chart(found: Found, recipe: str) -> Chart | None:
    pictures = {m: _pictures(found, "density", recipe, m) for m in found.methods(recipe)}
    shown = {m: p[0] for m, p in pictures.items() if p}
    if not shown:
        return None
    nodes = [n for p in shown.values() for start in p["nodes"] for n in start]
    low, high = min(nodes), max(nodes)
    width = (high - low) / 100
    grid = np.linspace(low - 3 * width, high + 3 * width, 240)
    lines = []
    for method, p in shown.items():
        density = np.maximum(widened(p["nodes"], p["weights"], grid, width), 1e-7)
        look = found.methods(recipe).index(method)
        lines.append(Line(method, grid.tolist(), density.tolist(), look=look))
    note = (
        "Density of the Hessian's eigenvalues by stochastic Lanczos quadrature, one model of each "
        f"method, widened by {width:.2g}; below 1e-7 it is cut off. {found.cost('density')}"
    )
    title = f"Spectral density, {recipe}"
    axes = ("eigenvalue", "density")
    return Chart(as_file_name(f"density-{recipe}"), title, *axes, lines, note, log_y=True)


def widened(
    nodes: Sequence[Sequence[float]],
    weights: Sequence[Sequence[float]],
    at: np.ndarray,
    width: float,
) -> np.ndarray:
    """`sampa.flatness.Density.at` without torch, which a report does not wait for."""
    distances = (at[:, None] - np.concatenate(nodes)) / width
    bells = np.exp(-0.5 * distances**2) / (width * math.sqrt(2 * math.pi))
    return bells @ np.concatenate(weights) / len(weights)


def _scattered(found: Found, recipe: str) -> list[str]:
    wanted = ("sharpness", "adaptive-linf-logits", "eigenvalue")
    several = sum(s.recipe == recipe for s in found.subjects) >= FEWEST
    return [n for n in wanted if n in found.values and SCORE in found.values and several]


def _scatter(found: Found, recipe: str, name: str) -> Chart:
    lines = []
    for number, method in enumerate(found.methods(recipe)):
        x, y = (found.by_seed(n, recipe, method) for n in (name, SCORE))
        seeds = sorted(x.keys() & y.keys())
        if seeds:
            lines.append(Line(method, [x[s] for s in seeds], [y[s] for s in seeds], look=number))
    title = MEASURES[name].title
    return Chart(
        as_file_name(f"scatter-{name}-{recipe}"),
        f"Test accuracy against {title}, {recipe}",
        title,
        "test accuracy",
        lines,
        "Small marks are models, large marks the means of a method.",
        kind="points",
    )


def planes(found: Found, recipe: str, measure: str) -> list[HeatMap]:
    """The first model of each method on the plane of a kind; or the plane through several."""
    maps = [
        HeatMap("", p["x"], p["y"], p["loss"], {k: (x, y) for k, (x, y) in p["marks"].items()})
        for p in found.between(measure, recipe)
    ]
    for method in found.methods(recipe):
        pictures = _pictures(found, measure, recipe, method)
        if pictures:
            p = pictures[0]
            maps.append(HeatMap(method, p["x"], p["y"], p["loss"]))
    return maps
