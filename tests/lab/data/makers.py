"""Small files in the formats of the data sets."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sampa.lab.data.cifar import LAYOUTS, ArchiveLayout

PER_FILE = 4


def small(layout: ArchiveLayout) -> ArchiveLayout:
    """A layout with a few images per file."""
    files = {split: dict.fromkeys(names, PER_FILE) for split, names in layout.files.items()}
    return replace(layout, files=files)


def members(layout: ArchiveLayout, seed: int = 0) -> dict[str, bytes]:
    """The files of an official binary archive, with random pixels."""
    random = np.random.default_rng(seed)
    contents = {}
    for names in layout.files.values():
        for name, number in names.items():
            records = random.integers(0, 256, (number, layout.label_bytes + 3072), dtype=np.uint8)
            records[:, layout.label_bytes - 1] %= layout.classes
            contents[name] = records.tobytes()
    contents[layout.names] = "".join(f"class{i}\n" for i in range(layout.classes)).encode()
    return contents


def write_tar(path: Path, contents: dict[str, bytes], *extra: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return path


def write_archive(folder: Path, layout: ArchiveLayout, contents: dict[str, bytes]) -> Path:
    inside = {f"{layout.folder}/{name}": content for name, content in contents.items()}
    return write_tar(folder / layout.archive, inside)


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def write_strips(
    path: Path, images: np.ndarray, labels: np.ndarray, *, per_strip: int = 4, **changes: Any
) -> Path:
    """Images (N, 32, 32, 3) packed as a zip of strips; `changes` are of the facts in meta.json."""
    meta: dict[str, Any] = {
        "strip_images": per_strip,
        "classes": [f"class{i}" for i in range(LAYOUTS[10].classes)],
        "pixels_sha256": hashlib.sha256(images.tobytes()).hexdigest(),
        "labels_sha256": hashlib.sha256(labels.tobytes()).hexdigest(),
    }
    meta.update({k: v for k, v in changes.items() if k in meta})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.json", changes.get("meta_json") or json.dumps(meta))
        archive.writestr("labels.bin", labels.tobytes())
        for number, start in enumerate(range(0, len(images), per_strip)):
            stream = io.BytesIO()
            strip = images[start : start + per_strip].reshape(-1, 32, 3)
            Image.fromarray(strip).save(stream, "WEBP", lossless=True)
            archive.writestr(f"strips/{number:04}.webp", stream.getvalue())
    return path
