"""What every image network does: shapes, gradients, seeds, and its own structure."""

import pytest
import torch
import torch.nn.functional as F

from sampa.lab.models import MODELS, build
from sampa.lab.models.resnet_cifar import BasicBlock, CifarResNet
from sampa.lab.models.small import MLP
from sampa.lab.models.wide_resnet import wrn

TEXT = {"bert-base", "bert-mini", "minilm"}
# Those that take any number of channels; trained weights and ViT have three.
THREE_CHANNELS = ("vit-b-16", "efficientnet-lite0-imagenet")
IMAGE = [name for name in MODELS if name not in TEXT and name not in THREE_CHANNELS]
SMALL = ["mlp", "conv3", "pooled-resnet", "resnet8", "resnet20", "wrn-28-2", "efficientnet-lite0"]
SIZES = {"mlp": 8, "wrn-28-10": 8, "wrn-28-10-sampa-script": 8, "resnet50": 64}


def images(name: str, channels: int, n: int = 2) -> torch.Tensor:
    size = SIZES.get(name, 32)
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", IMAGE)
def test_the_output_has_a_number_for_each_image_and_class(name: str) -> None:
    model = build(name, num_classes=7, in_channels=1).eval()
    with torch.inference_mode():
        assert model(images(name, channels=1)).shape == (2, 7)


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_receives_a_gradient(name: str) -> None:
    model = build(name, num_classes=10, in_channels=3)
    F.cross_entropy(model(images(name, channels=3)), torch.tensor([0, 1])).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_weights(name: str) -> None:
    def weights() -> list[torch.Tensor]:
        torch.manual_seed(3)
        return list(build(name).state_dict().values())

    assert all(torch.equal(a, b) for a, b in zip(weights(), weights(), strict=True))


@pytest.mark.parametrize("name", ["resnet20", "vgg19-bn"])
def test_convolutions_start_with_kaimings_variance(name: str) -> None:
    torch.manual_seed(0)
    last = [m for m in build(name).modules() if isinstance(m, torch.nn.Conv2d)][-1]
    assert last.weight.std().item() == pytest.approx((2 / (9 * last.out_channels)) ** 0.5, rel=0.02)


def test_an_option_a_shortcut_has_no_parameters() -> None:
    block = BasicBlock(16, 32, stride=2)
    assert {name.split(".")[0] for name, _ in block.named_parameters()} == {
        "conv1",
        "bn1",
        "conv2",
        "bn2",
    }


def test_an_option_a_shortcut_takes_every_second_pixel_and_pads_both_sides() -> None:
    x = torch.randn(1, 4, 6, 6)
    out = BasicBlock(4, 8, stride=2).shortcut(x)
    assert torch.equal(out[:, 2:6], x[:, :, ::2, ::2])
    assert out[:, :2].count_nonzero() == out[:, 6:].count_nonzero() == 0


def test_the_script_edition_starts_with_equal_logits() -> None:
    model = build("wrn-28-2-sampa-script").eval()
    assert model(images("wrn-28-2-sampa-script", channels=3)).count_nonzero() == 0


def test_dropout_is_off_unless_asked_for_in_wide_resnets() -> None:
    model = build("wrn-28-2")
    x = images("wrn-28-2", channels=3)
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize("name", ["conv3", "pooled-resnet"])
@pytest.mark.parametrize("size", [8, 16, 32])
def test_small_networks_take_small_images(name: str, size: int) -> None:
    model = build(name, in_channels=1, width=4)
    assert model(torch.randn(2, 1, size, size)).shape == (2, 10)


def test_an_impossible_depth_of_a_resnet_is_refused() -> None:
    with pytest.raises(ValueError, match=r"depth must be 6n\+2: .*, got 18"):
        CifarResNet(18)


def test_an_impossible_depth_of_a_wide_resnet_is_refused() -> None:
    with pytest.raises(ValueError, match=r"depth must be 6n\+4: .*, got 20"):
        wrn(20, 2)


def test_an_mlp_without_hidden_layers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"hidden must be >= 1, got 0"):
        MLP(hidden=0)
