"""Labeled samples, most of them images, and what may be done to a whole set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from sampa.lab.data.draws import permutation
from sampa.messages import require

CHUNK = 500  # images at a time, where wider numbers are needed

Statistics = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class ImageSamples(ABC):
    """Inputs of a network, each with its class.

    Attributes:
        labels: int64, one per sample.
        classes: The names that labels stand for.
    """

    seeds_generators: ClassVar[bool] = False
    """Whether it seeds Python's and torch's own generators: then no thread may make inputs beside
    a step, which uses them too."""

    labels: np.ndarray
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def inputs(self, index: np.ndarray, words: np.ndarray | None) -> Tensor:
        """Inputs as the network sees them, each altered by its own random word if there are any."""

    @property
    @abstractmethod
    def channels(self) -> int | None:
        """Of an image; None if inputs are something else."""

    @abstractmethod
    def take(self, index: np.ndarray) -> Self:
        """Only these samples, in this order."""


@dataclass(frozen=True)
class Images(ImageSamples):
    """Labeled images of one size.

    Attributes:
        mean: Per channel, in units of the largest pixel value; of the training images, also for the
            test images.
        std: Likewise.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def channels(self) -> int:
        return len(self.mean)

    def inputs(self, index: np.ndarray, words: np.ndarray | None) -> Tensor:
        """Normalized images, float32."""
        pixels = self.pixels(index) if words is None else self.augmented(index, words)
        return normalized(pixels, self.mean, self.std)

    @abstractmethod
    def pixels(self, index: np.ndarray) -> np.ndarray:
        """Images for evaluation: uint8, (number, channels, height, width)."""

    @abstractmethod
    def augmented(self, index: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Images for training, each altered by its own random word."""


def normalized(pixels: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Pixels 0 ... 255 as (x - mean) / std, in float32: (x - 255 mean) / (255 std).

    A subtraction and a division, each rounded once: the bits do not depend on the batch's shape.
    """
    shift, scale = (
        (255 * torch.tensor(values, dtype=torch.float64)).float().view(1, -1, 1, 1)
        for values in (mean, std)
    )
    return torch.from_numpy(pixels).float().sub_(shift).div_(scale)


@dataclass(frozen=True)
class ImageData(Images):
    """Labeled images in memory (or mapped from a file).

    Attributes:
        images: uint8, (number, channels, height, width).
        padding: Black pixels put around an image before a random crop of its size.
        flips: Whether a mirrored image is as good an example.
    """

    images: np.ndarray
    padding: int = 4
    flips: bool = True

    def __post_init__(self) -> None:
        pixels, labels = self.images, self.labels
        require("images.dtype", pixels.dtype, pixels.dtype == np.uint8, "uint8")
        require("images.shape", pixels.shape, pixels.ndim == 4, "(N, C, H, W)")
        require("labels.dtype", labels.dtype, labels.dtype == np.int64, "int64")
        n, channels = pixels.shape[:2]
        require("labels.shape", labels.shape, labels.shape == (n,), f"({n},), one per image")
        require_labels("labels", labels, len(self.classes))
        sizes = (len(self.mean), len(self.std))
        require("lengths of mean and std", sizes, set(sizes) == {channels}, f"{channels} each")

    def pixels(self, index: np.ndarray) -> np.ndarray:
        """The images as they are."""
        return self.images[index]

    def augmented(self, index: np.ndarray, words: np.ndarray) -> np.ndarray:
        """The images cropped at random from their padded selves, and half of them mirrored."""
        span = np.uint64(2 * self.padding + 1)
        top, left = words % span, words // span % span
        mirrored = (words >> np.uint64(63)).astype(bool) & self.flips
        return crop_and_flip(self.images[index], self.padding, top, left, mirrored)

    def take(self, index: np.ndarray) -> ImageData:
        return replace(self, images=self.images[index], labels=self.labels[index])


AnySamples = TypeVar("AnySamples", bound=ImageSamples)


def crop_and_flip(
    images: np.ndarray, padding: int, top: np.ndarray, left: np.ndarray, mirrored: np.ndarray
) -> np.ndarray:
    """Pad with zeros, cut windows of the original size at (top, left), mirror some."""
    n, c, h, w = images.shape
    padded = np.zeros((n, c, h + 2 * padding, w + 2 * padding), np.uint8)
    padded[:, :, padding : padding + h, padding : padding + w] = images
    windows = np.lib.stride_tricks.sliding_window_view(padded, (h, w), axis=(2, 3))
    cut = windows[np.arange(n), :, top.astype(np.intp), left.astype(np.intp)]
    cut[mirrored] = cut[mirrored, :, :, ::-1]
    return cut


def require_labels(name: str, labels: np.ndarray, classes: int) -> None:
    """Raise a ValueError unless every label stands for a class."""
    strange = labels[(labels < 0) | (labels >= classes)]
    if len(strange):
        raise ValueError(f"{name} must be in [0, {classes}), got {int(strange[0])}")


def channel_statistics(images: np.ndarray) -> Statistics:
    """Mean and standard deviation per channel in [0, 1] units, from exact integer sums."""
    moments = [_mean_and_std(images[:, channel]) for channel in range(images.shape[1])]
    means, deviations = zip(*moments, strict=True)
    return means, deviations


def _mean_and_std(values: np.ndarray) -> tuple[float, float]:
    counts = np.zeros(256, np.int64)
    for start in range(0, len(values), CHUNK):  # bincount widens to 8 bytes a pixel
        counts += np.bincount(values[start : start + CHUNK].ravel(), minlength=256)
    n, levels = values.size, np.arange(256)
    total, squares = int(levels @ counts), int(levels**2 @ counts)
    variance = Fraction(n * squares - total * total, n * n * 255 * 255)
    return float(Fraction(total, n * 255)), float(variance) ** 0.5


def resize(data: ImageData, size: int) -> ImageData:
    """Smaller images: each pixel the mean of a square of pixels, halves rounded up.

    Mean and std stay those of the full-size training images, so that train and test agree. The
    padding for random crops shrinks in proportion.
    """
    h, w = data.images.shape[2:]
    fits = 1 <= size <= h and h == w and h % size == 0
    require("size", size, fits, f"a divisor of the images' side, {h} x {w}")
    k = h // size
    chunks = [_block_means(data.images[i : i + CHUNK], k) for i in range(0, len(data), CHUNK)]
    return replace(data, images=np.concatenate(chunks), padding=-(-data.padding // k))


def _block_means(images: np.ndarray, k: int) -> np.ndarray:
    n, c, h, w = images.shape
    sums = np.zeros((n, c, h // k, w // k), np.uint32)
    for row, column in np.ndindex(k, k):
        sums += images[:, :, row::k, column::k]
    return ((2 * sums + k * k) // (2 * k * k)).astype(np.uint8)


def subset(data: AnySamples, n: int, seed: int) -> AnySamples:
    """`n` samples with each class's share kept, a pure function of the seed, in their old order.

    Classes get n · share samples, rounded down; the largest remainders get one more.
    """
    require("n", n, 1 <= n <= len(data), f"between 1 and the {len(data)} samples")
    counts = np.bincount(data.labels, minlength=len(data.classes)).tolist()
    quotas = dict(enumerate(_apportion(counts, n)))
    kept: list[int] = []
    for i in permutation(len(data), seed, "subset").tolist():
        label = int(data.labels[i])
        if quotas[label] > 0:
            quotas[label] -= 1
            kept.append(i)
    return data.take(np.sort(np.asarray(kept, np.int64)))


def _apportion(counts: Sequence[int], n: int) -> list[int]:
    total = sum(counts)
    quotas = [n * count // total for count in counts]
    by_remainder = sorted(range(len(counts)), key=lambda i: (-(n * counts[i] % total), i))
    for i in by_remainder[: n - sum(quotas)]:
        quotas[i] += 1
    return quotas
