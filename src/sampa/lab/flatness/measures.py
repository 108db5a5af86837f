"""What `sampa flatness` measures: each a function of an opened subject, named as in `kinds`."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from sampa import flatness
from sampa.lab.flatness.settings import SweepSettings
from sampa.lab.flatness.subjects import Opened

L2: dict[str, Any] = {"rho": "adaptive_rho", "adaptive": True}
LINF: dict[str, Any] = {"rho": "linf_rho", "adaptive": True, "p": math.inf}


def _sharpness(opened: Opened, s: SweepSettings, rho: str = "rho", **options: Any) -> Any:
    options = {"m": "batch", "steps": s.steps, "draws": s.draws, "seed": s.seed, **options}
    found = flatness.sharpness(
        opened.model, opened.loss_fn, opened.batches, rho=getattr(s, rho), **options
    )
    return found.values, found.gradients


def _m_sharpness(opened: Opened, s: SweepSettings) -> Any:
    """The mean of each batch over its groups of m samples."""
    found = [
        flatness.sharpness(
            opened.model, opened.loss_fn, [batch], rho=s.rho, m=s.m, steps=s.steps, seed=s.seed
        )
        for batch in opened.batches
    ]
    return [one.value for one in found], sum(one.gradients for one in found) / len(found)


def _of_batches(function: Callable[..., Any], value: Callable[[Any], float], **fixed: Any) -> Any:
    """A measure of curvature, batch by batch."""

    def measure(opened: Opened, s: SweepSettings) -> Any:
        options = {**fixed, "seed": s.seed}
        if function is flatness.hessian_trace:
            options["draws"] = s.draws
        found = [function(opened.model, opened.loss_fn, [b], **options) for b in opened.batches]
        return [value(one) for one in found], sum(one.gradients for one in found) / len(found)

    return measure


def _eigenvalue(matrix: str) -> Any:
    options = {"matrix": matrix, "tolerance": 1e-2, "max_products": 30}
    return _of_batches(flatness.hessian_eigenvalues, lambda found: found.values[0], **options)


def _trace(matrix: str) -> Any:
    return _of_batches(flatness.hessian_trace, lambda found: found.value, matrix=matrix)


def _accuracy(opened: Opened, _s: SweepSettings) -> Any:
    return [opened.accuracy()], 0.0


def _loss(opened: Opened, _s: SweepSettings) -> Any:
    with torch.no_grad():
        losses = [opened.loss_fn(batch).value for batch in opened.batches]
    return [float(loss) for loss in losses if loss is not None], 1 / 3


def _line(opened: Opened, s: SweepSettings) -> Any:
    """The mean over three random filter-normalized lines."""
    found = []
    for number in range(3):
        frame = flatness.random_frame(opened.model, dimensions=1, span=s.span, seed=s.seed + number)
        found.append(
            flatness.landscape(opened.model, opened.loss_fn, opened.batches, frame, points=s.points)
        )
    losses = torch.stack([one.losses for one in found]).mean(0)
    cost = sum(one.gradients for one in found)
    return {"x": found[0].axes[0].tolist(), "loss": losses.tolist()}, cost


def _plane(opened: Opened, s: SweepSettings, kind: str) -> Any:
    if kind == "random":
        frame = flatness.random_frame(opened.model, span=s.span, seed=s.seed)
    else:
        frame = flatness.eigenvector_frame(
            opened.model,
            opened.loss_fn,
            opened.batches,
            span=10 * s.rho,
            max_products=30,
            seed=s.seed,
        )
    found = flatness.landscape(opened.model, opened.loss_fn, opened.batches, frame, points=s.points)
    x, y = (axis.tolist() for axis in found.axes)
    return {"x": x, "y": y, "loss": found.losses.tolist()}, found.gradients


def _between(opened: Opened, s: SweepSettings) -> Any:
    """The line between two models, with its loss barrier; or the plane through three."""
    frame = flatness.through(opened.model, opened.ends)
    found = flatness.landscape(opened.model, opened.loss_fn, opened.batches, frame, points=s.points)
    told: dict[str, Any] = {
        **dict(zip("xy", (axis.tolist() for axis in found.axes), strict=False)),
        "loss": found.losses.tolist(),
        "marks": {name: list(place) for name, place in found.marks.items()},
    }
    if frame.dimensions == 1:
        told["barrier"] = found.barrier
    return told, found.gradients


def _density(opened: Opened, s: SweepSettings) -> Any:
    found = flatness.spectral_density(
        opened.model, opened.loss_fn, opened.batches, products=s.products, seed=s.seed
    )
    return {"nodes": found.nodes.tolist(), "weights": found.weights.tolist()}, found.gradients


MEASURED_BY: dict[str, Callable[[Opened, SweepSettings], Any]] = {
    "accuracy": _accuracy,
    "loss": _loss,
    "sharpness": _sharpness,
    "average": partial(_sharpness, kind="average"),
    "m-sharpness": _m_sharpness,
    "adaptive-l2": partial(_sharpness, **L2),
    "adaptive-linf": partial(_sharpness, **LINF),
    "adaptive-l2-logits": partial(_sharpness, **L2, normalize_logits=True),
    "adaptive-linf-logits": partial(_sharpness, **LINF, normalize_logits=True),
    "eigenvalue": _eigenvalue("hessian"),
    "trace": _trace("hessian"),
    "gn-eigenvalue": _eigenvalue("gauss-newton"),
    "gn-trace": _trace("gauss-newton"),
    "line": _line,
    "plane": partial(_plane, kind="random"),
    "eigenplane": partial(_plane, kind="eigenvectors"),
    "density": _density,
    "path": _between,
    "triangle": _between,
}
"""By the names of `kinds.MEASURES`: a value for each batch or a picture's lists, and the cost."""
