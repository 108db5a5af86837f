"""What runs train on: parts that do not overlap, wrong labels where they belong, exact scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sampa.lab.data.digits import load_digits
from sampa.lab.data.image_data import ImageData
from sampa.lab.training.run import DataSpec, Run
from sampa.lab.training.tasks import ImageTask, load_data, open_task
from tests.lab.training.runs import tiny_run


def task_of(run: Run, *, shard: int = 0, shards: int = 1) -> ImageTask:
    task = open_task(run, None, shard=shard, shards=shards)
    assert isinstance(task, ImageTask)
    return task


@pytest.mark.parametrize("seed", [0, 1])
def test_no_validation_image_is_ever_trained_on(seed: int) -> None:
    task = task_of(tiny_run(seed=seed))
    seen = {
        int(index)
        for epoch in range(10)
        for number in range(len(task.batches))
        for index in task.batches.batch(epoch, number)[2]
    }
    held_back = set(task.splits["validation"][1].tolist())
    assert len(held_back) == 24
    assert len(seen) == 96
    assert not seen & held_back


def test_test_images_are_not_among_the_training_images() -> None:
    train, test = load_data(tiny_run(data=DataSpec("digits")), None)
    assert isinstance(train, ImageData)
    assert isinstance(test, ImageData)
    rows = {image.tobytes() for image in train.pixels(np.arange(len(train)))}
    assert not rows & {image.tobytes() for image in test.pixels(np.arange(len(test)))}


def test_noise_is_in_training_and_validation_labels_alone() -> None:
    run = tiny_run(data=DataSpec("digits", label_noise=0.4))
    task = task_of(run)
    clean, (test, _) = load_digits("train"), task.splits["test"]
    wrong = task.batches.data.labels != clean.labels
    assert wrong.sum() == round(0.4 * len(clean))
    assert wrong[task.splits["validation"][1]].any()
    assert np.array_equal(test.labels, load_digits("test").labels)


def test_every_seed_has_its_own_noise() -> None:
    noisy = DataSpec("digits", label_noise=0.4)
    first, second = (load_data(tiny_run(data=noisy, seed=s), None)[0].labels for s in (0, 1))
    assert not np.array_equal(first, second)


def test_shards_make_up_the_batch() -> None:
    whole = task_of(tiny_run()).batches.batch(1, 2)
    parts = [task_of(tiny_run(), shard=s, shards=2).batches.batch(1, 2) for s in (0, 1)]
    for tensor, first, second in zip(whole, *parts, strict=True):
        assert torch.equal(tensor, torch.cat([first, second]))


class Constant(nn.Module):
    """The same scores for every image."""

    def __init__(self, scores: list[float]) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.tensor(scores))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.scores.expand(len(images), -1)


def test_scores_are_those_of_a_model_that_always_says_the_same() -> None:
    task = task_of(tiny_run(data=DataSpec("digits")))
    scores = [9.0, 8, 7, 6, 5, 0, 0, 0, 0, 0]
    labels = torch.from_numpy(task.splits["test"][0].labels)
    found = task.evaluate(Constant(scores), "test")
    assert found["accuracy"] == pytest.approx(100 * (labels == 0).double().mean().item())
    assert found["top5"] == pytest.approx(100 * (labels < 5).double().mean().item())
    expected = F.cross_entropy(torch.tensor(scores).expand(len(labels), -1), labels).item()
    assert found["loss"] == pytest.approx(expected, rel=1e-6)


def test_labels_are_smoothed_in_training() -> None:
    task = task_of(tiny_run(label_smoothing=0.1))
    batch = task.batches.batch(0, 0)
    model = Constant([5.0] + [0.0] * 9)
    logits = model(batch[0])
    value = task.loss(model, batch).value
    assert value is not None
    expected = F.cross_entropy(logits, batch[1], label_smoothing=0.1)
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)


def test_images_are_upscaled_for_models_that_want_it() -> None:
    task = task_of(tiny_run(data=DataSpec("digits", subset=120, upscale=32)))
    shapes: list[torch.Size] = []

    class Watching(Constant):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            shapes.append(images.shape)
            return super().forward(images)

    task.evaluate(Watching([0.0] * 10), "validation")
    assert shapes == [torch.Size([12, 1, 32, 32])]


def test_unknown_data_are_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match="data must be a known name, got 'cifar1'; did you mean"):
        open_task(tiny_run(data=DataSpec("cifar1")), None, shard=0, shards=1)
