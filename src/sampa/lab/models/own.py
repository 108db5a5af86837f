"""Networks of the user's own: a class or function of theirs, or a folder of Hugging Face."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sampa.lab.models.transformer import classifier, transformers
from sampa.lab.named import HUGGING_FACE, called, folder_of, load_code
from sampa.messages import require, unknown


def build_own(name: str, options: Mapping[str, Any], offered: Mapping[str, Any]) -> nn.Module:
    """The network that the user named; new weights come from torch's global generator.

    Args:
        name: hf:PATH, file.py:name or package.module:name.
        options: The user's, all of which it must take.
        offered: What is known of the data (`num_classes`, and for images `in_channels`); a class or
            function gets those that it has parameters for.

    Raises:
        ValueError: If it needs other arguments, or makes no network.
    """
    if name.startswith(HUGGING_FACE):
        return _from_folder(folder_of(name), {**offered, **options})
    factory = load_code(name, "model")
    model = called(factory, name, **_arguments(factory, name, options, offered))
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise ValueError(f"{name} must make a torch.nn.Module, got {kind}")
    return model.train()


def _arguments(
    factory: Callable[..., Any], name: str, options: Mapping[str, Any], offered: Mapping[str, Any]
) -> dict[str, Any]:
    parameters = inspect.signature(factory).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for option in options:
        if option not in parameters and not takes_all:
            raise ValueError(unknown(f"option of {name}", option, parameters))
    given = {**{n: v for n, v in offered.items() if n in parameters}, **options}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters.values() if p.default is p.empty]
    missing = [n for n in needed if n not in given and parameters[n].kind not in variable]
    if missing:
        raise ValueError(
            f"{name} needs {', '.join(missing)}, and sampa gives {', '.join(offered)} alone; give "
            "it a default, write a function that builds the network, or put it into the options "
            'of a recipe: ModelSpec(name, {"' + missing[0] + '": ...})'
        )
    return given


def _from_folder(folder: Path, options: dict[str, Any]) -> nn.Module:
    package: Any = transformers("a folder of Hugging Face")
    channels = options.pop("in_channels", None)
    labels = {"num_labels": options.pop("num_classes"), **options}
    if channels is None:
        kind = package.AutoModelForSequenceClassification
    else:
        kind = package.AutoModelForImageClassification
    model = classifier(kind, None, labels, folder)
    expected = getattr(model.model.config, "num_channels", None)
    if None not in (channels, expected) and channels != expected:
        raise ValueError(f"{folder} must be for images of {channels} channels, got {expected}")
    return model


def logits_of(output: object, samples: int, classes: int) -> Tensor:
    """What a network returned, in single precision.

    Raises:
        ValueError: If it is not what a loss can be made of.
    """
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    rule = f"logits of shape ({samples}, {classes}), one row per sample and one column per class"
    require("what the model returns", shape, shape == (samples, classes), rule)
    assert isinstance(output, Tensor)
    return output.float()
