"""CIFAR-10N's file: what it must hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sampa.lab.data.label_noise import COLUMNS, LABEL_FILE, load_cifar10n


def columns(**changes: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.full(50_000, 3, np.uint8) for name in COLUMNS.values()} | changes


def write(folder: Path, values: dict[str, Any]) -> None:
    np.savez(folder / LABEL_FILE, **values)


def test_columns_get_short_names_and_int64(tmp_path: Path) -> None:
    write(tmp_path, columns())
    found = load_cifar10n(tmp_path)
    assert {name: labels.dtype for name, labels in found.items()} == dict.fromkeys(
        COLUMNS, np.int64
    )


def test_a_missing_file_is_said_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"cifar10n-labels\.npz[\s\S]*cifar-10-100n"):
        load_cifar10n(tmp_path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    less = columns()
    del less["worse_label"]
    write(tmp_path, less)
    with pytest.raises(ValueError, match="it has no column worse_label"):
        load_cifar10n(tmp_path)


def test_a_column_of_another_length_is_named(tmp_path: Path) -> None:
    write(tmp_path, columns(worse_label=np.zeros(10, np.uint8)))
    with pytest.raises(
        ValueError, match=r"shape of worse_label .* must be \(50000,\), got \(10,\)"
    ):
        load_cifar10n(tmp_path)


def test_a_label_out_of_range_is_named(tmp_path: Path) -> None:
    write(tmp_path, columns(worse_label=np.full(50_000, 10, np.uint8)))
    with pytest.raises(ValueError, match=r"worse_label of .* must be in \[0, 10\), got 10"):
        load_cifar10n(tmp_path)


def test_pickled_labels_are_refused(tmp_path: Path) -> None:
    write(tmp_path, columns(worse_label=np.array([{}], object)))
    with pytest.raises(ValueError, match="damaged at worse_label: Object arrays cannot be loaded"):
        load_cifar10n(tmp_path)
