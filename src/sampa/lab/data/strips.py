"""CIFAR packed without loss: a zip of WebP strips, each a column of images 32 pixels wide."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sampa.lab.data.archives import read_zip
from sampa.lab.files import parse_json

Decoded = tuple[np.ndarray, np.ndarray, list[str]]
"""Images (uint8, channels first), labels (int64), class names."""

STRIP_BYTES = 4_000_000  # ten times what 250 images take
META_BYTES = 100_000


def read_strips(path: Path, number: int) -> Decoded:
    """Decode a packed split, and compare it with the hashes that were packed with it.

    Raises:
        ValueError: If the file is damaged, or does not hold `number` images.
    """

    def limit(name: str) -> int | None:
        if name.startswith("strips/"):
            return STRIP_BYTES
        return {"meta.json": META_BYTES, "labels.bin": number}.get(name)

    members = read_zip(path, limit)
    meta = _meta(path, members)
    names = sorted(name for name in members if name.startswith("strips/"))
    pixels = [_strip(path, name, members[name], int(meta["strip_images"])) for name in names]
    images = np.concatenate(pixels) if pixels else np.zeros((0, 32, 32, 3), np.uint8)
    labels = np.frombuffer(members["labels.bin"], np.uint8)
    if not len(images) == len(labels) == number:
        counts = f"{len(images)} images and {len(labels)} labels instead of {number}"
        raise ValueError(f"{path} is incomplete: it has {counts}")
    _require_hash(path, "pixels", images, meta["pixels_sha256"])
    _require_hash(path, "labels", labels, meta["labels_sha256"])
    classes = [str(name) for name in meta["classes"]]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels.astype(np.int64), classes


def _meta(path: Path, members: dict[str, bytes]) -> dict[str, Any]:
    for name in ("meta.json", "labels.bin"):
        if name not in members:
            raise ValueError(f"{path} is incomplete: it has no {name}")
    try:
        meta = parse_json(members["meta.json"])
        return {k: meta[k] for k in ("strip_images", "pixels_sha256", "labels_sha256", "classes")}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged: meta.json is not as packed ({error})") from error


def _strip(path: Path, name: str, content: bytes, images: int) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(content), formats=["WEBP"]) as strip:
            if strip.size != (32, 32 * images):  # before anything is decoded
                raise ValueError(f"a strip of {images} images has no size {strip.size}")
            return np.asarray(strip.convert("RGB")).reshape(-1, 32, 32, 3)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged at {name}: {error}") from error


def _require_hash(path: Path, what: str, array: np.ndarray, right: str) -> None:
    if hashlib.sha256(array.tobytes()).hexdigest() != right:
        raise ValueError(f"{path} is damaged: its {what} do not have the SHA-256 in meta.json")
