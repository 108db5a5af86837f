"""A run: everything that decides its result, as one frozen value.

A recipe is a `Run` by name; the command line replaces a few of its fields.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from sampa.lab.files import read_json
from sampa.lab.training.fields import read_fields
from sampa.messages import require, require_choice

SEED = 1000  # of runs that choose something: reported seeds count from 0


@dataclass(frozen=True)
class DataSpec:
    """Which data, and what is done to it.

    Attributes:
        name: cifar10, cifar100, digits, imagenet, or glue/<task>; or the user's own: folder:PATH,
            hf:PATH, or a function, file.py:name or package.module:name.
        size: Image side after averaging down, or of files of any size (None: the original, or 224),
            or tokens after which text is cut.
        subset: Number of training samples drawn from the training set; None takes all.
        upscale: Image side that the model sees, by bicubic interpolation.
        augment: Random crops after padding with 4 pixels, and horizontal flips.
        label_noise: Share of training labels replaced by another class.
        human_labels: A column of CIFAR-10N in place of the clean labels.
        validation: Share of the training samples held back for choosing the model.
    """

    name: str
    size: int | None = None
    subset: int | None = None
    upscale: int | None = None
    augment: bool = True
    label_noise: float = 0.0
    human_labels: str | None = None
    validation: float = 0.1

    def __post_init__(self) -> None:
        require("label_noise", self.label_noise, 0 <= self.label_noise < 1, "in [0, 1)")
        require("validation", self.validation, 0 <= self.validation < 1, "in [0, 1)")

    def noise_in_words(self) -> str:
        """What is wrong with the labels that are held back from training; empty if nothing."""
        if self.validation and self.human_labels not in (None, "clean"):
            return f"The labels are people's, wrong ones included (CIFAR-10N, {self.human_labels})."
        if self.validation and self.label_noise:
            share = f"{100 * self.label_noise:g} %"
            return f"{share} of the validation labels are wrong, as in training."
        return ""


@dataclass(frozen=True)
class ModelSpec:
    """A network by name, with its options (such as the path of pretrained weights).

    The name is one of `models.MODELS`; or the user's own: hf:PATH, or a class or function,
    file.py:name or package.module:name.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BaseSpec:
    """The base optimizer."""

    kind: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        require_choice("kind", self.kind, ("sgd", "adamw"))
        require("lr", self.lr, 0 < self.lr < math.inf, "finite and > 0")


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a pure function of the place in the run.

    Attributes:
        kind: "cosine" falls to 0 and changes once an epoch, as the published script does; "linear"
            falls to 0 step by step; "constant" stays.
        warmup: Share of the run in which the rate first rises from 0.
    """

    kind: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: float = 0.0

    def factor(self, position: int, per_epoch: int, epochs: int) -> float:
        """What the base rate is multiplied by at a batch of the run."""
        total = per_epoch * epochs
        if position < self.warmup * total:
            return (position + 1) / (self.warmup * total)
        if self.kind == "constant":
            return 1.0
        if self.kind == "cosine":
            return 0.5 * (1 + math.cos(math.pi * (position // per_epoch) / epochs))
        rising = self.warmup * total
        return max(0.0, (total - position) / max(total - rising, 1))


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        name: The recipe's name.
        about: What it is, in one line; reduced editions say so.
        method: A name from `sampa.METHODS`, or `sampa-0.1` and the like.
        rhos: ρ by method, where the experiment differs from the method's default.
        method_options: Further hyper-parameters of the method.
        epochs: Passes over the training images.
        base_epochs: Passes for the plain base optimizer, if it is given more (as in the paper).
        select: Which model is reported: the best on the validation images, or the last.
        sources: Of what is the user's own (recipe, data, model): where it is, and its hash.
        from_file: Whether the run was read from a file: what that names is then not executed. It is
            never saved.
    """

    name: str
    about: str
    data: DataSpec
    model: ModelSpec
    base: BaseSpec = BaseSpec()
    schedule: Schedule = Schedule()
    method: str = "sampa"
    rho: float | None = None
    lam: float | None = None
    rhos: dict[str, float] = field(default_factory=dict)
    method_options: dict[str, Any] = field(default_factory=dict)
    epochs: int = 200
    base_epochs: int | None = None
    batch_size: int = 128
    label_smoothing: float = 0.1
    max_norm: float | None = None
    select: Literal["best", "last"] = "best"
    amp: Literal["bf16", "fp16"] | None = None
    compile: bool = False
    seed: int = 0
    sources: dict[str, dict[str, str]] = field(default_factory=dict)
    from_file: bool = field(default=False, compare=False, repr=False, metadata={"saved": False})

    def __post_init__(self) -> None:
        require("epochs", self.epochs, self.epochs >= 1, ">= 1")
        require("batch_size", self.batch_size, self.batch_size >= 1, ">= 1")
        require("seed", self.seed, self.seed >= 0, ">= 0")
        choosable = self.select == "last" or self.data.validation > 0
        require("select", self.select, choosable, "'last' if no images are held back to choose by")

    def changed(self, **changes: Any) -> Run:
        """The same run with some fields replaced; None leaves a field as it is."""
        return replace(self, **{k: v for k, v in changes.items() if v is not None})

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "from_file"}

    @staticmethod
    def from_json(values: dict[str, Any], where: str = "run") -> Run:
        """The run that `as_json` describes; `where` is its name in messages.

        Raises:
            ValueError: If a field is unknown, missing or not of its type.
        """
        return replace(read_fields(Run, values, where), from_file=True)


def read_run(file: Path) -> Run:
    """The run that a file describes, such as the run.json that a run leaves behind.

    Raises:
        ValueError: If it describes none.
        OSError: If it cannot be read.
    """
    saved = read_json(file)
    is_run = isinstance(saved, dict) and isinstance(saved.get("run"), dict)
    require(str(file), type(saved).__name__, is_run, 'an object with "run", as sampa writes it')
    return Run.from_json(saved["run"])
