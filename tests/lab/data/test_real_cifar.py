"""The real CIFAR-10, CIFAR-10N and CIFAR-100, as published."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from sampa.lab.data.cifar import load_cifar
from sampa.lab.data.image_data import ImageData, resize
from sampa.lab.data.label_noise import human_labels, load_cifar10n
from tests.marks import rest_is_slow

Cifar = dict[str, ImageData]

DIFFERENT_LABELS = {"aggre": 9.01, "worse": 40.21, "random1": 17.23, "random2": 18.12,
                    "random3": 17.64}  # fmt: skip


@pytest.fixture(scope="session")
def cifar10n(cifar10: Cifar, real_data: Path) -> dict[str, np.ndarray]:
    return load_cifar10n(real_data)


@pytest.mark.parametrize("split", rest_is_slow(["train", "test"], "test"))
def test_rewritten_as_official_batches_the_files_have_the_published_md5s(
    split: str, cifar10: Cifar, real_data: Path
) -> None:
    packed = real_data / "cifar10" / f"cifar10-{split}.zip"
    if not packed.is_file():
        pytest.skip("needs CIFAR-10 as packed strips, whose meta.json has the MD5s")
    with zipfile.ZipFile(packed) as archive:
        published = json.loads(archive.read("meta.json"))["official_binary_batch_md5"]
    data = cifar10[split]
    flat = data.images.reshape(len(data), -1)
    records = np.concatenate([data.labels[:, None].astype(np.uint8), flat], axis=1)
    batches = np.split(records, len(published))
    assert [hashlib.md5(batch.tobytes()).hexdigest() for batch in batches] == published


def test_the_training_mean_is_the_published_one(cifar10: Cifar) -> None:
    mean = [round(255 * value, 3) for value in cifar10["train"].mean]
    assert mean == [125.307, 122.950, 113.865]


def test_the_training_std_is_the_published_one(cifar10: Cifar) -> None:
    std = [round(255 * value, 3) for value in cifar10["train"].std]
    assert std == [62.993, 62.089, 66.705]


def test_test_images_are_normalized_like_training_images(cifar10: Cifar) -> None:
    train, test = cifar10["train"], cifar10["test"]
    assert (test.mean, test.std) == (train.mean, train.std)


@pytest.mark.parametrize(("split", "per_class"), [("train", 5000), ("test", 1000)])
def test_classes_are_balanced(split: str, per_class: int, cifar10: Cifar) -> None:
    assert np.bincount(cifar10[split].labels).tolist() == [per_class] * 10


def test_the_classes_have_their_names(cifar10: Cifar) -> None:
    names = "airplane automobile bird cat deer dog frog horse ship truck"
    assert cifar10["train"].classes == tuple(names.split())


def test_halving_the_side_keeps_the_mean_within_the_rounding(cifar10: Cifar) -> None:
    small = resize(cifar10["test"], 16)
    full = cifar10["test"].images.mean((0, 2, 3))
    # Halves are rounded up, by 1/8 on average: 1/4 of sums end in 2 (+1/2), 1 and 3 cancel.
    assert np.abs(small.images.mean((0, 2, 3)) - full).max() < 0.25


def test_human_labels_start_from_the_clean_ones(
    cifar10: Cifar, cifar10n: dict[str, np.ndarray]
) -> None:
    assert np.array_equal(cifar10n["clean"], cifar10["train"].labels)


@pytest.mark.parametrize("name", DIFFERENT_LABELS)
def test_human_labels_differ_in_the_published_share(
    name: str, cifar10n: dict[str, np.ndarray]
) -> None:
    share = 100 * np.mean(cifar10n[name] != cifar10n["clean"])
    assert round(share, 2) == DIFFERENT_LABELS[name]


def test_human_labels_are_found_by_name(
    cifar10: Cifar, real_data: Path, cifar10n: dict[str, np.ndarray]
) -> None:
    found = human_labels(cifar10["train"].labels, "worse", real_data)
    assert np.array_equal(found, cifar10n["worse"])


def test_human_labels_are_refused_for_other_images(
    cifar10: Cifar, real_data: Path, cifar10n: dict[str, np.ndarray]
) -> None:
    with pytest.raises(ValueError, match="before taking a subset"):
        human_labels(cifar10["train"].labels[:100], "worse", real_data)


def test_unknown_human_labels_are_answered_with_the_nearest(
    cifar10: Cifar, real_data: Path, cifar10n: dict[str, np.ndarray]
) -> None:
    with pytest.raises(ValueError, match="did you mean 'worse'"):
        human_labels(cifar10["train"].labels, "worst", real_data)


@pytest.fixture(scope="module")
def cifar100(real_data: Path) -> Cifar:
    try:
        return {split: load_cifar(real_data, 100, split) for split in ("train", "test")}
    except FileNotFoundError:
        pytest.skip("needs CIFAR-100 in SAMPA_DATA_DIR")


@pytest.mark.slow
def test_cifar100_has_the_published_statistics_and_balanced_classes(cifar100: Cifar) -> None:
    train, test = cifar100["train"], cifar100["test"]
    assert [round(255 * value, 3) for value in train.mean] == [129.304, 124.070, 112.434]
    assert [round(255 * value, 3) for value in train.std] == [68.170, 65.392, 70.418]
    assert np.bincount(train.labels).tolist() == [500] * 100
    assert np.bincount(test.labels).tolist() == [100] * 100
    assert (train.classes[0], train.classes[-1]) == ("apple", "worm")
