"""Published weights in our ResNets, on the real test images of CIFAR-10."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sampa.lab.models.layers import count_parameters
from sampa.lab.models.resnet_cifar import load_published
from tests.marks import rest_is_slow

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PUBLISHED = {"resnet20-12fca82f.th": 91.73, "resnet56-4bfd9763.th": 93.39}  # percent
FIRST_THOUSAND = {"resnet20-12fca82f.th": 915, "resnet56-4bfd9763.th": 926}  # images


def data(*parts: str) -> Path:
    root = os.environ.get("SAMPA_DATA_DIR")
    if root is None:
        pytest.skip("SAMPA_DATA_DIR does not say where CIFAR-10 and the checkpoints are")
    path = Path(root, *parts)
    if not path.exists():
        pytest.skip(f"SAMPA_DATA_DIR has no {Path(*parts)}")
    return path


def checkpoint(name: str) -> Path:
    return data("checkpoints", "resnet-cifar10", name)


@pytest.fixture(scope="module")
def test_images() -> tuple[Tensor, Tensor]:
    """The 10,000 test images, normalized, and their classes."""
    pytest.importorskip("PIL")
    from sampa.lab.data.image_data import normalized
    from sampa.lab.data.strips import read_strips

    images, labels, _ = read_strips(data("cifar10", "cifar10-test.zip"), 10_000)
    return normalized(images, MEAN, STD), torch.from_numpy(labels)


def correct(name: str, x: Tensor, y: Tensor) -> int:
    model = load_published(checkpoint(name))
    with torch.inference_mode():
        return sum(
            int((model(a).argmax(1) == b).sum())
            for a, b in zip(x.split(250), y.split(250), strict=True)
        )


@pytest.mark.parametrize("name", rest_is_slow(PUBLISHED, "resnet20-12fca82f.th"))
def test_the_first_thousand_images_are_classified_as_measured(
    name: str, test_images: tuple[Tensor, Tensor]
) -> None:
    x, y = test_images
    n = correct(name, x[:1000], y[:1000])
    assert n == FIRST_THOUSAND[name]
    assert n / 10 == pytest.approx(PUBLISHED[name], abs=2)


@pytest.mark.slow
def test_all_test_images_give_the_published_accuracy(test_images: tuple[Tensor, Tensor]) -> None:
    """Of the smaller network: the other one takes three times as long, and shows no more."""
    name = "resnet20-12fca82f.th"
    assert correct(name, *test_images) == round(100 * PUBLISHED[name])


@pytest.mark.parametrize(
    ("name", "count"), [("resnet20-12fca82f.th", 269_722), ("resnet56-4bfd9763.th", 853_018)]
)
def test_the_file_tells_the_depth(name: str, count: int) -> None:
    assert count_parameters(load_published(checkpoint(name))) == count


def test_a_file_with_another_network_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {"fc.weight": torch.zeros(1)}}, tmp_path / "other.th")
    with pytest.raises(ValueError, match=r"must be a file of a CIFAR ResNet .* such as fc.weight"):
        load_published(tmp_path / "other.th")
