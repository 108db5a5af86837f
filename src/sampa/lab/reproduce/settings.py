"""What is trained at each scale: the paper's recipes, and reduced editions of them.

The reduced edition on real data keeps the paper's question alive: its networks can memorize their
training labels, which they could not with crops and flips or with more images. It holds back more
than the paper's tenth, because a model chosen on a hundred noisy labels is chosen by chance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sampa.catalog import find_method
from sampa.cost import hyperparameters
from sampa.lab.results.outcome import Choice
from sampa.lab.results.paper import Scale
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import BaseSpec, DataSpec, ModelSpec, Run, Schedule

CONV_NET = ModelSpec("conv3", {"width": 24})


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
        compile: Whether the network is compiled: half the time of a step where it is large.
    """

    images: int
    held_back: int
    side: int
    epochs: int
    batch_size: int
    network: ModelSpec = CONV_NET
    augment: bool = False
    compile: bool = False


SMALL = Edition(images=2000, held_back=1000, side=8, epochs=15, batch_size=64)
# For label noise and the sweep of λ: more pixels and three times the steps are nearer the paper.
LARGER = Edition(images=2500, held_back=1000, side=16, epochs=16, batch_size=32)
# All of CIFAR-10 as it is, with a network that takes half an hour on one core.
FULL = Edition(50_000, 5000, 32, 10, 128, ModelSpec("pooled-resnet"), augment=True, compile=True)
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
    "cpu": {
        "conv net": CONV_NET,
        "ResNet-8": ModelSpec("resnet8", {"width": 8}),
        "MLP": ModelSpec("mlp", {"width": 256, "image_size": SMALL.side}),
    },
    "smoke": {"conv net": DIGITS.network},
}
DEFAULT = Choice(lr=0.05, rho=0.1)


def images(
    scale: Scale,
    choice: Choice | None,
    *,
    noise: int = 0,
    classes: int = 10,
    edition: Edition = SMALL,
) -> Run:
    """Image classification with the scale's first network (ResNet-56 in the paper).

    In reduced editions with a chosen learning rate and ρ: SAMPa-0.2 takes twice SAM's, as in the
    paper.
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
        compile=edition.compile,
    )


def one_rho(run: Run) -> Run:
    """The same ρ for all methods, as in the paper's table of label noise."""
    return replace(run, rhos=dict.fromkeys(run.rhos, run.rhos["sam"]))


def in_proportion(run: Run, method: str) -> Run:
    """A run of another variant, whose ρ stands to SAM's as in the paper's settings."""
    default = hyperparameters(find_method(method)).get("rho")
    ratio = run.rhos["sam"] / find_recipe("cifar10-resnet56").rhos["sam"]
    rho = None if default is None else round(default * ratio, 6)
    return run.changed(method=method, rho=rho)


GLUE_SAMPLES = {"rte": (320, 80), "mrpc": (1200, 200)}  # of the reduced edition; held back


def glue_run(scale: Scale, task: str) -> Run:
    """A GLUE task; the reduced edition has MiniLM, some hundred samples seen once, the paper's ρ.

    So few steps need a larger learning rate than the recipe's, no dropout, and a warm-up.
    """
    if scale == "paper":
        return find_recipe(f"glue-{task}")
    if scale == "smoke":
        return replace(adamw(images("smoke", None), 1e-3), base_epochs=None)
    small, (trained_on, held) = find_recipe(f"glue-{task}-cpu"), GLUE_SAMPLES[task]
    subset = trained_on + held
    return replace(
        small,
        data=replace(small.data, size=48, subset=subset, validation=held / subset),
        model=ModelSpec("minilm", {"dropout": 0.0}),
        base=replace(small.base, lr=2e-4),
        schedule=Schedule("linear", warmup=0.1),
        epochs=1,
        batch_size=16,
    )


def adamw(run: Run, lr: float) -> Run:
    """Fine-tuning: AdamW and clipping, as in the paper."""
    return replace(run, base=BaseSpec("adamw", lr=lr), max_norm=1.0)


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
