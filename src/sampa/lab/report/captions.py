"""Captions: ρ, point and batch of curves that stand side by side, and the labels of validation.

Methods do not evaluate the same thing: SAM's clean point is x_t, on the batch of the step; SAMPa's
is its lookahead, on the batch that it holds. Curves of both may be compared by those who know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sampa.lab.report.groups import Recipe, Variant
from sampa.lab.results.charts import EXTREMES
from sampa.lab.training.hyperparameters import given_options, known_method
from sampa.lab.training.run import Run
from sampa.lab.training.variants import is_number


@dataclass(frozen=True)
class EvaluatedAt:
    """Where a method evaluates what its curves show.

    Attributes:
        loss: The point of the training loss.
        clean: The point and batch that the sharpness gap is taken to.
        gradients: The points and batches of a step's first and last gradient.
        batches: How many batches these are of.
    """

    loss: str
    clean: str
    gradients: str
    batches: str


ONE_BATCH = EvaluatedAt("x_t", "x_t, incoming batch", "both on the incoming batch", "one batch")
TWO_BATCHES = EvaluatedAt(
    loss="x_t",
    clean="x_{t−1}, held batch",
    gradients="one on the held batch, one on the incoming one",
    batches="two batches",
)
LOOKAHEAD = EvaluatedAt(
    loss="the lookahead y_{t+1}",
    clean="y_t, the lookahead of the step before, held batch",
    gradients="at x̃_t on the held batch, at y_{t+1} on the incoming one",
    batches="two batches",
)
STRANGE = "a method that is not in the catalog"
UNKNOWN = EvaluatedAt(STRANGE, STRANGE, STRANGE, "unknown batches")

CURVES: dict[str, tuple[str, Callable[[EvaluatedAt], str]]] = {
    "train_loss": (
        f"{EXTREMES} Incoming batches, at the clean point if a method sees one.",
        lambda seen: seen.loss,
    ),
    "sharpness": (
        "Loss at the perturbed point minus that at the clean point, last step of each epoch. "
        "Compare a method with itself alone: ρ and the clean point are its own. `sampa train "
        "--flatness-every` measures what can be compared.",
        lambda seen: seen.clean,
    ),
    "cosine": (
        "Between the first and the last gradient of a step, last step of each epoch. Those of two "
        "batches differ by the samples too.",
        lambda seen: seen.gradients,
    ),
}


def seen_by(variant: Variant) -> EvaluatedAt:
    """What a variant's method evaluates."""
    run = variant.runs[0].run
    try:
        method = known_method(run.method)
        given_options(run, method.hyperparameters, total_steps=0)
        holds_batch = _holds_batch(run) if method.holds_batch is None else method.holds_batch
    except ValueError:  # a method of another version, or of the user's own
        return UNKNOWN
    if not holds_batch:
        return ONE_BATCH
    return LOOKAHEAD if "sampa" in variant.method else TWO_BATCHES


def _holds_batch(run: Run) -> bool:
    """Whether a method keeps a batch, where its hyper-parameters decide: it is built to know."""
    from sampa.lab.training.method import checked_method  # torch takes longer than all the rest

    return checked_method(run).holds_batch


def curve_note(name: str, variants: Sequence[Variant]) -> str:
    """The caption of a curve, for those variants that have it."""
    words, getter = CURVES[name]
    return f"{words} {_where(variants, name, getter)}."


def _where(variants: Sequence[Variant], curve: str, of: Callable[[EvaluatedAt], str]) -> str:
    """The variants that have a curve, by what it is of."""
    found: dict[str, list[str]] = {}
    for variant in variants:
        if any(run.curves.get(curve) for run in variant.runs):
            found.setdefault(of(seen_by(variant)), []).append(with_rho(variant))
    return "; ".join(f"{', '.join(labels)}: {where}" for where, labels in found.items())


def rho_of(variant: Variant) -> str:
    """ρ = 0.05; empty for a method without one."""
    rho = variant.hyperparameters.get("rho")
    return f"ρ = {rho:g}" if is_number(rho) else ""


def with_rho(variant: Variant) -> str:
    """A variant's label and its ρ, unless the label has it."""
    rho = "" if "rho=" in variant.label else rho_of(variant)
    return f"{variant.label} ({rho})" if rho else variant.label


def noisy_validation(recipe: Recipe) -> str:
    """Which labels the validation samples have, if not all of them are right; else empty."""
    return next(filter(None, (run.run.data.noise_in_words() for run in recipe.runs)), "")
