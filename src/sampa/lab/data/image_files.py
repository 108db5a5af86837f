"""Image files, decoded when asked for; ImageNet and folders of the user's own are trees of them."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image

from sampa.lab.data.image_data import Images
from sampa.lab.files import open_file
from sampa.messages import require

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's images, as in use
ENDINGS = (".jpeg", ".jpg", ".png")
AREA, RATIO, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10  # of random crops
SIZE = 224  # as for ImageNet
LARGEST_IMAGE = 1_000_000_000  # bytes of an image file

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


@dataclass(frozen=True)
class EncodedImages(Images):
    """Labeled images of any size in their files' encoding, seen at one size.

    For evaluation the shorter side becomes 256/224 of the size, and the center is cut out. For
    training a random part, of 8 to 100 % of the area, is resized, and half of them are mirrored.

    Attributes:
        size: Side of the images seen.
        threads: How many are decoded at once; no result depends on it.
    """

    size: int = field(default=SIZE, kw_only=True)
    threads: int = field(default=4, kw_only=True)

    def __post_init__(self) -> None:
        require("size", self.size, self.size >= 1, ">= 1")
        require("threads", self.threads, self.threads >= 1, ">= 1")

    @abstractmethod
    def opened(self, i: int) -> tuple[str, IO[bytes]]:
        """What messages call an image, and its encoded bytes."""

    def pixels(self, index: np.ndarray) -> np.ndarray:
        """The centers of the images, for evaluation."""
        return self._decoded([(int(i), center) for i in index])

    def augmented(self, index: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Random parts of the images, each a pure function of its word."""
        jobs = zip(index.tolist(), words.tolist(), strict=True)
        return self._decoded([(i, partial(random_part, word=word)) for i, word in jobs])

    def _decoded(self, jobs: list[tuple[int, Cut]]) -> np.ndarray:
        with ThreadPoolExecutor(self.threads) as pool:
            images = list(pool.map(lambda job: self._image(*job), jobs))
        return np.stack(images) if images else np.zeros((0, 3, self.size, self.size), np.uint8)

    def _image(self, i: int, cut: Cut) -> np.ndarray:
        name, stream = self.opened(i)
        with stream:
            return decode(name, stream, cut, self.size)


@dataclass(frozen=True)
class ImageFiles(EncodedImages):
    """Images in files of their own.

    Attributes:
        paths: One file per image.
    """

    paths: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        n = len(self.paths)
        require("labels.shape", self.labels.shape, self.labels.shape == (n,), f"({n},)")

    def opened(self, i: int) -> tuple[str, IO[bytes]]:
        return self.paths[i], open_file(Path(self.paths[i]), LARGEST_IMAGE)

    def take(self, index: np.ndarray) -> ImageFiles:
        paths = tuple(self.paths[i] for i in index)
        return replace(self, paths=paths, labels=self.labels[index])


Cut = Callable[[Image.Image, int], Image.Image]
"""From an RGB image and a side to a square image of that side."""


def decode(name: str, stream: IO[bytes], cut: Cut, size: int) -> np.ndarray:
    """One image as uint8, (3, size, size).

    Raises:
        ValueError: Naming it, if it is damaged.
    """
    try:
        with Image.open(stream, formats=["JPEG", "PNG"]) as file:
            image = cut(file.convert("RGB"), size)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{name} cannot be decoded as JPEG or PNG ({error}); get it again, or take it out"
        ) from error
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


# ---- trees: a folder a class -----------------------------------------------------------------


def image_tree(root: Path, size: int = SIZE) -> ImageFiles:
    """The images of root/<class>/*, with the classes in the order of their names.

    Raises:
        ValueError: If a class has no images, or there are no classes.
    """
    classes = subfolders(root)
    if not classes:
        raise ValueError(
            f"{root} must have a folder for each class with its images in it (JPEG or PNG), got no "
            "folder at all"
        )
    found = [(path, label) for label, name in enumerate(classes) for path in _files(root / name)]
    require(f"number of images (JPEG or PNG) in {root}", len(found), len(found) > 0, "> 0")
    paths, labels = zip(*found, strict=True)
    return ImageFiles(np.asarray(labels, np.int64), tuple(classes), MEAN, STD, paths, size=size)


def require_same_classes(*roots: Path) -> None:
    """Refuse splits whose labels would not mean the same."""
    one, *others = ({*subfolders(root)} for root in roots)
    for different in (one ^ other for other in others):
        if different:
            names = " and ".join(root.name for root in roots)
            raise ValueError(
                f"{names} must have the same classes; {min(different)} is in one of them"
            )


def subfolders(root: Path) -> list[str]:
    """Hidden ones are no classes: editors and file managers make them."""
    names = (entry.name for entry in os.scandir(root) if entry.is_dir())
    return sorted(name for name in names if not name.startswith("."))


def _files(folder: Path) -> list[str]:
    return sorted(
        entry.path for entry in os.scandir(folder) if entry.name.lower().endswith(ENDINGS)
    )
