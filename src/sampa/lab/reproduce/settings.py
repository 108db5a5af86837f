"""What is trained at each scale: the paper's recipes, and reduced editions of them.

The reduced edition on real data keeps the paper's question alive: its networks can memorize their
training labels, which they could not with crops and flips. It holds back more than the paper's
tenth, because models and radii chosen on a few hundred noisy labels are chosen by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sampa.catalog import find_method
from sampa.cost import hyperparameters
from sampa.lab.results.outcome import Choice
from sampa.lab.results.paper import Scale
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import BaseSpec, DataSpec, ModelSpec, Run, Schedule

CONV_NET = ModelSpec("conv3", {"width": 32})


@dataclass(frozen=True)
class Edition:
    """CIFAR, reduced.

    Attributes:
        images: The number taken, ...
        held_back: ... and the number of these that are not trained on.
        side: Pixels, after averaging down.
        epochs: Of methods with a perturbation; the base optimizer has twice as many.
        batch_size: Images in a batch.
        network: What is trained.
        augment: Whether images are cropped and flipped.
    """

    images: int
    held_back: int
    side: int
    epochs: int
    batch_size: int
    network: ModelSpec = CONV_NET
    augment: bool = False


REDUCED = Edition(images=12_000, held_back=2000, side=16, epochs=30, batch_size=128)
# All of CIFAR-10 as it is, with a network that takes half an hour on one core.
FULL = Edition(50_000, 5000, 32, 10, 128, ModelSpec("pooled-resnet"), augment=True)
FULL_TRIAL = replace(FULL, epochs=4)
DIGITS = Edition(96, 24, side=8, epochs=1, batch_size=24, network=ModelSpec("conv3", {"width": 4}))
SAM_RHOS = {"sam": 1, "sampa-0": 1, "sampa": 2, "sampa-0.2": 2}  # in units of SAM's
NETWORKS: dict[Scale, dict[str, ModelSpec]] = {
    "paper": {
        "DenseNet-121": ModelSpec("densenet121"),
        "ResNet-56": ModelSpec("resnet56"),
        "VGG19-BN": ModelSpec("vgg19-bn"),
        "WRN-28-2": ModelSpec("wrn-28-2"),
        "WRN-28-10": ModelSpec("wrn-28-10"),
    },
    "cpu": {"conv net": CONV_NET},
    "smoke": {"conv net": DIGITS.network},
}
DEFAULT = Choice(lr=0.05, rho=0.1)


def images(
    scale: Scale,
    choice: Choice | None,
    *,
    noise: int = 0,
    classes: int = 10,
    edition: Edition = REDUCED,
) -> Run:
    """Image classification with the scale's first network (ResNet-56 in the paper).

    In reduced editions with the chosen learning rate and radii; where none was chosen for a method
    it stands to SAM's as in the paper, twice as large for SAMPa-0.2.
    """
    if scale == "paper":
        return find_recipe(f"cifar{classes}-resnet56")
    name, size = f"cifar{classes}", edition.side
    if scale == "smoke":
        name, size, edition = "digits", None, DIGITS
    share, choice = edition.held_back / edition.images, choice or DEFAULT
    data = DataSpec(name, size, edition.images, augment=edition.augment, validation=share)
    return Run(
        name,
        "",
        replace(data, label_noise=noise / 100),
        edition.network,
        base=BaseSpec(lr=choice.lr),
        rhos={method: units * choice.rho for method, units in SAM_RHOS.items()} | choice.rhos,
        epochs=edition.epochs,
        base_epochs=2 * edition.epochs,
        batch_size=edition.batch_size,
    )


def in_proportion(run: Run, method: str) -> Run:
    """A run of another variant; unless its ρ was chosen, it is to SAM's as in the paper."""
    if method in run.rhos:
        return run.changed(method=method)
    default = hyperparameters(find_method(method)).get("rho")
    ratio = run.rhos["sam"] / find_recipe("cifar10-resnet56").rhos["sam"]
    rho = None if default is None else round(default * ratio, 6)
    return run.changed(method=method, rho=rho)


GLUE_EPOCHS = {"mrpc": 2, "sts-b": 1}  # the tasks of the reduced edition
GLUE_LR = 1e-4


def glue_run(scale: Scale, task: str, choice: Choice | None = None) -> Run:
    """A GLUE task; the reduced edition has MiniLM on all samples, cut to 48 tokens, the paper's ρ.

    Fewer epochs than the recipe's need another learning rate, which is tuned; no dropout, and a
    warm-up.
    """
    if scale == "paper":
        return find_recipe(f"glue-{task}")
    if scale == "smoke":
        return replace(adamw(images("smoke", None), 1e-3), base_epochs=None)
    small = find_recipe(f"glue-{task}-cpu")
    return replace(
        small,
        data=replace(small.data, size=48),
        model=ModelSpec("minilm", {"dropout": 0.0}),
        base=replace(small.base, lr=GLUE_LR if choice is None else choice.lr),
        schedule=Schedule("linear", warmup=0.1),
        epochs=GLUE_EPOCHS[task],
        batch_size=16,
    )


def adamw(run: Run, lr: float) -> Run:
    """Fine-tuning: AdamW and clipping, as in the paper."""
    return replace(run, base=BaseSpec("adamw", lr=lr), max_norm=1.0)


FINE_TUNING_LR = 5e-4


def fine_tuned(scale: Scale, choice: Choice) -> Run:
    """A network with ImageNet's weights, on some images at the size it knows best."""
    run = adamw(images(scale, choice), choice.lr)
    return replace(
        run,
        data=DataSpec("cifar10", subset=1500, upscale=96, validation=1 / 3),
        model=ModelSpec("efficientnet-lite0-imagenet"),
        epochs=3,
        base_epochs=None,
        batch_size=32,
    )


def run_in_words(run: Run) -> str:
    """Data, image size, network and epochs in a few words, for headings."""
    data, images = run.data, "all images"
    if data.subset is not None:
        held = round(data.subset * data.validation)
        images = f"{data.subset - held:,} images (and {held:,} held back)"
    is_text = data.name.startswith("glue/")
    if is_text and data.size:
        images = images.replace("images", f"samples of at most {data.size} tokens")
    size = f" at {data.size}×{data.size}" if data.size else ""
    noise = f", {100 * data.label_noise:.0f} % wrong labels" if data.label_noise else ""
    noise += f", human labels ({data.human_labels})" if data.human_labels else ""
    augmented = "crops and flips" if data.augment else "no augmentation"
    twice = f" (base optimizer {run.base_epochs})" if run.base_epochs else ""
    options = ", ".join(f"{k} {v}" for k, v in run.model.options.items())
    network = f"{run.model.name} ({options})" if options else run.model.name
    epochs = f"{run.epochs} epoch{'s' if run.epochs > 1 else ''}"
    text = "" if is_text else f"{size}{noise}, {augmented}"
    return f"{data.name}, {images}{text}; {network}; {epochs}{twice}"
