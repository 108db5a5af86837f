"""Trained weights: files of state dictionaries, and packages that carry them."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from sampa.lab.files import LARGEST_FILE, open_file

FilePath = str | os.PathLike[str]
M = TypeVar("M", bound=nn.Module)


def read_weights(path: FilePath) -> dict[str, Tensor]:
    """The tensors of a state dictionary saved with `torch.save`, alone or under "state_dict".

    Such files are pickles, and trusting them is the user's decision; they are read with
    `weights_only=True`, which refuses everything but tensors and plain containers.

    Raises:
        ValueError: If the file holds something else.
    """
    with open_file(Path(path), LARGEST_FILE) as stream:
        try:
            saved = torch.load(stream, map_location="cpu", weights_only=True)
        except Exception as error:  # of many kinds: a pickle of something else, a damaged zip
            kind = type(error).__name__  # its message tells how to load anything at all
            rule = "path must be a file of tensors alone, as torch.save writes a state dictionary"
            raise ValueError(f"{rule}, got {os.fspath(path)!r} ({kind})") from error
    weights = saved.get("state_dict", saved) if isinstance(saved, dict) else None
    if not weights or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ValueError(f"path must be a file with a state dictionary, got {os.fspath(path)!r}")
    # `_blocks.0._bn1.weight`, as a package has it, is our `blocks.0.bn1.weight`.
    own = {n: ".".join(part.removeprefix("_") for part in n.split(".")) for n in weights}
    return {own[name].removeprefix("module."): value for name, value in weights.items()}


def started_from(path: FilePath, model: M) -> M:
    """The model with the weights of a file; a head for other classes keeps the values it has.

    Args:
        path: The file, see `read_weights`.
        model: The network to change in place; its head is its last linear layer.

    Raises:
        ValueError: If they are another network's.
    """
    own, weights = model.state_dict(), read_weights(path)
    *_, head = (name for name, part in model.named_modules() if isinstance(part, nn.Linear))
    names = (f"{head}.weight", f"{head}.bias")
    if all(name in weights for name in names) and own[names[1]].shape != weights[names[1]].shape:
        weights = weights | {name: own[name] for name in names}
    require_fitting(path, (n for n in own if not fits(own[n], weights.get(n), n)))
    extra = sorted(weights.keys() - own.keys())
    if extra:
        raise ValueError(
            f"path must be of this network, got {os.fspath(path)!r} of another, with {extra[0]}"
        )
    model.load_state_dict(weights)
    return model


def fits(own: Tensor, saved: Tensor | None, name: str) -> bool:
    """Old files lack the counters of batch normalization, which torch then starts at 0."""
    if saved is None:
        return name.endswith("num_batches_tracked")
    return saved.shape == own.shape


def require_fitting(path: FilePath, absent: Iterable[str]) -> None:
    """Refuse weights that would leave some of the network at its random start."""
    names = sorted(absent)
    if names:
        more = f" and {len(names) - 1} others" if len(names) > 1 else ""
        raise ValueError(
            "path must hold all weights of this network but the head's, "
            f"got {os.fspath(path)!r} without a fitting {names[0]}{more}"
        )


def package_folder(package: str, requirement: str, what: str) -> Path:
    """The folder of an installed package, found without running its code.

    Raises:
        ModuleNotFoundError: With the command that installs it.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            f"{what} needs the package {package}, which is not installed; "
            f"pip install --no-deps {requirement}"
        )
    return Path(spec.origin).parent
