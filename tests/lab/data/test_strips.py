"""Packed strips decode without loss, and damage is noticed."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sampa.lab.data.strips import read_strips
from tests.lab.data.makers import write_strips

IMAGES = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(8, dtype=np.uint8)


def test_strips_decode_without_loss(tmp_path: Path) -> None:
    images, labels, classes = read_strips(write_strips(tmp_path / "x.zip", IMAGES, LABELS), 8)
    assert np.array_equal(images.transpose(0, 2, 3, 1), IMAGES)
    assert labels.tolist() == LABELS.tolist()
    assert len(classes) == 10


def test_a_wrong_number_of_images_is_said(tmp_path: Path) -> None:
    path = write_strips(tmp_path / "x.zip", IMAGES[:4], LABELS)
    with pytest.raises(ValueError, match=r"x\.zip is incomplete: .* 4 images and 8 labels .* 8"):
        read_strips(path, 8)


@pytest.mark.parametrize("what", ["pixels", "labels"])
def test_content_that_does_not_have_its_hash_is_refused(what: str, tmp_path: Path) -> None:
    changes: dict[str, Any] = {f"{what}_sha256": "0" * 64}
    path = write_strips(tmp_path / "x.zip", IMAGES, LABELS, **changes)
    with pytest.raises(ValueError, match=f"its {what} do not have the SHA-256"):
        read_strips(path, 8)


def test_a_strip_of_another_size_is_named(tmp_path: Path) -> None:
    path = write_strips(tmp_path / "x.zip", IMAGES, LABELS, strip_images=5)
    with pytest.raises(ValueError, match=r"x\.zip is damaged at strips/0000\.webp"):
        read_strips(path, 8)


@pytest.mark.parametrize("meta", ["{", "[]", '{"classes": []}'])
def test_bad_facts_are_named(meta: str, tmp_path: Path) -> None:
    path = write_strips(tmp_path / "x.zip", IMAGES, LABELS, meta_json=meta)
    with pytest.raises(ValueError, match=r"x\.zip is damaged: meta\.json"):
        read_strips(path, 8)


def test_a_strip_that_is_no_webp_is_named(tmp_path: Path) -> None:
    path = write_strips(tmp_path / "x.zip", IMAGES[:4], LABELS)
    stream = io.BytesIO()
    Image.fromarray(IMAGES[:4].reshape(-1, 32, 3)).save(stream, "PNG")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("strips/0001.webp", stream.getvalue())
    with pytest.raises(ValueError, match=r"x\.zip is damaged at strips/0001\.webp"):
        read_strips(path, 8)


@pytest.mark.parametrize("name", ["meta.json", "labels.bin"])
def test_a_missing_member_is_named(name: str, tmp_path: Path) -> None:
    path, less = write_strips(tmp_path / "x.zip", IMAGES, LABELS), tmp_path / "y.zip"
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(less, "w") as archive:
        for member in whole.namelist():
            if member != name:
                archive.writestr(member, whole.read(member))
    with pytest.raises(ValueError, match=f"y.zip is incomplete: it has no {name}"):
        read_strips(less, 8)
