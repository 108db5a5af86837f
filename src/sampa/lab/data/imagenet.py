"""ImageNet as a tree of JPEG files, decoded when asked for."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from sampa.lab.data.image_data import Images
from sampa.lab.data.places import data_folder, first_of
from sampa.messages import require, require_choice

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the training images, as in use
ENDINGS = (".jpeg", ".jpg", ".png")
AREA, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10  # of random crops

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


@dataclass(frozen=True)
class ImageFiles(Images):
    """Labeled image files of any size, seen at one size.

    For evaluation the shorter side becomes 256/224 of the size, and the center is cut out. For
    training a random part, of 8 to 100 % of the area, is resized, and half of them are mirrored.

    Attributes:
        paths: One file per image.
        size: Side of the images seen.
        threads: How many files are decoded at once; no result depends on it.
    """

    paths: tuple[str, ...]
    size: int = 224
    threads: int = 4

    def __post_init__(self) -> None:
        require("size", self.size, self.size >= 1, ">= 1")
        require("threads", self.threads, self.threads >= 1, ">= 1")
        n = len(self.paths)
        require("labels.shape", self.labels.shape, self.labels.shape == (n,), f"({n},)")

    def pixels(self, index: np.ndarray) -> np.ndarray:
        """The centers of the images, for evaluation."""
        return self._decoded([(self.paths[i], center) for i in index])

    def augmented(self, index: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Random parts of the images, each a pure function of its word."""
        jobs = zip(index, words.tolist(), strict=True)
        return self._decoded([(self.paths[i], partial(random_part, word=word)) for i, word in jobs])

    def take(self, index: np.ndarray) -> ImageFiles:
        paths = tuple(self.paths[i] for i in index)
        return replace(self, paths=paths, labels=self.labels[index])

    def _decoded(self, jobs: list[tuple[str, Cut]]) -> np.ndarray:
        with ThreadPoolExecutor(self.threads) as pool:
            images = list(pool.map(lambda job: decode(job[0], job[1], self.size), jobs))
        return np.stack(images) if images else np.zeros((0, 3, self.size, self.size), np.uint8)


Cut = Callable[[Image.Image, int], Image.Image]
"""From an RGB image and a side to a square image of that side."""


def decode(path: str, cut: Cut, size: int) -> np.ndarray:
    """One image file as uint8, (3, size, size).

    Raises:
        ValueError: Naming the file, if it is damaged.
    """
    try:
        with Image.open(path, formats=["JPEG", "PNG"]) as file:
            image = cut(file.convert("RGB"), size)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be decoded ({error}); get it again") from error
    return np.asarray(image).transpose(2, 0, 1)


def center(image: Image.Image, size: int) -> Image.Image:
    """Resize the shorter side to 256/224 of `size`, and cut out the center."""
    side = size * 256 // 224
    scale = side / min(image.size)
    width, height = (max(side, int(length * scale)) for length in image.size)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return resized.crop((left, top, left + size, top + size))


def random_part(image: Image.Image, size: int, word: int) -> Image.Image:
    """A random part of an image, resized, and mirrored or not: all of it decided by one word."""
    raw = np.random.PCG64(word).random_raw(4 * TRIES + 1)
    draws = ((raw >> np.uint64(11)) * 2.0**-53).tolist()  # uniform in [0, 1)
    part = image.crop(random_box(*image.size, draws[1:]))
    resized = part.resize((size, size), Image.Resampling.BILINEAR)
    mirrored = draws[0] < 0.5
    return resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else resized


def random_box(width: int, height: int, draws: list[float]) -> Box:
    """The first random box that fits, or else the largest central one of an allowed shape.

    Area and the logarithm of width / height are uniform; four draws make one try.
    """
    for area, shape, across, down in zip(*(draws[i::4] for i in range(4)), strict=True):
        pixels = width * height * (AREA[0] + (AREA[1] - AREA[0]) * area)
        ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** shape
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(across * (width - w + 1)), int(down * (height - h + 1))
            return left, top, left + w, top + h
    w = max(1, min(width, round(height * RATIO[1])))
    h = max(1, min(height, round(width / RATIO[0])))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def load_imagenet(data_dir: str | Path | None, split: str = "train", size: int = 224) -> ImageFiles:
    """ImageNet (ILSVRC 2012) from train/<wnid>/*.JPEG and val/<wnid>/*.JPEG.

    Args:
        data_dir: The folder with train/ and val/, or one that has it as imagenet/. None means
            SAMPA_DATA_DIR.
        split: "train" or "val".
        size: Side of the images seen.

    Raises:
        FileNotFoundError: Saying what was looked for and where to get it.
        ValueError: If the two splits do not have the same classes, or one has no images.
    """
    require_choice("split", split, ("train", "val"))
    folder = data_folder(data_dir)
    source = "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar, unpacked to a folder a class"
    places = [folder / "imagenet" / split, folder / split]
    root = first_of(places, f"ImageNet ({split})", source)
    classes = _subfolders(root)
    _require_same_classes(root, classes)
    found = [(path, label) for label, name in enumerate(classes) for path in _files(root / name)]
    require(f"number of images in {root}", len(found), len(found) > 0, "> 0")
    paths, labels = zip(*found, strict=True)
    return ImageFiles(np.asarray(labels, np.int64), tuple(classes), MEAN, STD, paths, size)


def _require_same_classes(root: Path, classes: list[str]) -> None:
    for other in (root.parent / "train", root.parent / "val"):
        different = set(_subfolders(other)) ^ set(classes) if other.is_dir() else set()
        if different:
            name = min(different)
            raise ValueError(f"train and val must have the same classes; {name} is in one of them")


def _subfolders(root: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(root) if entry.is_dir())


def _files(folder: Path) -> list[str]:
    return sorted(
        entry.path for entry in os.scandir(folder) if entry.name.lower().endswith(ENDINGS)
    )
