"""Batches of images, each a pure function of (seed, epoch, number)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sampa.lab.data.draws import epoch_words
from sampa.lab.data.image_data import ImageSamples
from sampa.lab.data.plans import BatchPlan, require_indices

ImageBatch = tuple[Tensor, Tensor, Tensor]
"""Normalized images (float32), labels (int64), and the samples' indices in the data (int64)."""


@dataclass(frozen=True)
class ImageBatches:
    """Batches of images, in the order of a plan.

    Attributes:
        data: Images, or other samples.
        plan: Which of them make up which batch, and which part of it is ours.
        augment_seed: Crop and mirror at random, in the way of the data set, by a pure function of
            (seed, epoch, index): it does not depend on the batch size, nor on which samples are
            used. None leaves the images as they are.

    Example:
        >>> import numpy as np
        >>> from sampa.lab.data.digits import load_digits
        >>> from sampa.lab.data.plans import Shuffled
        >>> digits = load_digits()
        >>> plan = Shuffled(np.arange(len(digits)), batch_size=64, seed=0)
        >>> images, labels, index = ImageBatches(digits, plan, augment_seed=0).batch(0, number=3)
        >>> images.shape
        torch.Size([64, 1, 8, 8])
    """

    data: ImageSamples
    plan: BatchPlan
    augment_seed: int | None = None

    def __post_init__(self) -> None:
        require_indices(self.plan.indices, len(self.data))

    def __len__(self) -> int:
        return len(self.plan)

    @property
    def may_be_ahead(self) -> bool:
        """Whether a thread may make batches beside a step."""
        return not self.data.seeds_generators

    def batch(self, epoch: int, number: int) -> ImageBatch:
        """This shard's part of a batch of an epoch; the same arguments give the same bits."""
        index = self.plan.part(epoch, number)
        seed = self.augment_seed
        words = None if seed is None else epoch_words(len(self.data), seed, epoch)[index]
        labels = torch.from_numpy(self.data.labels[index])
        return self.data.inputs(index, words), labels, torch.from_numpy(index.copy())

    def __iter__(self) -> Iterator[ImageBatch]:
        """The first epoch."""
        return (self.batch(0, number) for number in range(len(self)))
