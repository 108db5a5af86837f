"""Batches of images, each a pure function of (seed, epoch, number)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from sampa.lab.data.draws import epoch_words
from sampa.lab.data.image_data import Images
from sampa.lab.data.plans import Sequential, Shuffled, checked_indices

ImageBatch = tuple[Tensor, Tensor, Tensor]
"""Normalized images (float32), labels (int64), and the samples' indices in the data (int64)."""


class Batches(Protocol):
    """What a training loop needs of its data: any batch, at any time, in any order."""

    def __len__(self) -> int:
        """Batches per epoch."""
        ...

    def batch(self, epoch: int, number: int) -> Any:
        """A batch; the same arguments always give the same bits."""
        ...


class ImageBatches:
    """Training batches of images.

    The order of an epoch is a permutation from (seed, epoch). Augmentation is a pure function of
    (seed, epoch, index): it does not depend on the batch size, nor on which samples are used.

    Args:
        data: Images.
        indices: Which of them to train on; None for all.
        batch_size: Of the batch that all shards make up together. An incomplete last batch of an
            epoch is left out.
        seed: Of orders and augmentation.
        augment: Whether to crop and mirror at random, in the way of the data set.
        shard: Which part of each batch is ours.
        shards: Into how many contiguous parts each batch is cut.

    Example:
        >>> from sampa.lab.data.images import load_digits
        >>> batches = ImageBatches(load_digits(), None, 64, seed=0, augment=True)
        >>> images, labels, index = batches.batch(epoch=0, number=3)
        >>> images.shape
        torch.Size([64, 1, 8, 8])
    """

    def __init__(
        self,
        data: Images,
        indices: np.ndarray | None,
        batch_size: int,
        seed: int,
        augment: bool,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        self.data, self.seed, self.augment = data, seed, augment
        indices = checked_indices(indices, len(data))
        self.plan = Shuffled(indices, batch_size, seed, shard, shards)
        self._normalize = Normalize(data.mean, data.std)

    def __len__(self) -> int:
        return len(self.plan)

    def batch(self, epoch: int, number: int) -> ImageBatch:
        """This shard's part of a batch of an epoch."""
        index = self.plan.part(epoch, number)
        if self.augment:
            words = epoch_words(len(self.data), self.seed, epoch)[index]
            pixels = self.data.augmented(index, words)
        else:
            pixels = self.data.pixels(index)
        return _as_tensors(self._normalize(pixels), self.data.labels[index], index)


class EvalBatches:
    """Every sample once, in order, as it is; the last batch may be short.

    With D shards, shard s has the batches s, s + D, ... of the whole.

    Args:
        data: Images.
        indices: Which of them to look at; None for all.
        batch_size: Samples in a batch.
        shard: Whose turn is ours.
        shards: How many take turns.

    Example:
        >>> from sampa.lab.data.images import load_digits
        >>> sum(len(labels) for _, labels, _ in EvalBatches(load_digits("test"), None, 100))
        359
    """

    def __init__(
        self,
        data: Images,
        indices: np.ndarray | None,
        batch_size: int,
        shard: int = 0,
        shards: int = 1,
    ) -> None:
        self.data = data
        self.plan = Sequential(checked_indices(indices, len(data)), batch_size, shard, shards)
        self._normalize = Normalize(data.mean, data.std)

    def __len__(self) -> int:
        return len(self.plan)

    def batch(self, epoch: int, number: int) -> ImageBatch:
        """This shard's batch of that number, the same in every epoch."""
        index = self.plan.part(epoch, number)
        return _as_tensors(self._normalize(self.data.pixels(index)), self.data.labels[index], index)

    def __iter__(self) -> Iterator[ImageBatch]:
        return (self.batch(0, number) for number in range(len(self)))


class Normalize:
    """Pixels 0 ... 255 as (x - mean) / std, in float32: (x - 255 mean) / (255 std).

    A subtraction and a division, each rounded once: the bits do not depend on the batch's shape.
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        self._mean = (255 * torch.tensor(mean, dtype=torch.float64)).float().view(1, -1, 1, 1)
        self._std = (255 * torch.tensor(std, dtype=torch.float64)).float().view(1, -1, 1, 1)

    def __call__(self, pixels: np.ndarray) -> Tensor:
        return torch.from_numpy(pixels).float().sub_(self._mean).div_(self._std)


def _as_tensors(images: Tensor, labels: np.ndarray, index: np.ndarray) -> ImageBatch:
    return images, torch.from_numpy(labels), torch.from_numpy(index.copy())
