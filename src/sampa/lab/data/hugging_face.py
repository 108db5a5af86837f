"""Data sets of Hugging Face on disk, as `datasets.save_to_disk` or a Hub's Parquet files have them.

Such a folder is Arrow tables and JSON. It is read with pyarrow: the package datasets would bring a
dozen others, caches in the home folder and loading scripts, and is needed for none of this. Nothing
is unpickled, downloaded or executed, and no other path that a file names is followed.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from sampa.lab.data.folders import TEST_NAMES, held_out
from sampa.lab.data.glue import TextData
from sampa.lab.data.image_data import require_labels
from sampa.lab.data.image_files import MEAN, SIZE, STD, EncodedImages
from sampa.lab.files import LARGEST_FILE, open_file, parse_json, read_json

LABEL_NAMES = ("label", "labels", "fine_label", "target")


@dataclass(frozen=True)
class ArrowImages(EncodedImages):
    """Images in a column of an Arrow table.

    Attributes:
        name: Of the table, for messages.
        column: Encoded images, {"bytes", "path"} each.
        rows: Where each image is in the column.
    """

    name: str
    column: Any
    rows: np.ndarray

    def opened(self, i: int) -> tuple[str, IO[bytes]]:
        row = int(self.rows[i])
        name, content = f"row {row} of {self.name}", self.column[row].as_py()["bytes"]
        if content is None:
            raise ValueError(
                f"{name} must hold the image itself, got only the path of a file; write the data "
                "set anew with datasets.save_to_disk, which embeds images"
            )
        return name, io.BytesIO(content)

    def take(self, index: np.ndarray) -> ArrowImages:
        return replace(self, rows=self.rows[index], labels=self.labels[index])


TrainAndTest = tuple[ArrowImages | TextData, ArrowImages | TextData]
"""Training and test samples, both of the same kind."""


def load_hugging_face(folder: Path, size: int | None = None) -> TrainAndTest:
    """Training and test samples: images if the data set has a column of them, or else text.

    The label is the column that the features call a ClassLabel, or else one named `label`. Text is
    all columns of strings, at most two. Test samples are the split test, or else validation; where
    there is none with labels, a fifth of all is held out.

    Args:
        folder: With dataset_dict.json, or state.json, or Parquet files named after their split.
        size: Side of the images seen; None means 224.

    Raises:
        FileNotFoundError: If it is no such folder.
        ValueError: If its columns do not tell what to learn.
    """
    tables = _tables(folder)
    if "train" not in tables:
        only = next(iter(tables.values())) if len(tables) == 1 else None
        if only is None:
            raise ValueError(f"{folder} must have a split train, got {', '.join(tables)}")
        tables = {"train": only}
    label = _label_column(folder, tables["train"])
    classes = _classes(tables["train"], label)
    parts = [tables["train"], *(tables[n] for n in TEST_NAMES if n in tables)]
    found = [_samples(folder, part, label, classes, size) for part in parts]
    # The labels of a benchmark's test split are often hidden, as -1.
    known = [part for part in found[1:] if part.labels.min(initial=0) >= 0]
    for part in (found[0], *known):
        require_labels(f"labels of {folder}", part.labels, len(classes))
    return (found[0], known[0]) if known else held_out(found[0])


# ---- columns ---------------------------------------------------------------------------------


def _samples(
    folder: Path, table: Any, label: str, classes: tuple[str, ...], size: int | None
) -> ArrowImages | TextData:
    labels = _labels(table, label, classes)
    features = _features(table)
    images = [n for n in table.column_names if features.get(n, {}).get("_type") == "Image"]
    if images:
        rows, side = np.arange(len(table)), SIZE if size is None else size
        column = table.column(images[0])
        return ArrowImages(labels, classes, MEAN, STD, str(folder), column, rows, size=side)
    strings = [f.name for f in table.schema if str(f.type) in ("string", "large_string")]
    text = [name for name in strings if name != label]
    if not 1 <= len(text) <= 2:
        raise ValueError(
            f"{folder} must have a column of images, or one or two of text, beside {label!r}; "
            f"got {', '.join(f'{f.name} ({f.type})' for f in table.schema)}"
        )
    first, *second = (tuple(map(str, table.column(name).to_pylist())) for name in text)
    return TextData(first, second[0] if second else None, labels, classes)


def _label_column(folder: Path, table: Any) -> str:
    features = _features(table)
    named = [n for n in table.column_names if features.get(n, {}).get("_type") == "ClassLabel"]
    usual = [n for n in LABEL_NAMES if n in table.column_names]
    if not named and not usual:
        raise ValueError(
            f"{folder} must have a column of labels (a ClassLabel, or one named label), "
            f"got {', '.join(table.column_names)}"
        )
    return (named or usual)[0]


def _classes(table: Any, label: str) -> tuple[str, ...]:
    names = _features(table).get(label, {}).get("names")
    if isinstance(names, list):
        return tuple(map(str, names))
    values = [v for v in table.column(label).unique().to_pylist() if v is not None]
    if all(isinstance(v, int) for v in values):
        return tuple(map(str, range(max(values, default=-1) + 1)))
    return tuple(sorted(map(str, values)))


def _labels(table: Any, label: str, classes: tuple[str, ...]) -> np.ndarray:
    values = table.column(label).to_pylist()
    if all(isinstance(v, int) for v in values):
        return np.asarray(values, np.int64)
    numbers = {name: number for number, name in enumerate(classes)}
    strange = next((v for v in values if v is not None and str(v) not in numbers), None)
    if strange is not None:
        raise ValueError(f"{label} must be one of the training classes, got {strange!r}")
    return np.asarray([-1 if v is None else numbers[str(v)] for v in values], np.int64)


def _features(table: Any) -> dict[str, Any]:
    found = parse_json((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    for name in ("info", "features"):
        found = found.get(name) if isinstance(found, dict) else None
    named = found if isinstance(found, dict) else {}
    return {name: feature for name, feature in named.items() if isinstance(feature, dict)}


# ---- files -----------------------------------------------------------------------------------


def _tables(folder: Path) -> dict[str, Any]:
    """The table of each split, mapped from disk where it is Arrow."""
    if (folder / "dataset_dict.json").is_file():
        names = _listed(folder / "dataset_dict.json", "splits")
        return {name: _arrow(folder / _own(folder, name)) for name in names}
    if (folder / "state.json").is_file():
        return {"train": _arrow(folder)}
    files = sorted([*folder.glob("*.parquet"), *folder.glob("data/*.parquet")])
    if not files:
        raise FileNotFoundError(
            f"{folder} must be a data set as datasets.save_to_disk writes it, or have Parquet "
            "files such as train-00000-of-00001.parquet; it has no dataset_dict.json, no "
            "state.json and no *.parquet"
        )
    splits: dict[str, list[Path]] = {}
    for file in files:
        splits.setdefault(file.stem.split("-")[0], []).append(file)
    _pyarrow()
    import pyarrow.parquet as parquet

    return {name: _joined(paths, parquet.read_table) for name, paths in splits.items()}


def _arrow(folder: Path) -> Any:
    pyarrow = _pyarrow()
    entries = _listed(folder / "state.json", "_data_files")
    names = [entry.get("filename") if isinstance(entry, dict) else entry for entry in entries]
    files = [folder / _own(folder, name) for name in names]
    return _joined(files, lambda file: pyarrow.ipc.open_stream(pyarrow.memory_map(file)).read_all())


def _joined(files: Sequence[Path], read: Callable[[str], Any]) -> Any:
    """The table of several files.

    Raises:
        OSError: If one is a pipe or a device, which pyarrow would wait for.
        ValueError: If they hold no such tables.
    """
    for file in files:
        open_file(file, LARGEST_FILE).close()
    pyarrow = _pyarrow()
    try:
        return pyarrow.concat_tables([read(str(file)) for file in files])
    except pyarrow.ArrowException as error:
        listed = ", ".join(map(str, files))
        raise ValueError(f"{listed} cannot be read as Arrow or Parquet: {error}") from error


def _listed(file: Path, name: str) -> list[Any]:
    """A list that a file of a data set names its parts by."""
    saved = read_json(file)
    found = saved.get(name) if isinstance(saved, dict) else None
    if not isinstance(found, list) or not found:
        raise ValueError(f"{file} must have a list {name!r}, as datasets.save_to_disk writes it")
    return found


def _own(folder: Path, name: Any) -> str:
    """A name in a file that stays in its folder."""
    if not isinstance(name, str) or name != Path(name).name or name in ("", "..", "."):
        raise ValueError(f"{folder} must name files of its own, got {name!r}")
    return name


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a data set of Hugging Face needs the package pyarrow; pip install 'sampa[hf]'"
        ) from error
    return pyarrow
