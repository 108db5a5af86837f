"""CIFAR-10N: what people answered when shown CIFAR-10's training images.

J. Wei et al., "Learning with Noisy Labels Revisited: A Study Using Real-World Human Annotations",
ICLR 2022.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from sampa.lab.data.archives import read_zip
from sampa.lab.data.image_data import require_labels
from sampa.lab.data.places import data_folder, first_of
from sampa.messages import require

FILE = "cifar10n-labels.npz"
IMAGES = 50_000
COLUMNS = {
    "clean": "clean_label",
    "aggre": "aggre_label",
    "worse": "worse_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
}


def load_cifar10n(data_dir: str | Path | None) -> dict[str, np.ndarray]:
    """Labels by people for CIFAR-10's training images, in the order of those images.

    Args:
        data_dir: A folder with cifar10n-labels.npz (uint8 arrays named as by the authors), directly
            or under cifar10/. None means SAMPA_DATA_DIR.

    Returns:
        int64 labels under clean, aggre, worse, random1, random2 and random3.

    Raises:
        FileNotFoundError: Saying what was looked for and where to get it.
        ValueError: If the file is damaged.
    """
    folder = data_folder(data_dir)
    source = "CIFAR-10_human.pt of UCSC-REAL/cifar-10-100n, saved with numpy.savez as " + FILE
    path = first_of([folder / "cifar10" / FILE, folder / FILE], "CIFAR-10N", source)
    wanted = {f"{column}.npy": 9 * IMAGES for column in COLUMNS.values()}
    members = read_zip(path, wanted.get)
    return {name: _column(path, column, members) for name, column in COLUMNS.items()}


def _column(path: Path, column: str, members: dict[str, bytes]) -> np.ndarray:
    content = members.get(f"{column}.npy")
    if content is None:
        raise ValueError(f"{path} is incomplete: it has no column {column}")
    try:
        labels = np.load(io.BytesIO(content), allow_pickle=False).astype(np.int64)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is damaged at {column}: {error}") from error
    shape = labels.shape
    require(f"shape of {column} in {path}", shape, shape == (IMAGES,), f"({IMAGES},)")
    require_labels(f"{column} of {path}", labels, 10)
    return labels
