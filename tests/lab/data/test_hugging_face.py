"""Data sets that the package datasets itself wrote, read without it."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sampa.lab.data.glue import TextData
from sampa.lab.data.hugging_face import ArrowImages, load_hugging_face
from sampa.lab.data.image_files import center
from tests.lazy import Lazy

datasets = Lazy("datasets")


@pytest.fixture(autouse=True, scope="module")
def quiet() -> None:
    datasets.disable_progress_bars()


def encoded(shade: int) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.fromarray(np.full((20, 30, 3), shade, np.uint8)).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def pictures(shades: list[int]) -> Any:
    columns = {
        "id": shades,
        "photo": [encoded(s) for s in shades],
        "animal": [s % 2 for s in shades],
    }
    animals = datasets.ClassLabel(names=["cat", "dog"])
    features = datasets.Features(
        {"id": datasets.Value("int64"), "photo": datasets.Image(), "animal": animals}
    )
    return datasets.Dataset.from_dict(columns, features=features)


def texts(labels: list[Any], kind: Any) -> Any:
    columns = {"a": [f"first {i}" for i in range(len(labels))], "b": ["second"] * len(labels)}
    features = datasets.Features(
        {"a": datasets.Value("string"), "b": datasets.Value("string"), "label": kind}
    )
    return datasets.Dataset.from_dict({**columns, "label": labels}, features=features)


def test_images_with_their_classes_and_splits(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": pictures([10, 11, 13]), "test": pictures([20])}).save_to_disk(
        tmp_path
    )
    train, test = load_hugging_face(tmp_path, size=8)
    assert isinstance(train, ArrowImages)
    assert isinstance(test, ArrowImages)
    assert (train.classes, train.labels.tolist()) == (("cat", "dog"), [0, 1, 1])
    assert train.pixels(np.array([2, 0]))[:, 0, 0, 0].tolist() == [13, 10]
    assert test.pixels(np.array([0])).shape == (1, 3, 8, 8)
    expected = center(Image.fromarray(np.full((20, 30, 3), 20, np.uint8)), 8)
    assert (test.pixels(np.array([0]))[0] == np.asarray(expected).transpose(2, 0, 1)).all()
    taken = train.take(np.array([1]))
    assert (taken.labels.tolist(), taken.pixels(np.array([0]))[0, 0, 0, 0]) == ([1], 11)


def test_parquet_and_several_files_a_split(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number, shades in enumerate(([10, 11], [12])):
        pictures(shades).to_parquet(tmp_path / "data" / f"train-0000{number}-of-00002.parquet")
    pictures([9]).to_parquet(tmp_path / "data" / "validation-00000-of-00001.parquet")
    train, test = load_hugging_face(tmp_path, size=4)
    assert isinstance(train, ArrowImages)
    assert train.pixels(np.arange(3))[:, 0, 0, 0].tolist() == [10, 11, 12]
    assert test.labels.tolist() == [1]


def test_one_split_is_parted_the_same_way_every_time(tmp_path: Path) -> None:
    pictures(list(range(50))).save_to_disk(tmp_path, num_shards=3)
    (train, test), (again, _) = load_hugging_face(tmp_path), load_hugging_face(tmp_path)
    assert isinstance(train, ArrowImages)
    assert isinstance(again, ArrowImages)
    assert isinstance(test, ArrowImages)
    assert (len(train), len(test)) == (40, 10)
    assert not {*train.rows.tolist()} & {*test.rows.tolist()}
    assert train.rows.tolist() == again.rows.tolist()


def test_pairs_of_text_and_hidden_test_labels(tmp_path: Path) -> None:
    hidden = texts([-1, -1], datasets.Value("int64"))
    kinds = texts([0, 2, 1], datasets.ClassLabel(names=["no", "maybe", "yes"]))
    datasets.DatasetDict(
        {"train": kinds, "validation": texts([1], datasets.Value("int64")), "test": hidden}
    ).save_to_disk(tmp_path)
    train, test = load_hugging_face(tmp_path)
    assert isinstance(train, TextData)
    assert (train.first[1], train.second, train.labels.tolist()) == (
        "first 1",
        ("second",) * 3,
        [0, 2, 1],
    )
    assert train.classes == ("no", "maybe", "yes")
    assert test.labels.tolist() == [1]  # of validation


def test_classes_may_be_words(tmp_path: Path) -> None:
    words = texts(["good", "bad", "good", "bad", "bad"], datasets.Value("string"))
    words.remove_columns("b").save_to_disk(tmp_path)
    train, test = load_hugging_face(tmp_path)
    assert isinstance(train, TextData)
    assert train.classes == ("bad", "good")
    assert train.second is None
    assert sorted([*train.labels, *test.labels]) == [0, 0, 0, 1, 1]


def test_what_cannot_be_learned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"as datasets\.save_to_disk writes it"):
        load_hugging_face(tmp_path)
    datasets.Dataset.from_dict({"x": [1.0], "label": [0]}).save_to_disk(tmp_path / "numbers")
    with pytest.raises(ValueError, match=r"a column of images, or one or two of text.*x \(double"):
        load_hugging_face(tmp_path / "numbers")
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(tmp_path / "plain")
    with pytest.raises(ValueError, match="must have a column of labels"):
        load_hugging_face(tmp_path / "plain")


def test_paths_that_a_file_names_are_not_followed(tmp_path: Path) -> None:
    pictures([1, 2]).save_to_disk(tmp_path / "set")
    state = json.loads((tmp_path / "set" / "state.json").read_text())
    state["_data_files"] = [{"filename": "../other/data.arrow"}]
    (tmp_path / "set" / "state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match=r"must name files of its own, got '\.\./other/data"):
        load_hugging_face(tmp_path / "set")
    named = datasets.Dataset.from_dict(
        {"image": [{"bytes": None, "path": "/etc/passwd"}], "label": [0]},
        features=datasets.Features(
            {
                "image": {"bytes": datasets.Value("binary"), "path": datasets.Value("string")},
                "label": datasets.Value("int64"),
            }
        ),
    ).cast_column("image", datasets.Image(decode=False))
    images = ArrowImages(
        np.zeros(1, np.int64),
        ("0",),
        (0.5,),
        (0.5,),
        "set",
        named.data.column("image"),
        np.arange(1),
    )
    with pytest.raises(ValueError, match="row 0 of set must hold the image itself, got only the p"):
        images.pixels(np.array([0]))


# ---- files of strangers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ('{"_data_files": [{"filename": "d.arrow"}]}', r"d\.arrow cannot be read as Arrow"),
        ("{}", r"state\.json must have a list '_data_files'"),
        ("[]", r"state\.json must have a list '_data_files'"),
        ('{"_data_files": []}', r"state\.json must have a list '_data_files'"),
        ('{"_data_files": [1]}', r"must name files of its own, got 1"),
        ('{"_data_files": [{}]}', r"must name files of its own, got None"),
    ],
)
def test_a_damaged_data_set_is_named(state: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(state)
    (tmp_path / "d.arrow").write_text("not a table")
    with pytest.raises(ValueError, match=message):
        load_hugging_face(tmp_path)


@pytest.mark.parametrize("name", ["d.arrow", "train-00000-of-00001.parquet"])
def test_a_pipe_is_not_waited_for(name: str, tmp_path: Path) -> None:
    if name.endswith(".arrow"):
        (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "d.arrow"}]}')
    os.mkfifo(tmp_path / name)
    with pytest.raises(OSError, match="it must be an ordinary file, not a pipe"):
        load_hugging_face(tmp_path)
