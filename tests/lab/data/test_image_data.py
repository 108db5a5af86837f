"""Whole image sets: checks, statistics, smaller images, fewer images, crops and flips."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sampa.lab.data.image_data import (
    ImageData,
    channel_statistics,
    crop_and_flip,
    resize,
    subset,
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((50, 3, 8, 8), np.float32)}, "images.dtype must be uint8"),
        ({"images": np.zeros((50, 8, 8), np.uint8)}, r"images.shape must be \(N, C, H, W\)"),
        ({"labels": np.zeros(50, np.int32)}, "labels.dtype must be int64"),
        ({"labels": np.zeros(49, np.int64)}, r"labels.shape must be \(50,\)"),
        ({"labels": np.full(50, 5)}, r"labels must be in \[0, 5\), got 5"),
        ({"labels": np.full(50, -1)}, r"labels must be in \[0, 5\), got -1"),
        ({"mean": (0.5,)}, "lengths of mean and std must be 3 each"),
    ],
)
def test_data_that_does_not_fit_together_is_refused(
    change: dict[str, Any], message: str, random_images: ImageData
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(random_images, **change)


def test_mean_and_std_of_two_values_are_exact() -> None:
    images = np.zeros((2000, 2, 4, 4), np.uint8)
    images[1000:, 0] = 255
    assert channel_statistics(images) == ((0.5, 0.0), (0.5, 0.0))


def test_statistics_do_not_depend_on_the_order_of_the_images(random_images: ImageData) -> None:
    images = random_images.images
    assert channel_statistics(images) == channel_statistics(images[::-1])


def test_resizing_takes_the_mean_of_squares_and_rounds_halves_up() -> None:
    block = np.array([[0, 1, 255, 255], [0, 1, 255, 255], [1, 0, 10, 11], [0, 0, 12, 13]], np.uint8)
    data = ImageData(np.zeros(1, np.int64), ("a",), (0.5,), (0.5,), block[None, None])
    assert resize(data, 2).images.tolist() == [[[[1, 255], [0, 12]]]]


def test_resizing_equals_plain_loops(random_images: ImageData) -> None:
    images = random_images.images
    slow = np.zeros((50, 3, 4, 4), np.uint8)
    for n, c, y, x in np.ndindex(*slow.shape):
        square = [int(images[n, c, 2 * y + a, 2 * x + b]) for a in (0, 1) for b in (0, 1)]
        slow[n, c, y, x] = int(sum(square) / 4 + 0.5)
    assert np.array_equal(resize(random_images, 4).images, slow)


def test_resizing_to_the_same_size_changes_nothing(random_images: ImageData) -> None:
    same = resize(random_images, 8)
    assert np.array_equal(same.images, random_images.images)
    assert same.padding == random_images.padding


def test_resizing_keeps_normalization_and_shrinks_the_padding(random_images: ImageData) -> None:
    small = resize(random_images, 4)
    assert (small.mean, small.std) == (random_images.mean, random_images.std)
    assert (random_images.padding, small.padding) == (4, 2)


@pytest.mark.parametrize("size", [0, 3, 16])
def test_a_size_that_does_not_divide_is_refused(size: int, random_images: ImageData) -> None:
    with pytest.raises(ValueError, match=f"size must be a divisor of the images' side.*{size}"):
        resize(random_images, size)


def test_a_subset_keeps_the_shares_of_the_classes() -> None:
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    data = ImageData(labels, tuple("abc"), (0.5,), (0.5,), np.zeros((1000, 1, 1, 1), np.uint8))
    assert np.bincount(subset(data, 55, seed=0).labels).tolist() == [33, 17, 5]


def test_a_subset_has_exactly_the_number_asked_for(random_images: ImageData) -> None:
    assert [len(subset(random_images, n, seed=0)) for n in range(1, 51)] == list(range(1, 51))


def test_a_subset_of_everything_changes_nothing(random_images: ImageData) -> None:
    assert np.array_equal(subset(random_images, 50, seed=3).images, random_images.images)


def test_a_subset_is_a_function_of_its_seed(random_images: ImageData) -> None:
    a, again, b = (subset(random_images, 20, seed=seed).images for seed in (0, 0, 1))
    assert np.array_equal(a, again)
    assert not np.array_equal(a, b)


def test_a_subset_keeps_images_with_their_labels(random_images: ImageData) -> None:
    pairs = zip(random_images.images, random_images.labels, strict=True)
    known = {i.tobytes(): label for i, label in pairs}
    few = subset(random_images, 20, seed=0)
    assert [known[i.tobytes()] for i in few.images] == few.labels.tolist()


@pytest.mark.parametrize("n", [0, 51])
def test_a_subset_of_an_impossible_size_is_refused(n: int, random_images: ImageData) -> None:
    with pytest.raises(ValueError, match="n must be between 1 and the 50 samples"):
        subset(random_images, n, seed=0)


def slow_crop_and_flip(
    image: np.ndarray, padding: int, top: int, left: int, mirrored: bool
) -> np.ndarray:
    """One image, pixel by pixel."""
    c, h, w = image.shape
    out = np.zeros_like(image)
    for k, y, x in np.ndindex(c, h, w):
        column = w - 1 - x if mirrored else x
        row, column = y + top - padding, column + left - padding
        if 0 <= row < h and 0 <= column < w:
            out[k, y, x] = image[k, row, column]
    return out


def test_crops_and_flips_equal_plain_loops(random_images: ImageData) -> None:
    random = np.random.default_rng(1)
    top, left = random.integers(0, 9, (2, 50))
    mirrored = random.integers(0, 2, 50).astype(bool)
    fast = crop_and_flip(random_images.images, 4, top, left, mirrored)
    for i, image in enumerate(random_images.images):
        slow = slow_crop_and_flip(image, 4, top[i], left[i], mirrored[i])
        assert np.array_equal(fast[i], slow)


def test_the_middle_crop_changes_nothing(random_images: ImageData) -> None:
    middle, never = np.full(50, 4), np.zeros(50, bool)
    images = random_images.images
    assert np.array_equal(crop_and_flip(images, 4, middle, middle, never), images)


def test_cropping_leaves_the_data_alone(random_images: ImageData) -> None:
    before = random_images.images.copy()
    random_images.augmented(np.arange(50), np.arange(50, dtype=np.uint64) << np.uint64(58))
    assert np.array_equal(random_images.images, before)


def test_every_place_and_both_directions_occur_equally_often(random_images: ImageData) -> None:
    words = np.arange(81, dtype=np.uint64)
    words = np.concatenate([words, words | np.uint64(1 << 63)])
    # 2^63 mod 81 only shifts the places around, so each of the 162 outcomes occurs once.
    marker = np.arange(1, 65, dtype=np.uint8).reshape(1, 1, 8, 8).repeat(162, 0)
    data = ImageData(np.zeros(162, np.int64), ("a",), (0.5,), (0.5,), marker)
    outcomes = {image.tobytes() for image in data.augmented(np.arange(162), words)}
    assert len(outcomes) == 162


def test_data_that_must_not_be_mirrored_never_is() -> None:
    marker = np.arange(1, 65, dtype=np.uint8).reshape(1, 1, 8, 8)
    data = ImageData(np.zeros(1, np.int64), ("a",), (0.5,), (0.5,), marker, padding=0, flips=False)
    word = np.array([1 << 63], np.uint64)
    assert np.array_equal(data.augmented(np.zeros(1, np.int64), word), marker)
