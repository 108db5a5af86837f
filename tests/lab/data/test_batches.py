"""Image batches: pure functions of (seed, epoch, number), normalized, cropped and mirrored."""

from __future__ import annotations

import doctest
import hashlib
import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from sampa.lab.data import batches as batches_module
from sampa.lab.data import plans as plans_module
from sampa.lab.data.batches import ImageBatch, ImageBatches
from sampa.lab.data.digits import load_digits
from sampa.lab.data.draws import epoch_order, epoch_words
from sampa.lab.data.image_data import ImageData
from sampa.lab.data.plans import Sequential, Shuffled
from tests.lab.data.test_image_data import slow_crop_and_flip

TRAIN = np.arange(3, 50)


def make(
    data: ImageData,
    *,
    batch_size: int = 12,
    seed: int = 5,
    augment: bool = True,
    shard: int = 0,
    shards: int = 1,
) -> ImageBatches:
    plan = Shuffled(TRAIN, batch_size, seed, shard, shards)
    return ImageBatches(data, plan, seed if augment else None)


def same(a: ImageBatch, b: ImageBatch) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def forget_orders() -> None:
    epoch_order.cache_clear()
    epoch_words.cache_clear()


def test_random_access_equals_going_through(random_images: ImageData) -> None:
    places = [(epoch, number) for epoch in range(3) for number in range(3)]
    through = {place: make(random_images).batch(*place) for place in places}
    for place in reversed(places):
        forget_orders()
        assert same(make(random_images).batch(*place), through[place])


def test_a_resumed_process_sees_the_same_batch() -> None:
    code = (
        "import hashlib, numpy as np\n"
        "from sampa.lab.data.batches import ImageBatches\n"
        "from sampa.lab.data.digits import load_digits\n"
        "from sampa.lab.data.plans import Shuffled\n"
        "plan = Shuffled(np.arange(len(load_digits())), 64, seed=3)\n"
        "batch = ImageBatches(load_digits(), plan, augment_seed=3).batch(4, 7)\n"
        "content = b''.join(tensor.numpy().tobytes() for tensor in batch)\n"
        "print(hashlib.sha256(content).hexdigest())\n"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    plan = Shuffled(np.arange(len(load_digits())), 64, seed=3)
    batches = ImageBatches(load_digits(), plan, augment_seed=3)
    through = [batches.batch(epoch, n) for epoch in range(5) for n in range(len(batches))]
    batch = through[4 * len(batches) + 7]
    content = b"".join(tensor.numpy().tobytes() for tensor in batch)
    assert other.stdout.strip() == hashlib.sha256(content).hexdigest()


def test_a_batch_asked_for_twice_is_the_same(random_images: ImageData) -> None:
    batches = make(random_images)
    assert same(batches.batch(1, 1), batches.batch(1, 1))


def test_changing_a_batch_does_not_change_the_next_one(random_images: ImageData) -> None:
    batches = make(random_images)
    expected = [tensor.clone() for tensor in batches.batch(0, 0)]
    for tensor in batches.batch(0, 0):
        tensor.zero_()
    assert same(batches.batch(0, 0), (expected[0], expected[1], expected[2]))


@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_the_union_of_the_shards_is_the_serial_batch(shards: int, random_images: ImageData) -> None:
    parts = [make(random_images, shard=s, shards=shards).batch(2, 1) for s in range(shards)]
    union = tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
    assert same((union[0], union[1], union[2]), make(random_images).batch(2, 1))


def test_seed_and_epoch_change_the_order(random_images: ImageData) -> None:
    orders = {
        tuple(make(random_images, seed=seed).batch(epoch, 0)[2].tolist())
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 4


def test_augmentation_does_not_depend_on_the_batch_size(random_images: ImageData) -> None:
    def by_index(size: int) -> dict[int, torch.Tensor]:
        batches = make(random_images, batch_size=size)
        found = (batches.batch(1, number) for number in range(len(batches)))
        return {int(i): x for images, _, index in found for i, x in zip(index, images, strict=True)}

    small, large = by_index(5), by_index(47)
    assert all(torch.equal(small[i], large[i]) for i in small)


def test_augmentation_changes_with_the_epoch(random_images: ImageData) -> None:
    batches = make(random_images, batch_size=47)
    first, second = (batches.batch(epoch, 0) for epoch in (0, 1))
    a, b = (images[index.argsort()] for images, _, index in (first, second))
    assert not torch.equal(a, b)


def test_a_batch_equals_plain_loops(random_images: ImageData) -> None:
    images, labels, index = make(random_images).batch(3, 2)
    words = epoch_words(len(random_images), 5, 3).tolist()
    for image, label, i in zip(images, labels.tolist(), index.tolist(), strict=True):
        top, left, mirrored = words[i] % 9, words[i] // 9 % 9, bool(words[i] >> 63)
        pixels = slow_crop_and_flip(random_images.images[i], 4, top, left, mirrored)
        for c in range(3):
            mean, std = (
                np.float32(255 * random_images.mean[c]),
                np.float32(255 * random_images.std[c]),
            )
            expected = (pixels[c].astype(np.float32) - mean) / std
            assert np.array_equal(image[c].numpy(), expected)
        assert label == random_images.labels[i]


def test_without_augmentation_images_are_as_they_are(random_images: ImageData) -> None:
    images, _, index = make(random_images, augment=False).batch(0, 0)
    scale = (
        torch.tensor([[0.5], [0.4], [0.3]]).mul(255),
        torch.tensor([[0.2], [0.25], [0.3]]).mul(255),
    )
    raw = torch.from_numpy(random_images.images[index.numpy()]).float().flatten(2)
    assert torch.equal(images.flatten(2), (raw - scale[0]) / scale[1])


def test_batches_have_the_types_that_models_take(random_images: ImageData) -> None:
    images, labels, index = make(random_images).batch(0, 0)
    assert (images.dtype, labels.dtype, index.dtype) == (torch.float32, torch.int64, torch.int64)
    assert images.is_contiguous()


def test_only_the_given_samples_are_used(random_images: ImageData) -> None:
    batches = make(random_images, batch_size=47)
    assert sorted(batches.batch(0, 0)[2].tolist()) == TRAIN.tolist()


def test_other_labels_leave_order_and_images_alone(random_images: ImageData) -> None:
    other = replace(random_images, labels=(random_images.labels + 1) % 5)
    a, b = make(random_images).batch(0, 0), make(other).batch(0, 0)
    assert torch.equal(a[0], b[0])
    assert torch.equal((a[1] + 1) % 5, b[1])


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_evaluation_sees_every_sample_once(shards: int, random_images: ImageData) -> None:
    plans = [Sequential(TRAIN, 10, shard, shards) for shard in range(shards)]
    parts = [ImageBatches(random_images, plan) for plan in plans]
    index = torch.cat([index for part in parts for _, _, index in part])
    assert sorted(index.tolist()) == TRAIN.tolist()


def test_an_evaluation_batch_is_the_same_in_every_epoch(random_images: ImageData) -> None:
    batches = ImageBatches(random_images, Sequential(np.arange(len(random_images)), 10))
    assert same(batches.batch(0, 2), batches.batch(9, 2))


def test_an_evaluation_batch_is_not_augmented(random_images: ImageData) -> None:
    images, _, index = ImageBatches(random_images, Sequential(TRAIN, 47)).batch(0, 0)
    plain, _, order = make(random_images, batch_size=47, augment=False).batch(0, 0)
    assert index.tolist() == TRAIN.tolist()
    assert torch.equal(images, plain[order.argsort()])


def test_samples_that_do_not_exist_are_refused(random_images: ImageData) -> None:
    with pytest.raises(ValueError, match=r"indices must be in \[0, \d+\), got 1000"):
        ImageBatches(random_images, Sequential(np.array([0, 1000]), 2))


@pytest.mark.parametrize("module", [batches_module, plans_module])
def test_the_examples_in_docstrings_hold(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
