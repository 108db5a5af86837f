"""GLUE's metrics, as pure functions of all predictions and labels, in double precision.

Nothing is averaged over batches: F1 and correlations of batches do not add up to those of a set.

Written out here, not taken from torchmetrics: where all predictions are of one class, as in the
first epochs on CoLA, its 1.9.0 gives a Matthews correlation other than 0 (0.41 for 1, 1, 1 against
1, 0, 1), where GLUE's is 0. The tests compare the two on all other inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sampa.lab.data.glue import GlueTask
from sampa.messages import require

Metric = Callable[[Tensor, Tensor], float]


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    """The share of right classes."""
    return int((predicted == labels).sum()) / len(labels)


def f1(predicted: Tensor, labels: Tensor) -> float:
    """F1 of class 1; 0 where it neither occurs nor is predicted."""
    right, wrong, missed, _ = _outcomes(predicted, labels)
    return 2 * right / (2 * right + wrong + missed) if right else 0.0


def matthews(predicted: Tensor, labels: Tensor) -> float:
    """The correlation of two binary variables (Matthews); 0 where one of them is constant."""
    tp, fp, fn, tn = _outcomes(predicted, labels)
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return (tp * tn - fp * fn) / math.sqrt(product) if product else 0.0


def pearson(predicted: Tensor, labels: Tensor) -> float:
    """The correlation of two variables; NaN where one is constant or not finite."""
    x, y = (v.double() - v.double().mean() for v in (predicted, labels))
    if _is_constant(predicted) or _is_constant(labels):
        return math.nan
    return ((x @ y) / ((x @ x) * (y @ y)).sqrt()).clamp(-1, 1).item()


def spearman(predicted: Tensor, labels: Tensor) -> float:
    """The correlation of the ranks, ties sharing theirs; NaN where `pearson` is."""
    finite = bool(predicted.isfinite().all() and labels.isfinite().all())
    return pearson(_ranks(predicted), _ranks(labels)) if finite else math.nan


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def predictions(task: GlueTask, outputs: Tensor) -> Tensor:
    """A model's outputs, (N, num_labels), as classes or as scores, (N,)."""
    right = outputs.ndim == 2 and outputs.shape[1] == task.num_labels
    require("outputs.shape", tuple(outputs.shape), right, f"(N, {task.num_labels})")
    return outputs[:, 0] if task.is_regression else outputs.argmax(1)


def glue_metrics(task: GlueTask, predicted: Tensor, labels: Tensor) -> dict[str, float]:
    """Every metric of a task, by name, between -1 and 1.

    Args:
        task: The task.
        predicted: Classes or scores for all samples, (N,).
        labels: The right ones.
    """
    same = predicted.shape == labels.shape and predicted.ndim == 1 and len(predicted) > 0
    require("predicted.shape", tuple(predicted.shape), same, f"that of labels, {labels.shape}")
    return {name: METRICS[name](predicted, labels) for name in task.metrics}


def _outcomes(predicted: Tensor, labels: Tensor) -> tuple[int, int, int, int]:
    """How many are true positives, false positives, false negatives, true negatives."""
    said, so = predicted.bool(), labels.bool()
    pairs = ((said & so), (said & ~so), (~said & so), (~said & ~so))
    tp, fp, fn, tn = (int(pair.sum()) for pair in pairs)
    return tp, fp, fn, tn


def _ranks(values: Tensor) -> Tensor:
    """1 for the least value, n for the greatest; equal values share the mean of their ranks."""
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts.double() - 1) / 2)[place]


def _is_constant(values: Tensor) -> bool:
    return bool(torch.all(values == values[0]))
