"""GLUE's metrics: values by hand, and agreement with other implementations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor

from sampa.lab.data.glue import TASKS
from sampa.lab.data.metrics import (
    METRICS,
    accuracy,
    f1,
    glue_metrics,
    matthews,
    pearson,
    predictions,
    spearman,
)

Metric = Callable[[Tensor, Tensor], float]

# 3 true positives, 1 false positive, 2 false negatives, 4 true negatives.
PREDICTED = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
LABELS = torch.tensor([1, 1, 1, 0, 1, 1, 0, 0, 0, 0])


def test_accuracy_by_hand() -> None:
    assert accuracy(PREDICTED, LABELS) == 7 / 10


def test_f1_by_hand() -> None:
    assert f1(PREDICTED, LABELS) == 6 / 9


def test_matthews_by_hand() -> None:
    assert matthews(PREDICTED, LABELS) == (3 * 4 - 1 * 2) / math.sqrt(4 * 5 * 5 * 6)


def test_pearson_by_hand() -> None:
    assert pearson(torch.tensor([1.0, 2, 3, 4]), torch.tensor([1.0, 3, 2, 4])) == 0.8


def test_spearman_looks_at_ranks_only() -> None:
    assert spearman(torch.tensor([1.0, 20, 300, 4000]), torch.tensor([1.0, 3, 2, 4])) == 0.8


def test_equal_values_share_their_ranks() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 · 5).
    found = spearman(torch.tensor([1.0, 2, 2, 9]), torch.tensor([1.0, 2, 3, 4]))
    assert found == 4.5 / math.sqrt(4.5 * 5)


@pytest.mark.parametrize("metric", [pearson, spearman])
def test_a_perfect_correlation_is_exactly_one(metric: Metric) -> None:
    values = torch.tensor([0.1, 0.7, 0.2, 0.9, 0.4])
    assert metric(values, values) == 1
    assert metric(values, -values) == -1


@pytest.mark.parametrize("constant", [0, 1])
def test_the_matthews_correlation_of_a_constant_is_zero(constant: int) -> None:
    assert matthews(torch.full_like(LABELS, constant), LABELS) == 0


def test_f1_is_zero_where_nothing_is_positive() -> None:
    assert f1(torch.zeros(3).long(), torch.zeros(3).long()) == 0


@pytest.mark.parametrize("metric", [pearson, spearman])
@pytest.mark.parametrize("values", [[1.0, 1.0, 1.0], [1.0, math.nan, 2.0], [1.0, math.inf, 2.0]])
def test_a_correlation_that_is_not_defined_is_nan(metric: Metric, values: list[float]) -> None:
    assert math.isnan(metric(torch.tensor(values), torch.tensor([1.0, 2.0, 3.0])))


def random_pair(seed: int, classes: int | None) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if classes is None:  # scores with ties
        a, b = (torch.randint(0, 26, (500,), generator=generator) / 5 for _ in range(2))
        return a + b, b
    a, b = (torch.randint(0, classes, (500,), generator=generator) for _ in range(2))
    return a, b


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlations_agree_with_scipy(name: str) -> None:
    theirs: Any = {"pearson": pearsonr, "spearman": spearmanr}[name]
    for seed in range(5):
        a, b = random_pair(seed, None)
        # Both in double precision, by another order of operations.
        expected = theirs(a.double().numpy(), b.double().numpy()).statistic
        assert abs(METRICS[name](a, b) - expected) < 1e-14


def test_metrics_of_classes_agree_with_their_counts() -> None:
    for seed in range(5):
        a, b = (values.bool() for values in random_pair(seed, 2))
        pairs = (a & b, a & ~b, ~a & b, ~a & ~b)
        tp, fp, fn, tn = (int(pair.sum()) for pair in pairs)
        root = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
        expected = ((tp + tn) / 500, 2 * tp / (2 * tp + fp + fn), (tp * tn - fp * fn) / root)
        found = [metric(a.long(), b.long()) for metric in (accuracy, f1, matthews)]
        assert found == pytest.approx(expected, abs=1e-15, rel=0)


def test_outputs_become_classes() -> None:
    outputs = torch.tensor([[0.1, 0.9, 0.0], [2.0, 1.0, 0.0]])
    assert predictions(TASKS["MNLI"], outputs).tolist() == [1, 0]


def test_outputs_become_scores() -> None:
    assert predictions(TASKS["STS-B"], torch.tensor([[1.5], [2.5]])).tolist() == [1.5, 2.5]


def test_outputs_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"outputs.shape must be \(N, 3\), got \(2, 2\)"):
        predictions(TASKS["MNLI"], torch.zeros(2, 2))


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_its_metrics(task: str) -> None:
    kind = torch.tensor([0.0, 1.0, 1.0, 2.0] if TASKS[task].is_regression else [0, 1, 1, 0])
    assert glue_metrics(TASKS[task], kind, kind) == dict.fromkeys(TASKS[task].metrics, 1.0)


def test_predictions_of_another_number_are_refused() -> None:
    with pytest.raises(ValueError, match=r"predicted.shape must be that of labels"):
        glue_metrics(TASKS["RTE"], torch.zeros(2).long(), torch.zeros(3).long())
