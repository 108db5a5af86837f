"""Real data where there is some, and small image sets where none is needed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from sampa.lab.data.cifar import load_cifar
from sampa.lab.data.image_data import ImageData


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("SAMPA_DATA_DIR")
    if not folder:
        pytest.skip("needs the real data: SAMPA_DATA_DIR is not set")
    return Path(folder)


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def cifar10(real_data: Path, session_cache: Path) -> dict[str, ImageData]:
    if not (real_data / "cifar10").is_dir():
        pytest.skip("needs CIFAR-10: SAMPA_DATA_DIR has no folder cifar10")
    return {split: load_cifar(real_data, 10, split, session_cache) for split in ("train", "test")}


@pytest.fixture(scope="session")
def random_images() -> ImageData:
    """50 images of 3 x 8 x 8 in 5 classes."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (50, 3, 8, 8), dtype=np.uint8)
    labels = random.integers(0, 5, 50)
    return ImageData(labels, tuple("abcde"), (0.5, 0.4, 0.3), (0.2, 0.25, 0.3), images)
