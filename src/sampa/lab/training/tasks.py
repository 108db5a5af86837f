"""What a run trains on: batches, the loss, and how a model is judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from sampa.execution.parallel.sharded import is_gathered
from sampa.execution.randomness import derive_seed
from sampa.lab.data.batches import ImageBatches
from sampa.lab.data.cifar import load_cifar
from sampa.lab.data.digits import load_digits
from sampa.lab.data.folders import load_folder
from sampa.lab.data.glue import TextData
from sampa.lab.data.hugging_face import load_hugging_face
from sampa.lab.data.image_data import ImageData, ImageSamples, resize, subset
from sampa.lab.data.image_files import SIZE
from sampa.lab.data.imagenet import load_imagenet
from sampa.lab.data.label_noise import human_labels, symmetric_noise
from sampa.lab.data.own import load_own
from sampa.lab.data.plans import Sequential, Shuffled, train_validation_split
from sampa.lab.models.own import logits_of
from sampa.lab.named import FOLDER, HUGGING_FACE, folder_of, is_code
from sampa.lab.training.own import require_named
from sampa.lab.training.ranks import rank, sum_over_ranks, world_size
from sampa.lab.training.run import DataSpec, Run
from sampa.messages import unknown

if TYPE_CHECKING:
    from sampa.lab.training.text import TextTask


@dataclass(frozen=True)
class ImageTask:
    """Classification of images, or of other inputs of one shape.

    A task has training batches, a loss with everything that some method asks for, and metrics on
    its splits. All ranks evaluate together and get the same numbers.

    The validation images are judged by the labels that training sees: a real user with noisy labels
    has no others to choose a model by. Test labels are clean.

    Attributes:
        batches: Training batches, a pure function of (seed, epoch, number).
        splits: Images by the name of the split, with those of them that count; "train" shows how
            much is learned by heart.
        label_smoothing: Of the training loss.
        upscale: Image side that the model sees.
        eval_batch_size: Of each rank.
        metric: The name of the number that models are chosen by; more is better.
    """

    batches: ImageBatches
    splits: dict[str, tuple[ImageSamples, np.ndarray]]
    label_smoothing: float
    upscale: int | None = None
    eval_batch_size: int = 500
    metric: str = "accuracy"

    @property
    def num_classes(self) -> int:
        return len(self.batches.data.classes)

    def model_options(self) -> dict[str, Any]:
        channels = self.batches.data.channels
        image = {} if channels is None else {"in_channels": channels}
        return {"num_classes": self.num_classes, **image}

    def loss(self, model: nn.Module, batch: Any) -> sampa.Loss:
        images, labels, index = batch
        logits = self._logits(model, images)
        per_sample = F.cross_entropy(
            logits, labels, reduction="none", label_smoothing=self.label_smoothing
        )
        return sampa.Loss(per_sample.mean(), per_sample, logits, labels, index)

    def _logits(self, model: nn.Module, images: Tensor) -> Tensor:
        if self.upscale is not None:
            images = F.interpolate(images, size=self.upscale, mode="bicubic", antialias=True)
        return logits_of(model(images), len(images), self.num_classes)

    @torch.inference_mode()
    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        data, indices = self.splits[split]
        device = next(model.parameters()).device
        sums = torch.zeros(4, dtype=torch.float64)
        plan = Sequential(indices, self.eval_batch_size, shard=rank(), shards=world_size())
        for images, labels, _ in ImageBatches(data, plan):
            logits = self._logits(model, images.to(device)).cpu()
            best = logits.topk(min(5, self.num_classes), dim=1).indices == labels[:, None]
            loss = F.cross_entropy(logits, labels, reduction="sum")
            sums += torch.tensor(
                [len(labels), best[:, 0].sum(), best.sum(), loss], dtype=torch.float64
            )
        if plan.is_short and is_gathered(model):  # the others need this rank's weights once more
            self._logits(model, data.inputs(indices[:1], None).to(device))
        n, top1, top5, loss = sum_over_ranks(sums).tolist()
        return {"accuracy": 100 * top1 / n, "top5": 100 * top5 / n, "loss": loss / n}


def open_task(
    run: Run, data_dir: Path | None, *, shard: int = 0, shards: int = 1
) -> ImageTask | TextTask:
    """The task of a run, with this process's share of each batch.

    Raises:
        ValueError: If the data set is not known, or is code that the user did not name.
        FileNotFoundError: Saying where to get it.
    """
    require_named(run)
    if run.data.name.startswith("glue/"):
        from sampa.lab.training.text import open_glue_task  # needs the extra nlp

        return open_glue_task(run, data_dir, shard=shard, shards=shards)
    train, test = load_data(run, data_dir)
    if isinstance(train, TextData):
        from sampa.lab.training.text import open_text_task

        assert isinstance(test, TextData)
        return open_text_task(run, train, test, shard=shard, shards=shards)
    assert isinstance(test, ImageSamples)
    kept, held_back = train_validation_split(len(train), run.data.validation, run.seed)
    everything = (test, np.arange(len(test)))
    # Where nothing is held back, nothing is chosen: the test images only show how a run gets on.
    validation = (train, held_back) if len(held_back) else everything
    seed = derive_seed(run.seed, "batches")
    plan = Shuffled(kept, run.batch_size, seed, shard, shards)
    return ImageTask(
        ImageBatches(train, plan, seed if run.data.augment else None),
        {"train": (train, kept), "validation": validation, "test": everything},
        run.label_smoothing,
        run.data.upscale,
    )


IMAGE_SETS = ("cifar10", "cifar100", "digits", "imagenet")

AnyData = ImageSamples | TextData


def load_data(run: Run, data_dir: Path | None) -> tuple[AnyData, AnyData]:
    """Training samples with the labels that training sees, and test samples with clean ones."""
    spec = run.data
    train, test = _loaded(spec, data_dir)
    if isinstance(train, TextData):
        return train, test
    if spec.human_labels is not None:
        train = replace(train, labels=human_labels(train.labels, spec.human_labels, data_dir))
    if spec.subset is not None:
        train = subset(train, spec.subset, seed=0)
    if spec.size is not None and isinstance(train, ImageData) and isinstance(test, ImageData):
        train, test = resize(train, spec.size), resize(test, spec.size)
    seed = derive_seed(run.seed, "label noise")
    noisy = symmetric_noise(train.labels, len(train.classes), spec.label_noise, seed)
    return replace(train, labels=noisy), test


def _loaded(spec: DataSpec, data_dir: Path | None) -> tuple[AnyData, AnyData]:
    name, size = spec.name, spec.size
    if name.startswith(FOLDER):
        return load_folder(folder_of(name), size)
    if name.startswith(HUGGING_FACE):
        return load_hugging_face(folder_of(name), size)
    if is_code(name):
        return load_own(name, data_dir)
    if name == "imagenet":
        side = size or SIZE
        return load_imagenet(data_dir, "train", side), load_imagenet(data_dir, "val", side)
    if name == "digits":
        return load_digits("train"), load_digits("test")
    if name in ("cifar10", "cifar100"):
        classes = 10 if name == "cifar10" else 100
        return load_cifar(data_dir, classes, "train"), load_cifar(data_dir, classes, "test")
    own = "; your own is named as folder:PATH, hf:PATH or file.py:function"
    raise ValueError(unknown("data", name, (*IMAGE_SETS, "glue/TASK")) + own)
