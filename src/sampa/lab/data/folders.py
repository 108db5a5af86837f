"""Images of the user's own in a folder: a folder a class, as torchvision's ImageFolder wants it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, Self, TypeVar

import numpy as np

from sampa.lab.data.draws import permutation
from sampa.lab.data.image_files import (
    SIZE,
    ImageFiles,
    image_tree,
    require_same_classes,
    subfolders,
)

TEST_NAMES = ("test", "val", "valid", "validation")  # what test samples may be called, best first
TEST_SHARE = 0.2  # held out where the user has made no test part


class Parted(Protocol):
    """Samples of which some can be taken."""

    def __len__(self) -> int: ...

    def take(self, index: np.ndarray) -> Self: ...


AnyParted = TypeVar("AnyParted", bound=Parted)


def load_folder(folder: Path, size: int | None = None) -> tuple[ImageFiles, ImageFiles]:
    """Training and test images.

    Args:
        folder: With train/<class>/* and test/<class>/* (or val, valid, validation), or with
            <class>/* alone: then a fifth is held out for testing, always the same.
        size: Side of the images seen; None means 224.

    Raises:
        ValueError: If it has no class folders, or the two parts differ in them.
    """
    names, side = subfolders(folder), SIZE if size is None else size
    test = next((name for name in TEST_NAMES if name in names), None)
    if "train" not in names:
        return held_out(image_tree(folder, side))
    if test is None:
        return held_out(image_tree(folder / "train", side))
    require_same_classes(folder / "train", folder / test)
    return image_tree(folder / "train", side), image_tree(folder / test, side)


def held_out(samples: AnyParted) -> tuple[AnyParted, AnyParted]:
    """A part for training and one for testing, a pure function of the number of samples."""
    order = permutation(len(samples), 0, "test")
    cut = len(samples) - int(TEST_SHARE * len(samples))
    return samples.take(np.sort(order[:cut])), samples.take(np.sort(order[cut:]))
