"""GLUE's metrics, of all predictions and labels at once, in double precision.

Nothing is averaged over batches: F1 and correlations of batches do not add up to those of a set.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
from torch import Tensor

from sampa.lab.data.glue import GlueTask
from sampa.messages import require


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    """The share of right classes."""
    return float(accuracy_score(labels.numpy(), predicted.numpy()))


def f1(predicted: Tensor, labels: Tensor) -> float:
    """F1 of class 1; 0 where it neither occurs nor is predicted."""
    return float(f1_score(labels.numpy(), predicted.numpy(), zero_division=0))  # pyright: ignore[reportArgumentType]


def matthews(predicted: Tensor, labels: Tensor) -> float:
    """The correlation of two binary variables (Matthews); 0 where one of them is constant."""
    return float(matthews_corrcoef(labels.numpy(), predicted.numpy()))


def pearson(predicted: Tensor, labels: Tensor) -> float:
    """The correlation of two variables; NaN where one is constant or not finite."""
    return _correlation(predicted.double().numpy(), labels.double().numpy())


def spearman(predicted: Tensor, labels: Tensor) -> float:
    """The correlation of the ranks, ties sharing theirs; NaN where `pearson` is."""
    if not (predicted.isfinite().all() and labels.isfinite().all()):
        return math.nan
    return _correlation(rankdata(predicted.numpy()), rankdata(labels.numpy()))


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    # One root of the product: equal scores correlate by exactly 1, and by 1 - 2e-16 in scipy's
    # pearsonr, which also warns of constant ones.
    if np.ptp(x) == 0 or np.ptp(y) == 0 or not np.isfinite(x.sum() + y.sum()):
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip((x @ y) / math.sqrt((x @ x) * (y @ y)), -1, 1))


METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
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
