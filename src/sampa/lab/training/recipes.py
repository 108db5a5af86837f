"""Recipes: named functions, each returning a complete run.

The paper's experiments with its exact settings, and reduced editions for two CPU cores whose names
end in "-cpu". A new one is a function of a few lines deriving from an old one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sampa.lab.training.run import BaseSpec, DataSpec, ModelSpec, Run, Schedule
from sampa.messages import unknown

Recipe = Callable[[], Run]

CIFAR_MODELS = ("resnet32", "resnet56", "vgg19-bn", "densenet121", "wrn-28-2", "wrn-28-10")
SAM_RHO = {10: 0.05, 100: 0.1}  # by the number of CIFAR's classes
NOISE_LEVELS = (0, 20, 40, 60, 80)
HUMAN_LABELS = ("aggre", "worse", "random1", "random2", "random3")  # of CIFAR-10N
GLUE_RHO = {"cola": 0.01, "rte": 0.005, "sts-b": 0.005}  # 0.05 for the other tasks
GLUE_TASKS = ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli")
GLUE_FIVE_EPOCHS = ("mrpc", "wnli")


def cifar(classes: int, model: str) -> Run:
    """CIFAR-10 and CIFAR-100 as in the paper's tables."""
    return Run(
        name=f"cifar{classes}-{model}",
        about=f"the paper's CIFAR-{classes} setting: {model}, 200 epochs (the base optimizer 400)",
        data=DataSpec(f"cifar{classes}"),
        model=ModelSpec(model),
        rhos=sam_rhos(SAM_RHO[classes]),
        epochs=200,
        base_epochs=400,
    )


def sam_rhos(sam_rho: float) -> dict[str, float]:
    """SAMPa-0 takes SAM's ρ, SAMPa-0.2 twice that (section 5.1)."""
    return {"sam": sam_rho, "sampa-0": sam_rho, "sampa": 2 * sam_rho, "sampa-0.2": 2 * sam_rho}


def imagenet() -> Run:
    """ImageNet-1K as in the paper's table."""
    return Run(
        name="imagenet-resnet50",
        about="the paper's ImageNet-1K setting: ResNet-50, 90 epochs",
        data=DataSpec("imagenet", validation=0.0),
        model=ModelSpec("resnet50"),
        base=BaseSpec(weight_decay=1e-4),
        rhos=sam_rhos(0.05),
        epochs=90,
        batch_size=256,
        select="last",
    )


def vit(classes: int) -> Run:
    """Fine-tuning ViT-B/16 on CIFAR as in the paper; what it does not name is as for `cifar`."""
    return Run(
        name=f"cifar{classes}-vit-b-16",
        about="the paper's fine-tuning of ViT-B/16; pass pretrained weights with --model-path",
        data=DataSpec(f"cifar{classes}", upscale=224),
        model=ModelSpec("vit-b-16"),
        base=BaseSpec("adamw", lr=1e-4),
        rhos=sam_rhos(SAM_RHO[classes]),
        epochs=10,
        max_norm=1.0,
    )


def glue(task: str) -> Run:
    """BERT-base on a GLUE task as in the paper: λ = 0.1, ρ not doubled."""
    rho = GLUE_RHO.get(task, 0.05)
    return Run(
        name=f"glue-{task}",
        about=f"the paper's GLUE setting: BERT-base on {task}",
        data=DataSpec(f"glue/{task}", augment=False, validation=0.0),
        model=ModelSpec("bert-base"),
        base=BaseSpec("adamw", lr=2e-5, weight_decay=0.01),
        schedule=Schedule("linear"),
        method="sampa-0.1",
        rhos=dict.fromkeys(("sam", "sampa-0", "sampa-0.1", "sampa"), rho),
        epochs=5 if task in GLUE_FIVE_EPOCHS else 3,
        batch_size=32,
        label_smoothing=0.0,
        max_norm=1.0,
        select="last",
    )


def noisy(percent: int) -> Run:
    """Label noise on CIFAR-10 with ResNet-32: the same ρ for all methods, smaller at 80 %."""
    rho = 0.01 if percent == 80 else 0.1
    return replace(
        cifar(10, "resnet32"),
        name=f"cifar10-noise{percent}",
        about=f"the paper's label-noise setting: ResNet-32, {percent} % symmetric noise",
        data=DataSpec("cifar10", label_noise=percent / 100),
        rhos=dict.fromkeys(("sam", "sampa-0", "sampa", "sampa-0.2"), rho),
    )


def human_noise(column: str) -> Run:
    """CIFAR-10N: labels as people gave them."""
    return replace(
        noisy(0),
        name=f"cifar10n-{column}",
        about=f"CIFAR-10N's human labels ({column}), ResNet-32",
        data=DataSpec("cifar10", human_labels=column),
    )


# ---- reduced editions ------------------------------------------------------------------------


def digits_cpu() -> Run:
    """scikit-learn's embedded digits with 40 % wrong labels: seconds on a laptop."""
    return Run(
        name="digits-cpu",
        about="reduced: 8x8 digits, 40 % random labels, a small convolutional net, 20 epochs",
        data=DataSpec("digits", augment=False, label_noise=0.4),
        model=ModelSpec("conv3", options={"width": 16}),
        base=BaseSpec(lr=0.05),
        rhos={"sam": 0.1, "sampa-0": 0.1, "sampa": 0.2},
        epochs=20,
        base_epochs=40,
        batch_size=64,
        label_smoothing=0.0,
    )


def cifar10_cpu() -> Run:
    """Real CIFAR-10, reduced so that its question stays alive: the net can memorize its labels."""
    return Run(
        name="cifar10-cpu",
        about="reduced: 5,000 CIFAR-10 images at 16x16, a three-layer conv net, 20 epochs (SGD 40)",
        data=DataSpec("cifar10", size=16, subset=5000, augment=False),
        model=ModelSpec("conv3", options={"width": 32}),
        base=BaseSpec(lr=0.05),
        rhos=sam_rhos(0.1),
        epochs=20,
        base_epochs=40,
        batch_size=64,
        label_smoothing=0.1,
    )


def cifar10_noise_cpu(percent: int) -> Run:
    """The reduced edition with wrong labels."""
    clean = cifar10_cpu()
    return replace(
        clean,
        name=f"cifar10-noise{percent}-cpu",
        about=clean.about.replace("at 16x16", f"at 16x16, {percent} % random labels"),
        data=replace(clean.data, label_noise=percent / 100),
    )


def cifar10_resnet20_cpu() -> Run:
    """A residual network on part of CIFAR-10, as large as two cores bear."""
    return replace(
        cifar10_cpu(),
        name="cifar10-resnet20-cpu",
        about="reduced: 10,000 CIFAR-10 images, ResNet-20, crops and flips, 5 epochs (SGD 10)",
        data=DataSpec("cifar10", subset=10_000),
        model=ModelSpec("resnet20"),
        epochs=5,
        base_epochs=10,
        batch_size=128,
    )


def glue_cpu(task: str) -> Run:
    """A GLUE task with MiniLM, for two cores."""
    return replace(
        glue(task),
        name=f"glue-{task}-cpu",
        about=f"reduced: MiniLM (6 layers, 22.7 M) on {task}, 3 epochs",
        model=ModelSpec("minilm"),
        base=BaseSpec("adamw", lr=5e-5, weight_decay=0.01),
        epochs=3,
    )


def _all() -> list[Recipe]:
    recipes: list[Recipe] = [lambda c=c, m=m: cifar(c, m) for c in (10, 100) for m in CIFAR_MODELS]
    recipes += [imagenet, lambda: vit(10), lambda: vit(100)]
    recipes += [lambda t=t: glue(t) for t in GLUE_TASKS]
    recipes += [lambda p=p: noisy(p) for p in NOISE_LEVELS]
    recipes += [lambda c=c: human_noise(c) for c in HUMAN_LABELS]
    recipes += [digits_cpu, cifar10_cpu, cifar10_resnet20_cpu]
    recipes += [lambda p=p: cifar10_noise_cpu(p) for p in NOISE_LEVELS[1:]]
    recipes += [lambda t=t: glue_cpu(t) for t in ("rte", "mrpc", "cola", "sts-b")]
    return recipes


RECIPES: dict[str, Recipe] = {recipe().name: recipe for recipe in _all()}


def find_recipe(name: str) -> Run:
    """The run behind a name.

    Raises:
        ValueError: Naming the nearest recipes.
    """
    if name not in RECIPES:
        raise ValueError(unknown("recipe", name, RECIPES))
    return RECIPES[name]()
