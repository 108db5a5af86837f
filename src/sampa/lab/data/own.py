"""Data of the user's own: what a function of theirs returns, made into samples for training."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from sampa.lab.data.glue import TextData
from sampa.lab.data.image_data import ImageSamples, require_labels
from sampa.lab.named import called, load_code


@dataclass(frozen=True)
class DatasetSamples(ImageSamples):
    """A data set in torch's sense: `dataset[i]` is an input and a class.

    What it draws at random (a crop, noise) is a pure function of the seed, the epoch and the
    sample: the generators of Python, NumPy and torch are seeded before each, and put back.

    Attributes:
        dataset: The user's.
        rows: Where each sample is in it.
        name: What messages call it.
    """

    seeds_generators: ClassVar[bool] = True

    dataset: Any
    rows: np.ndarray
    name: str

    @property
    def channels(self) -> int | None:
        first = self._input(0, 0)
        return len(first) if first.ndim == 3 else None

    def inputs(self, index: np.ndarray, words: np.ndarray | None) -> Tensor:
        with generators_kept():
            seeds = index if words is None else words
            return torch.stack([self._input(i, w) for i, w in zip(index, seeds, strict=True)])

    def take(self, index: np.ndarray) -> DatasetSamples:
        return replace(self, rows=self.rows[index], labels=self.labels[index])

    def _input(self, i: int, word: int) -> Tensor:
        row = int(self.rows[i])
        seed_generators(int(word) % 2**32)
        return _sample(self.dataset, row, self.name)[0]


@contextmanager
def generators_kept() -> Iterator[None]:
    """Put the generators back after something has seeded them."""
    python, numpy, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_state)


def seed_generators(seed: int) -> None:
    """The generators of the CPU: a data set has no business on another device."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def _sample(dataset: Any, row: int, name: str) -> tuple[Tensor, int]:
    found = called(dataset.__getitem__, f"sample {row} of {name}", row)
    is_pair = isinstance(found, tuple | list) and len(found) == 2
    if not is_pair or not isinstance(found[0], Tensor):
        got = [type(part).__name__ for part in found] if is_pair else type(found).__name__
        raise ValueError(
            f"sample {row} of {name} must be a pair of a tensor and a class, got {got}; turn the "
            "input into a tensor in the data set (its transform)"
        )
    return found[0], int(found[1])


OwnData = ImageSamples | TextData


def load_own(name: str, data_dir: Path | None) -> tuple[OwnData, OwnData]:
    """Training and test samples from the function that the user named.

    It is called with the data folder if it takes an argument, and returns two of the same kind:
    torch data sets of (tensor, class), our `Images`, or `TextData`.

    Raises:
        ValueError: If it returns something else.
    """
    function = load_code(name, "data")
    takes_folder = bool(inspect.signature(function).parameters)
    found = called(function, name, *([data_dir] if takes_folder else []))
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise ValueError(f"{name} must return two data sets, (train, test), got {_shown(found)}")
    train, test = (_as_samples(part, name) for part in found)
    if isinstance(train, DatasetSamples) and isinstance(test, DatasetSamples):
        classes = max(train.classes, test.classes, key=len)  # counted, or the user's names
        train, test = replace(train, classes=classes), replace(test, classes=classes)
    for part in (train, test):
        require_labels(f"labels of {name}", part.labels, len(train.classes))
    return train, test


def _as_samples(part: Any, name: str) -> OwnData:
    if isinstance(part, ImageSamples | TextData):
        return part
    if not isinstance(part, Dataset) or not hasattr(part, "__len__"):
        raise ValueError(
            f"{name} must return data sets of torch with a length (or sampa's Images or TextData), "
            f"got {_shown(part)}"
        )
    length = len(part)  # pyright: ignore[reportArgumentType]
    known = getattr(part, "targets", getattr(part, "labels", None))
    if known is None:
        with generators_kept():
            known = [_sample(part, row, name)[1] for row in range(length)]
    labels = np.asarray(known, np.int64)
    names = getattr(part, "classes", None) or range(labels.max(initial=-1) + 1)
    return DatasetSamples(labels, tuple(map(str, names)), part, np.arange(length), name)


def _shown(found: Any) -> str:
    kinds = [type(part).__name__ for part in found] if isinstance(found, tuple | list) else None
    return type(found).__name__ if kinds is None else f"{type(found).__name__} of {kinds}"
