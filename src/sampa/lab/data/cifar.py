"""CIFAR-10 and CIFAR-100, from the official binary files or from packed strips.

A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009. Pixels are decoded
once into a cache and mapped from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from sampa.lab.data.archives import read_tar
from sampa.lab.data.cache import Built, CacheEntry, file_hash
from sampa.lab.data.image_data import ImageData, channel_statistics, require_labels
from sampa.lab.data.places import cache_folder, data_folder, missing
from sampa.lab.data.strips import Decoded, read_strips
from sampa.lab.files import read_file
from sampa.messages import require, require_choice

PIXELS = 3 * 32 * 32
MAX_NAMES = 10_000  # bytes in the list of class names
MAX_FILE = 200_000_000  # bytes; the largest has 154 million


@dataclass(frozen=True)
class ArchiveLayout:
    """One official binary data set.

    Attributes:
        name: The folder it may also be in.
        archive: The official file.
        folder: What the archive unpacks to.
        names: The member that lists the classes.
        label_bytes: Bytes before the pixels of an image; the last one is the label.
        files: For each split the members with images, and how many images each has.
    """

    name: str
    archive: str
    folder: str
    names: str
    classes: int
    label_bytes: int
    files: dict[str, dict[str, int]]

    def size(self, split: str, member: str) -> int:
        return self.files[split][member] * (self.label_bytes + PIXELS)


LAYOUTS = {
    10: ArchiveLayout(
        name="cifar10",
        archive="cifar-10-binary.tar.gz",
        folder="cifar-10-batches-bin",
        names="batches.meta.txt",
        classes=10,
        label_bytes=1,
        files={
            "train": {f"data_batch_{i}.bin": 10_000 for i in range(1, 6)},
            "test": {"test_batch.bin": 10_000},
        },
    ),
    100: ArchiveLayout(
        name="cifar100",
        archive="cifar-100-binary.tar.gz",
        folder="cifar-100-binary",
        names="fine_label_names.txt",
        classes=100,
        label_bytes=2,
        files={"train": {"train.bin": 50_000}, "test": {"test.bin": 10_000}},
    ),
}

Decoder = Callable[[ArchiveLayout, str, list[Path]], Decoded]
Source = tuple[list[Path], Callable[[], Decoded]]


def load_cifar(
    data_dir: str | Path | None,
    classes: int = 10,
    split: str = "train",
    cache_dir: str | Path | None = None,
) -> ImageData:
    """CIFAR-10, or CIFAR-100 with its fine labels, in the order of the files.

    Args:
        data_dir: A folder with the official archive, its unpacked folder, or packed strips;
            directly or under cifar10/ or cifar100/. None means SAMPA_DATA_DIR.
        classes: 10 or 100.
        split: "train" or "test".
        cache_dir: Where decoded pixels are kept; None means the user's cache.

    Raises:
        FileNotFoundError: Saying what was looked for and where to get it.
        ValueError: If the files are damaged or not what they should be.
    """
    require("classes", classes, classes in LAYOUTS, "10 or 100")
    require_choice("split", split, ("train", "test"))
    folder, cache = data_folder(data_dir), cache_folder(cache_dir)
    entry = _entry(LAYOUTS[classes], split, folder, cache)
    training = _entry(LAYOUTS[classes], "train", folder, cache) if split != "train" else entry
    facts, statistics, arrays = entry.facts(), training.facts(), entry.arrays()
    mean, std = tuple(statistics["mean"]), tuple(statistics["std"])
    return ImageData(arrays["labels"], tuple(facts["classes"]), mean, std, arrays["images"])


def _entry(layout: ArchiveLayout, split: str, folder: Path, cache: Path) -> CacheEntry:
    files, decode = _source(layout, split, folder)

    def build() -> Built:
        images, labels, classes = decode()
        require_labels(f"labels of {files[0]}", labels, layout.classes)
        require(f"classes of {files[0]}", classes, len(classes) == layout.classes, "complete")
        mean, std = channel_statistics(images)
        return {"images": images, "labels": labels}, {"classes": classes, "mean": mean, "std": std}

    return CacheEntry(cache, f"{layout.name}-{split}-{file_hash(files)}", build)


def _source(layout: ArchiveLayout, split: str, data_dir: Path) -> Source:
    """The files that hold a split, and a function that decodes them."""
    looked_for: list[Path] = []
    for folder in (data_dir / layout.name, data_dir):
        for files, decode in _candidates(layout, split, folder):
            if all(path.is_file() for path in files):
                return files, partial(decode, layout, split, files)
            looked_for += [path for path in files if not path.is_file()][:1]
    raise missing(f"CIFAR-{layout.classes} ({split})", looked_for, f"the official {layout.archive}")


def _candidates(
    layout: ArchiveLayout, split: str, folder: Path
) -> list[tuple[list[Path], Decoder]]:
    binary = [folder / layout.folder / name for name in (*layout.files[split], layout.names)]
    return [
        ([folder / f"{layout.name}-{split}.zip"], _read_packed),
        ([folder / layout.archive], _read_archive),
        (binary, _read_folder),
    ]


def _read_packed(layout: ArchiveLayout, split: str, files: list[Path]) -> Decoded:
    return read_strips(files[0], sum(layout.files[split].values()))


def _read_archive(layout: ArchiveLayout, split: str, files: list[Path]) -> Decoded:
    def limit(name: str) -> int | None:
        if name == layout.names:
            return MAX_NAMES
        return layout.size(split, name) if name in layout.files[split] else None

    return _parse(layout, split, files[0], read_tar(files[0], limit))


def _read_folder(layout: ArchiveLayout, split: str, files: list[Path]) -> Decoded:
    return _parse(layout, split, files[0].parent, _contents(files))


def _contents(files: list[Path]) -> dict[str, bytes]:
    return {path.name: read_file(path, MAX_FILE) for path in files}


def _parse(layout: ArchiveLayout, split: str, where: Path, contents: dict[str, bytes]) -> Decoded:
    lost = [name for name in (*layout.files[split], layout.names) if name not in contents]
    if lost:
        raise ValueError(f"{where} is incomplete: it has no {lost[0]}; get {layout.archive} again")
    for name in layout.files[split]:
        got, right = len(contents[name]), layout.size(split, name)
        if got != right:
            raise ValueError(f"{where} is damaged: {name} has {got} bytes instead of {right}")
    joined = b"".join(contents[name] for name in layout.files[split])
    records = np.frombuffer(joined, np.uint8).reshape(-1, layout.label_bytes + PIXELS)
    labels = records[:, layout.label_bytes - 1].astype(np.int64)
    images = np.ascontiguousarray(records[:, layout.label_bytes :]).reshape(-1, 3, 32, 32)
    return images, labels, contents[layout.names].decode("ascii", "replace").split()
