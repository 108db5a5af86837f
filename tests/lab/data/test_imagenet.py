"""A small tree of image files in ImageNet's shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sampa.lab.data.batches import ImageBatches
from sampa.lab.data.image_data import subset
from sampa.lab.data.image_files import MEAN, STD, ImageFiles, center, random_box, random_part
from sampa.lab.data.imagenet import load_imagenet
from sampa.lab.data.plans import Sequential, Shuffled

CLASSES = ("n01440764", "n01443537", "n01484850")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imagenet")
    random = np.random.default_rng(0)
    for split, number in (("train", 4), ("val", 2)):
        for wnid in CLASSES:
            folder = root / split / wnid
            folder.mkdir(parents=True)
            for i in range(number):
                size = (60 + 7 * i, 50, 3)
                pixels = random.integers(0, 256, size, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{wnid}_{i}.JPEG")
    return root


@pytest.fixture
def train(tree: Path) -> ImageFiles:
    return load_imagenet(tree, "train", size=32)


def test_labels_follow_the_sorted_folders(train: ImageFiles) -> None:
    assert train.classes == CLASSES
    assert train.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_the_tree_may_be_in_a_folder_of_its_own(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "imagenet").symlink_to(tree)
    assert len(load_imagenet(tmp_path, "val")) == 6


def test_images_for_evaluation_have_the_size_asked_for(train: ImageFiles) -> None:
    pixels = train.pixels(np.arange(12))
    assert (pixels.shape, pixels.dtype) == ((12, 3, 32, 32), np.uint8)


def test_the_center_of_an_image_of_256_is_cut_without_resizing() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 256, 3), dtype=np.uint8)
    cut = np.asarray(center(Image.fromarray(pixels), 224))
    assert np.array_equal(cut, pixels[38 : 38 + 224, 16 : 16 + 224])


def test_a_random_part_is_a_function_of_its_word(train: ImageFiles) -> None:
    index, words = np.arange(4), np.arange(4, dtype=np.uint64)
    assert np.array_equal(train.augmented(index, words), train.augmented(index, words))


def test_different_words_give_different_parts(train: ImageFiles) -> None:
    parts = train.augmented(np.zeros(20, np.int64), np.arange(20, dtype=np.uint64))
    assert len({part.tobytes() for part in parts}) == 20


def test_the_number_of_threads_changes_nothing(train: ImageFiles) -> None:
    index, words = np.arange(12), np.arange(12, dtype=np.uint64)
    alone = replace(train, threads=1).augmented(index, words)
    assert np.array_equal(alone, replace(train, threads=7).augmented(index, words))


@pytest.mark.parametrize(("width", "height"), [(500, 375), (32, 32), (1, 1), (1000, 20)])
def test_random_boxes_stay_inside_the_image(width: int, height: int) -> None:
    for draws in np.random.default_rng(0).random((200, 40)).tolist():
        left, top, right, bottom = random_box(width, height, draws)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_random_boxes_have_the_areas_and_shapes_they_should() -> None:
    boxes = [random_box(1000, 1000, d) for d in np.random.default_rng(0).random((500, 40)).tolist()]
    sides = np.array([(right - left, bottom - top) for left, top, right, bottom in boxes])
    areas, shapes = sides.prod(1) / 1e6, sides[:, 0] / sides[:, 1]
    # A side is rounded to a pixel of at least 245: 0.4 % of an area or a shape.
    assert 0.08 * 0.996 <= areas.min() < 0.1 < 0.9 < areas.max() <= 1
    assert 0.75 * 0.996 <= shapes.min() < 0.8 < 1.25 < shapes.max() <= 4 / 3 * 1.004


def test_where_no_box_fits_the_largest_central_one_is_taken() -> None:
    assert random_box(1000, 20, [0.99] * 40) == (486, 0, 513, 20)


def test_half_of_the_parts_are_mirrored() -> None:
    ramp = np.arange(64, dtype=np.uint8)[None, :, None].repeat(64, 0).repeat(3, 2)
    image = Image.fromarray(ramp)
    parts = (np.asarray(random_part(image, 16, word))[0, :, 0] for word in range(200))
    mirrored = sum(int(part[0]) > int(part[-1]) for part in parts)
    assert 80 <= mirrored <= 120  # 100, give or take three standard deviations


def test_training_batches_take_any_order(train: ImageFiles) -> None:
    batches = ImageBatches(train, Shuffled(np.arange(len(train)), 4, seed=0), augment_seed=0)
    later = batches.batch(1, 2)
    fresh = ImageBatches(train, Shuffled(np.arange(len(train)), 4, seed=0), augment_seed=0)
    for number in range(3):
        fresh.batch(0, number)
    assert all(torch.equal(a, b) for a, b in zip(later, fresh.batch(1, 2), strict=True))


def test_evaluation_batches_hold_every_image_once(tree: Path) -> None:
    batches = ImageBatches(load_imagenet(tree, "val", size=16), Sequential(np.arange(6), 4))
    index = torch.cat([index for _, _, index in batches])
    assert index.tolist() == list(range(6))


def test_a_subset_of_files_keeps_the_classes_even(train: ImageFiles) -> None:
    assert subset(train, 6, seed=0).labels.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_gray_image_gets_three_channels(tmp_path: Path) -> None:
    Image.fromarray(np.full((40, 40), 7, np.uint8)).save(tmp_path / "gray.png")
    files = ImageFiles(
        np.zeros(1, np.int64), ("a",), MEAN, STD, (str(tmp_path / "gray.png"),), size=8
    )
    assert np.array_equal(files.pixels(np.arange(1)), np.full((1, 3, 8, 8), 7, np.uint8))


def test_a_cut_off_image_is_named(tmp_path: Path, train: ImageFiles) -> None:
    path = tmp_path / "cut.JPEG"
    path.write_bytes(Path(train.paths[0]).read_bytes()[:-500])
    files = replace(train, paths=(str(path),), labels=np.zeros(1, np.int64))
    with pytest.raises(ValueError, match=r"cut\.JPEG cannot be decoded"):
        files.pixels(np.arange(1))


def test_missing_folders_are_said_with_their_source(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train[\s\S]*ILSVRC2012_img_train\.tar"):
        load_imagenet(tmp_path, "train")


def test_splits_with_different_classes_are_refused(tmp_path: Path) -> None:
    for folder in ("train/a", "train/b", "val/a"):
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(ValueError, match="same classes; b is in one of them"):
        load_imagenet(tmp_path, "train")


def test_a_tree_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train" / "a").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"number of images \(JPEG or PNG\) in .* must be > 0"):
        load_imagenet(tmp_path, "train")
