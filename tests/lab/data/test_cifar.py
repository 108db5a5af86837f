"""CIFAR from small files in the official formats."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from sampa.lab.data import cifar
from sampa.lab.data.cifar import LAYOUTS, ArchiveLayout, load_cifar
from tests.lab.data.makers import members, small, special, write_archive, write_strips, write_tar


@pytest.fixture(params=[10, 100])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ArchiveLayout:
    """The layout of CIFAR-10 or CIFAR-100, with a few images per file."""
    reduced = small(LAYOUTS[request.param])
    monkeypatch.setitem(cifar.LAYOUTS, request.param, reduced)
    return reduced


@pytest.fixture
def ten(monkeypatch: pytest.MonkeyPatch) -> ArchiveLayout:
    reduced = small(LAYOUTS[10])
    monkeypatch.setitem(cifar.LAYOUTS, 10, reduced)
    return reduced


def expected(
    layout: ArchiveLayout, split: str, contents: dict[str, bytes]
) -> tuple[list[int], bytes]:
    """Labels and pixels, byte by byte."""
    labels, pixels = [], b""
    length = layout.label_bytes + 3072
    for name, number in layout.files[split].items():
        for i in range(number):
            record = contents[name][i * length : (i + 1) * length]
            labels.append(record[layout.label_bytes - 1])
            pixels += record[layout.label_bytes :]
    return labels, pixels


@pytest.mark.parametrize("split", ["train", "test"])
def test_an_official_archive_is_read(layout: ArchiveLayout, split: str, tmp_path: Path) -> None:
    contents = members(layout)
    write_archive(tmp_path, layout, contents)
    data = load_cifar(tmp_path, layout.classes, split, tmp_path / "cache")
    labels, pixels = expected(layout, split, contents)
    assert data.labels.tolist() == labels
    assert data.images.tobytes() == pixels
    assert data.classes == tuple(f"class{i}" for i in range(layout.classes))


def test_unpacked_files_are_read(layout: ArchiveLayout, tmp_path: Path) -> None:
    contents = members(layout)
    folder = tmp_path / layout.name / layout.folder
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    data = load_cifar(tmp_path, layout.classes, "train", tmp_path / "cache")
    assert data.images.tobytes() == expected(layout, "train", contents)[1]


def test_packed_strips_are_read(ten: ArchiveLayout, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)
    write_strips(tmp_path / "cifar10-train.zip", images, np.arange(20, dtype=np.uint8) % 10)
    data = load_cifar(tmp_path, 10, "train", tmp_path / "cache")
    assert np.array_equal(data.images, images.transpose(0, 3, 1, 2))


def test_mean_and_std_are_those_of_the_training_images(
    layout: ArchiveLayout, tmp_path: Path
) -> None:
    write_archive(tmp_path, layout, members(layout))
    train, test = (
        load_cifar(tmp_path, layout.classes, split, tmp_path / "cache")
        for split in ("train", "test")
    )
    assert (test.mean, test.std) == (train.mean, train.std)


def test_a_second_load_does_not_decode(
    ten: ArchiveLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_archive(tmp_path, ten, members(ten))
    first = load_cifar(tmp_path, 10, "train", tmp_path / "cache")
    monkeypatch.setattr(cifar, "_parse", None)
    second = load_cifar(tmp_path, 10, "train", tmp_path / "cache")
    assert np.array_equal(first.images, second.images)


def test_an_altered_archive_does_not_meet_the_old_cache(ten: ArchiveLayout, tmp_path: Path) -> None:
    for seed in (0, 1):
        contents = members(ten, seed)
        write_archive(tmp_path, ten, contents)
        data = load_cifar(tmp_path, 10, "train", tmp_path / "cache")
        assert data.images.tobytes() == expected(ten, "train", contents)[1]


def test_a_damaged_cache_is_rebuilt(ten: ArchiveLayout, tmp_path: Path) -> None:
    contents = members(ten)
    write_archive(tmp_path, ten, contents)
    load_cifar(tmp_path, 10, "train", tmp_path / "cache")
    path = next((tmp_path / "cache").glob("*.images.npy"))
    content = bytearray(path.read_bytes())
    content[-5] ^= 4
    path.write_bytes(content)
    data = load_cifar(tmp_path, 10, "train", tmp_path / "cache")
    assert data.images.tobytes() == expected(ten, "train", contents)[1]


def test_nothing_is_written_beside_the_data(ten: ArchiveLayout, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    archive = write_archive(data_dir, ten, members(ten))
    load_cifar(data_dir, 10, "train", tmp_path / "cache")
    assert list(data_dir.iterdir()) == [archive]


def test_missing_data_is_said_with_archive_flag_and_variable(
    layout: ArchiveLayout, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load_cifar(tmp_path, layout.classes, "train", tmp_path)
    for part in (str(tmp_path / layout.archive), layout.folder, "--data-dir", "SAMPA_DATA_DIR"):
        assert part in str(caught.value)


def test_a_missing_binary_file_is_named(ten: ArchiveLayout, tmp_path: Path) -> None:
    folder = tmp_path / ten.folder
    folder.mkdir()
    for name, content in members(ten).items():
        (folder / name).write_bytes(content)
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_3\.bin"):
        load_cifar(tmp_path, 10, "train", tmp_path / "cache")


def test_an_archive_without_a_file_is_said(ten: ArchiveLayout, tmp_path: Path) -> None:
    contents = members(ten)
    del contents["data_batch_3.bin"]
    write_archive(tmp_path, ten, contents)
    with pytest.raises(ValueError, match=r"incomplete: it has no data_batch_3\.bin"):
        load_cifar(tmp_path, 10, "train", tmp_path / "cache")


def test_a_file_that_is_short_of_an_image_is_named(ten: ArchiveLayout, tmp_path: Path) -> None:
    contents = members(ten)
    contents["data_batch_2.bin"] = contents["data_batch_2.bin"][:-3073]
    write_archive(tmp_path, ten, contents)
    with pytest.raises(ValueError, match=r"data_batch_2\.bin has 9219 bytes instead of 12292"):
        load_cifar(tmp_path, 10, "train", tmp_path / "cache")


def test_a_cut_off_archive_is_named(ten: ArchiveLayout, tmp_path: Path) -> None:
    path = write_archive(tmp_path, ten, members(ten))
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(ValueError, match=r"cifar-10-binary\.tar\.gz is damaged or incomplete"):
        load_cifar(tmp_path, 10, "train", tmp_path / "cache")


def test_a_label_out_of_range_is_said(ten: ArchiveLayout, tmp_path: Path) -> None:
    contents = members(ten)
    contents["data_batch_1.bin"] = b"\x0a" + contents["data_batch_1.bin"][1:]
    write_archive(tmp_path, ten, contents)
    with pytest.raises(ValueError, match=r"labels of .* must be in \[0, 10\), got 10"):
        load_cifar(tmp_path, 10, "train", tmp_path / "cache")


def test_a_list_of_too_few_classes_is_said(ten: ArchiveLayout, tmp_path: Path) -> None:
    write_archive(tmp_path, ten, {**members(ten), ten.names: b"one\ntwo\n"})
    with pytest.raises(ValueError, match=r"classes of .* must be complete"):
        load_cifar(tmp_path, 10, "train", tmp_path / "cache")


def test_an_archive_with_a_link_is_refused(ten: ArchiveLayout, tmp_path: Path) -> None:
    link = special(f"{ten.folder}/readme.html", tarfile.SYMTYPE, "/etc/passwd")
    write_tar(tmp_path / ten.archive, members(ten), link)
    with pytest.raises(ValueError, match="is refused"):
        load_cifar(tmp_path, 10, "train", tmp_path / "cache")


def test_what_failed_to_decode_leaves_no_cache(ten: ArchiveLayout, tmp_path: Path) -> None:
    write_archive(tmp_path, ten, {**members(ten), ten.names: b""})
    with pytest.raises(ValueError, match="complete"):
        load_cifar(tmp_path, 10, "train", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_the_cache_may_be_deleted(ten: ArchiveLayout, tmp_path: Path) -> None:
    write_archive(tmp_path, ten, members(ten))
    first = load_cifar(tmp_path, 10, "train", tmp_path / "cache").images.copy()
    shutil.rmtree(tmp_path / "cache")
    assert np.array_equal(first, load_cifar(tmp_path, 10, "train", tmp_path / "cache").images)


@pytest.mark.parametrize(
    ("classes", "split", "message"),
    [
        (11, "train", "classes must be 10 or 100"),
        (10, "val", "split must be one of 'train', 'test'"),
    ],
)
def test_unknown_choices_are_refused(
    classes: int, split: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        load_cifar(tmp_path, classes, split)
