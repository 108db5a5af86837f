"""ViT, BERT and MiniLM: logits, local weights, and what is said when something is missing."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from sampa.lab.models import build
from sampa.lab.models.transformer import Logits

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed"
)


def words(n: int = 2, length: int = 6) -> dict[str, torch.Tensor]:
    ids = torch.arange(1, n * length + 1).view(n, length)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.fixture
def saved_bert(tmp_path: Path) -> tuple[Path, nn.Module]:
    """A tiny BERT with five classes, saved as its users publish theirs."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=32,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        num_labels=5,
    )
    model = transformers.BertForSequenceClassification(config)
    model.save_pretrained(tmp_path)
    return tmp_path, model


@needs_transformers
@pytest.mark.parametrize("name", ["bert-mini", "bert-base"])
def test_a_batch_of_words_gives_logits_as_a_tensor(name: str) -> None:
    with torch.inference_mode():
        assert build(name, num_classes=3)(**words()).shape == (2, 3)


@needs_transformers
def test_a_batch_of_images_gives_logits_as_a_tensor() -> None:
    model = build("vit-b-16", num_classes=3, in_channels=1, image_size=32)
    with torch.inference_mode():
        assert model(torch.zeros(2, 1, 32, 32)).shape == (2, 3)


@needs_transformers
def test_the_same_seed_gives_the_same_weights() -> None:
    def weights() -> list[torch.Tensor]:
        torch.manual_seed(3)
        return list(build("bert-mini").state_dict().values())

    assert all(torch.equal(a, b) for a, b in zip(weights(), weights(), strict=True))


def test_weights_of_a_folder_are_loaded_below_a_new_head(
    saved_bert: tuple[Path, nn.Module],
) -> None:
    path, saved = saved_bert
    loaded = build("bert-base", num_classes=3, path=path)
    assert isinstance(loaded, Logits)
    body = saved.get_submodule("bert").state_dict()
    found = loaded.model.get_submodule("bert").state_dict()
    assert all(torch.equal(body[name], found[name]) for name in body)
    assert loaded(**words()).shape == (2, 3)


def test_loaded_weights_are_ready_to_train(saved_bert: tuple[Path, nn.Module]) -> None:
    assert build("bert-base", path=saved_bert[0]).get_submodule("model").training


def test_loading_prints_nothing(
    saved_bert: tuple[Path, nn.Module], capfd: pytest.CaptureFixture[str]
) -> None:
    build("bert-base", num_classes=3, path=saved_bert[0])
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_lacks_weights_is_refused(saved_bert: tuple[Path, nn.Module]) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    path, _ = saved_bert
    weights = safetensors.load_file(path / "model.safetensors")
    del weights["bert.pooler.dense.bias"]
    safetensors.save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"a fitting bert\.pooler\.dense\.bias"):
        build("bert-base", path=path)


def test_weights_that_are_not_safetensors_are_refused(
    saved_bert: tuple[Path, nn.Module],
) -> None:
    path, saved = saved_bert
    (path / "model.safetensors").unlink()
    torch.save(saved.state_dict(), path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        build("bert-base", path=path)


@needs_transformers
def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"path must be a folder with config\.json"):
        build("vit-b-16", path=tmp_path)


def test_without_transformers_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"bert-base needs .*pip install 'sampa\[nlp\]'"):
        build("bert-base")


@pytest.mark.slow
def test_transformers_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, sampa.lab.models as m; m.build('mlp'); print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
