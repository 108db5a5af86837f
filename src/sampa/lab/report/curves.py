"""What a run wrote each epoch, as charts; only what can be compared stands in one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sampa.lab.report.captions import curve_note, noisy_validation, seen_by
from sampa.lab.report.groups import Recipe, Variant
from sampa.lab.results.charts import EXTREMES, Chart, Line, over_seeds
from sampa.lab.training.session import FLATNESS_RHO

AT_WEIGHTS = {
    "Sharpness at the weights": (
        "flatness_sharpness",
        f"Worst-case rise of the training loss within ρ = {FLATNESS_RHO:g} of x_t, the same ρ and "
        "samples for all methods, whatever they train with.",
    ),
    "Largest curvature at the weights": (
        "flatness_eigenvalue",
        "Top eigenvalue of the Hessian of the training loss at x_t, on the same samples for all "
        "methods.",
    ),
}
"""What `sampa train --flatness-every` measures: by the chart's title, its name and note."""


def curves(recipe: Recipe) -> list[Chart]:
    """What was written each epoch; one epoch is no curve."""
    variants, noise = recipe.variants, noisy_validation(recipe)
    validation = f"Validation {recipe.metric}{', noisy labels' if noise else ''}"
    words = f"{EXTREMES} {noise}".rstrip()
    measured = [
        _chart(title, name, variants, f"{note} {EXTREMES}")
        for title, (name, note) in AT_WEIGHTS.items()
    ]
    # The gap of each method's own step would be read as the sharpness that was measured.
    gap = [] if any(measured) else [_noted("Sharpness gap of the step", "sharpness", variants)]
    return list(
        filter(
            None,
            [
                _chart(validation, f"validation_{recipe.metric}", variants, words),
                _noted("Training loss", "train_loss", variants),
                *measured,
                *gap,
                *_cosines(variants),
            ],
        )
    )


def _cosines(variants: Sequence[Variant]) -> list[Chart | None]:
    """Gradients of one batch are far more alike than those of two: never in one picture."""
    kinds: dict[str, list[Variant]] = {}
    for variant in variants:
        kinds.setdefault(seen_by(variant).batches, []).append(variant)
    return [
        _noted(f"Cosine of the gradients, {kind}", "cosine", own) for kind, own in kinds.items()
    ]


def _noted(title: str, name: str, variants: Sequence[Variant]) -> Chart | None:
    return _chart(title, name, variants, curve_note(name, variants))


def _chart(title: str, name: str, variants: Sequence[Variant], note: str) -> Chart | None:
    lines = [line for v in variants if (line := _curve(v, name))]
    if not any(len(line.x) > 1 for line in lines):
        return None
    return Chart(f"curve-{name}", title, "epoch", "", lines, note, legend=False)


def _curve(variant: Variant, name: str) -> Line | None:
    """The curves of a variant's seeds as one; an epoch counts the seeds that came to it."""
    found = [run.curves.get(name, {}) for run in variant.runs]
    epochs = sorted({epoch for curve in found for epoch in curve})
    values = [[curve[e] for curve in found if e in curve] for e in epochs]
    line = over_seeds(variant.label, [float(e) for e in epochs], values, variant.look)
    return line if any(map(math.isfinite, line.y)) else None
