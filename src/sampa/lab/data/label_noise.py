"""Wrong labels: drawn at random, or given by people.

Those of people are CIFAR-10N's: what they answered when shown CIFAR-10's training images. J. Wei et
al., "Learning with Noisy Labels Revisited: A Study Using Real-World Human Annotations", ICLR 2022.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from sampa.lab.data.archives import read_zip
from sampa.lab.data.draws import permutation, words
from sampa.lab.data.image_data import require_labels
from sampa.lab.data.places import data_folder, first_of
from sampa.messages import require, unknown

LABEL_FILE = "cifar10n-labels.npz"
IMAGES = 50_000
COLUMNS = {
    "clean": "clean_label",
    "aggre": "aggre_label",
    "worse": "worse_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
}


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


def load_cifar10n(data_dir: str | Path | None) -> dict[str, np.ndarray]:
    """Labels by people for CIFAR-10's training images, in the order of those images.

    Args:
        data_dir: A folder with cifar10n-labels.npz (uint8 arrays named as by the authors), directly
            or under cifar10/. None means SAMPA_DATA_DIR.

    Returns:
        int64 labels under clean, aggre, worse, random1, random2 and random3.

    Raises:
        FileNotFoundError: Saying what was looked for and where to get it.
        ValueError: If the file is damaged.
    """
    folder = data_folder(data_dir)
    source = "CIFAR-10_human.pt of UCSC-REAL/cifar-10-100n, saved with numpy.savez as " + LABEL_FILE
    path = first_of([folder / "cifar10" / LABEL_FILE, folder / LABEL_FILE], "CIFAR-10N", source)
    wanted = {f"{column}.npy": 9 * IMAGES for column in COLUMNS.values()}
    members = read_zip(path, wanted.get)
    return {name: _column(path, column, members) for name, column in COLUMNS.items()}


def _column(path: Path, column: str, members: dict[str, bytes]) -> np.ndarray:
    content = members.get(f"{column}.npy")
    if content is None:
        raise ValueError(f"{path} is incomplete: it has no column {column}")
    try:
        labels = np.load(io.BytesIO(content), allow_pickle=False).astype(np.int64)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is damaged at {column}: {error}") from error
    shape = labels.shape
    require(f"shape of {column} in {path}", shape, shape == (IMAGES,), f"({IMAGES},)")
    require_labels(f"{column} of {path}", labels, 10)
    return labels
