"""The kinds of measures: names, costs, and of which models. Nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Kind:
    """A measure of flatness, without the function that measures it.

    Attributes:
        title: Its name in tables.
        cost: In gradients over all samples, in words.
        is_picture: Whether its values are a dictionary of lists, not one number for each batch.
        of: Each model; the first of each method, which is the one that is shown; lines from the
            first method to each other; or the plane through the first three.
    """

    title: str
    cost: str
    is_picture: bool = False
    of: Literal["each", "first", "pairs", "triple"] = "each"


MEASURES = {
    "accuracy": Kind("test accuracy", "none"),
    "loss": Kind("training loss", "⅓"),
    "sharpness": Kind("worst-case sharpness", "steps + ⅓"),
    "average": Kind("average sharpness", "(draws + 1) / 3"),
    "m-sharpness": Kind("m-sharpness", "steps + ⅓"),
    "adaptive-l2": Kind("adaptive sharpness, l2", "steps + ⅓"),
    "adaptive-linf": Kind("adaptive sharpness, l∞", "steps + ⅓"),
    "adaptive-l2-logits": Kind("adaptive sharpness, l2, normalized logits", "steps + ⅓"),
    "adaptive-linf-logits": Kind("adaptive sharpness, l∞, normalized logits", "steps + ⅓"),
    "eigenvalue": Kind("top eigenvalue, Hessian", "2 a product, ≤ 60"),
    "trace": Kind("trace, Hessian", "2 · draws"),
    "gn-eigenvalue": Kind("top eigenvalue, Gauss-Newton", "2 a product, ≤ 60"),
    "gn-trace": Kind("trace, Gauss-Newton", "2 · draws"),
    "line": Kind("random lines", "points", is_picture=True),
    "plane": Kind("random plane", "points² / 3", is_picture=True, of="first"),
    "eigenplane": Kind(
        "plane of the two top eigenvectors", "points² / 3 + ≤ 60", is_picture=True, of="first"
    ),
    "density": Kind("spectral density", "2 · products", is_picture=True, of="first"),
    "path": Kind("line between two models", "points / 3", is_picture=True, of="pairs"),
    "triangle": Kind("plane through three models", "points² / 3", is_picture=True, of="triple"),
}
"""By the name that --measures takes."""
NUMBERS = tuple(name for name, kind in MEASURES.items() if not kind.is_picture)
PICTURES = tuple(name for name, kind in MEASURES.items() if kind.is_picture)
