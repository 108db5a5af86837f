"""Wrong labels: drawn at random, or given by people."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sampa.lab.data.cifar10n import load_cifar10n
from sampa.lab.data.draws import permutation, words
from sampa.lab.data.image_data import require_labels
from sampa.messages import require, unknown


def symmetric_noise(
    labels: np.ndarray, classes: int, share: float, seed: int, *, same_class: bool = False
) -> np.ndarray:
    """Labels of which a share is replaced by a class drawn uniformly.

    Two conventions are in use. Here a replaced label is one of the *other* classes, so that exactly
    round(share · N) labels are wrong. With `same_class` it is any class, as in part of the
    literature: then a share · (K - 1) / K is wrong on average.

    Sample i's fate depends on (seed, i) and the number of samples alone: not on the labels of
    others, nor on what was drawn before. The labels replaced at a share are also replaced at every
    larger one, by the same classes.

    Args:
        labels: int64 labels in [0, classes).
        classes: Number of classes, K.
        share: Share to replace, in [0, 1].
        seed: Of the noise.
        same_class: Draw from all classes, the right one included.
    """
    require("share", share, 0 <= share <= 1, "in [0, 1]")
    require("classes", classes, classes >= 2, ">= 2")
    require_labels("labels", labels, classes)
    n = len(labels)
    replaced = permutation(n, seed, "which labels")[: round(share * n)]
    choices = classes if same_class else classes - 1
    drawn = (words(n, seed, "new labels") % np.uint64(choices)).astype(np.int64)
    anew = drawn if same_class else (labels + 1 + drawn) % classes
    noisy = labels.copy()
    noisy[replaced] = anew[replaced]
    return noisy


def human_labels(clean: np.ndarray, name: str, data_dir: str | Path | None) -> np.ndarray:
    """CIFAR-10N's labels by name, for CIFAR-10's training images.

    Args:
        clean: The images' own labels; they tell whether the order is the same.
        name: aggre, worse, random1, random2, random3 or clean.
        data_dir: Where the data sets are; None means SAMPA_DATA_DIR.

    Raises:
        ValueError: If the name is not known, or the images are not those that people labeled.
    """
    columns = load_cifar10n(data_dir)
    if name not in columns:
        raise ValueError(unknown("human labels", name, columns))
    if not np.array_equal(columns["clean"], clean):
        raise ValueError(
            "human labels must meet CIFAR-10's 50,000 training images in their original order, "
            f"got {len(clean)} images with other labels; choose labels before taking a subset"
        )
    return columns[name]
