"""The experiments that train: each a function from scale and choice to a plan."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sampa.lab.reproduce.plan import Choices, Plan, PlannedEntry, against_first, read_of, row_of
from sampa.lab.reproduce.settings import (
    LARGER,
    NETWORKS,
    adamw,
    glue_run,
    images,
    in_proportion,
    one_rho,
    run_in_words,
)
from sampa.lab.results.charts import Chart
from sampa.lab.results.outcome import Outcome, Scale
from sampa.lab.results.pictures import BAND, lines_over
from sampa.lab.training import recipes
from sampa.lab.training.run import DataSpec, ModelSpec, Run

ACCURACY = "test accuracy in %"
HUMAN = "human labels (CIFAR-10N)"
FOUR = {"SGD": "sgd", "SAM": "sam", "SAMPa-0": "sampa-0", "SAMPa-0.2": "sampa-0.2"}
STEPS = (("SAM", "SGD"), ("SAMPa-0.2", "SGD"), ("SAMPa-0", "SAM"), ("SAMPa-0.2", "SAM"))
SAM_AND_SAMPA = {"SAM": "sam", "SAMPa-0.2": "sampa-0.2"}
TWICE = "SAMPa-0.2, 2× epochs"
THREE_NETWORKS = ("ResNet-56", "WRN-28-2", "VGG19-BN")
QUICK = ("LookSAM", "AE-SAM", "SAF", "MESA", "ESAM")
EFFICIENT = {**SAM_AND_SAMPA, **{name: name.lower() for name in QUICK}}
VARIANTS = {name: name.lower() for name in ("mSAM", "ASAM", "SAM-ON", "VaSSO", "BiSAM")}
LAMBDAS = {f"λ = {i / 10:g}": i / 10 for i in range(11)}
NOISE_ROWS = {f"{percent} %": float(percent) for percent in recipes.NOISE_LEVELS}
GLUE_ROWS = {  # by task: the paper's rows and the metrics they are
    "cola": (("CoLA, Mcc.", "matthews"),),
    "sst-2": (("SST-2, Acc.", "accuracy"),),
    "mrpc": (("MRPC, Acc.", "accuracy"), ("MRPC, F1", "f1")),
    "sts-b": (("STS-B, Pear.", "pearson"), ("STS-B, Spea.", "spearman")),
    "qqp": (("QQP, Acc.", "accuracy"), ("QQP, F1", "f1")),
    "mnli": (("MNLI, Acc.", "accuracy"),),
    "qnli": (("QNLI, Acc.", "accuracy"),),
    "rte": (("RTE, Acc.", "accuracy"),),
    "wnli": (("WNLI, Acc.", "accuracy"),),
}


def _networks(scale: Scale, choices: Choices, classes: int) -> Plan:
    """Four methods on each network, and SAMPa-0.2 with twice the epochs."""
    found: list[PlannedEntry] = []
    for row, run in _by_network(scale, choices, tuple(NETWORKS[scale]), classes).items():
        found += row_of(row, run, FOUR)
        twice = run.changed(method="sampa-0.2", epochs=2 * run.epochs)
        found.append(PlannedEntry(TWICE, twice, ((row, "accuracy"),)))
    about = run_in_words(images(scale, choices.get("clean"), classes=classes))
    about += f"; networks: {', '.join(NETWORKS[scale])}"
    pairs = (*STEPS, (TWICE, "SGD"), (TWICE, "SAMPa-0.2"))
    return Plan(about, found, pairs, average=len(NETWORKS[scale]) > 1)


cifar10, cifar100 = partial(_networks, classes=10), partial(_networks, classes=100)


def _by_network(
    scale: Scale, choices: Choices, rows: tuple[str, ...], classes: int = 10
) -> dict[str, Run]:
    """A run for each of some networks; the paper's names mean the first one elsewhere."""
    if scale == "paper":
        return {row: recipes.cifar(classes, NETWORKS["paper"][row].name) for row in rows}
    run = images(scale, choices.get("clean"), classes=classes)
    known = NETWORKS[scale]
    found = {row: replace(run, model=known[row]) for row in rows if row in known}
    return found or {next(iter(known)): run}


def imagenet(scale: Scale, choices: Choices) -> Plan:
    run = recipes.imagenet() if scale == "paper" else images(scale, choices.get("clean"))
    found = read_of(run, SAM_AND_SAMPA, (("Top1", "accuracy"), ("Top5", "top5")))
    return Plan(run_in_words(run), found, against_first(SAM_AND_SAMPA))


def efficiency(scale: Scale, choices: Choices) -> Plan:
    """Accuracy of the efficient variants; `speed` measures their time."""
    run = _generalization(scale, choices)
    found = [
        PlannedEntry(name, _efficient(run, scale, m), (("Accuracy", "accuracy"),))
        for name, m in EFFICIENT.items()
    ]
    return Plan(run_in_words(run), found, against_first(EFFICIENT))


def _efficient(run: Run, scale: Scale, method: str) -> Run:
    if method in SAM_AND_SAMPA.values():
        return run.changed(method=method)
    run = run.changed(method=method) if scale == "paper" else in_proportion(run, method)
    if method in ("saf", "mesa") and scale != "paper":  # 5 epochs would be most of a short run
        return replace(run, method_options={"start_epoch": 3})
    return run


def _generalization(scale: Scale, choices: Choices) -> Run:
    """What variants are compared on: ResNet-56 in the paper, wrong labels in reduced editions."""
    if scale == "paper":
        return images("paper", None)
    return one_rho(images(scale, choices.get("small-noise"), noise=40))


def vit(scale: Scale, choices: Choices) -> Plan:
    """Fine-tuning: the reduced edition has an EfficientNet with ImageNet's weights."""
    if scale == "paper":
        rows = {"C10": recipes.vit(10), "C100": recipes.vit(100)}
    elif scale == "smoke":
        rows = {"C10": adamw(images("smoke", choices.get("clean")), 1e-3)}
    else:
        data = DataSpec("cifar10", subset=1500, upscale=96, validation=1 / 3)
        model = ModelSpec("efficientnet-lite0-imagenet")
        run = replace(adamw(images("cpu", None), 5e-4), data=data, model=model)
        rows = {"C10": replace(run, epochs=3, batch_size=32, base_epochs=None)}
    found = [entry for row, run in rows.items() for entry in row_of(row, run, SAM_AND_SAMPA)]
    return Plan(run_in_words(rows["C10"]), found, against_first(SAM_AND_SAMPA))


def glue(scale: Scale, choices: Choices) -> Plan:
    methods = {"AdamW": "adamw", "SAM": "sam", "SAMPa-0": "sampa-0", "SAMPa-0.1": "sampa-0.1"}
    found: list[PlannedEntry] = []
    runs: list[Run] = []
    for task in GLUE_ROWS if scale == "paper" else ("rte", "mrpc"):
        runs.append(glue_run(scale, task))
        rows = GLUE_ROWS[task] if scale != "smoke" else ((GLUE_ROWS[task][0][0], "accuracy"),)
        found += read_of(runs[-1], methods, rows)
    about = "; ".join(map(run_in_words, runs if scale == "cpu" else runs[:1]))
    return Plan(about, found, (*against_first(methods), ("SAMPa-0.1", "SAM")))


def noise(scale: Scale, choices: Choices) -> Plan:
    """Five levels of label noise; the same ρ for all methods."""
    found: list[PlannedEntry] = []
    for percent in recipes.NOISE_LEVELS:
        run = recipes.noisy(percent)
        if scale != "paper":
            # The paper, too, has another ρ at 80 %.
            choice = choices.get("noise80" if percent == 80 else "noise")
            run = one_rho(images(scale, choice, noise=percent, edition=LARGER))
        found += row_of(f"{percent} %", run, FOUR)
    if scale == "cpu":
        found += row_of(HUMAN, _with_human_labels(choices), FOUR)
    return Plan(run_in_words(found[0].run), found, STEPS)


def _with_human_labels(choices: Choices) -> Run:
    """CIFAR-10N: people who labeled carelessly, wrong in two of five; the paper has no such row."""
    run = one_rho(images("cpu", choices.get("noise"), edition=LARGER))
    return replace(run, data=replace(run.data, human_labels="worse"))


def incorporation(scale: Scale, choices: Choices) -> Plan:
    """Each variant alone and with SAMPa, ρ doubled with SAMPa as in the paper."""
    run = _generalization(scale, choices)
    found: list[PlannedEntry] = []
    for row, method in VARIANTS.items():
        for column, name in (("alone", method), ("with SAMPa", f"sampa+{method}")):
            made = run.changed(method=name) if scale == "paper" else in_proportion(run, name)
            found.append(PlannedEntry(column, made, ((row, "accuracy"),)))
    return Plan(run_in_words(run), found, (("with SAMPa", "alone"),))


def _naive(scale: Scale, choices: Choices, attempt: dict[str, str]) -> Plan:
    """A naive attempt beside SGD and SAM on three networks, with SAM's ρ."""
    found: list[PlannedEntry] = []
    for row, run in _by_network(scale, choices, THREE_NETWORKS).items():
        found += row_of(row, run, {"SGD": "sgd", "SAM": "sam"})
        found += row_of(row, replace(run, rho=run.rhos["sam"]), attempt)
    (name,) = attempt
    pairs = (("SAM", "SGD"), (name, "SGD"), (name, "SAM"))
    return Plan(run_in_words(found[0].run), found, pairs)


optsam = partial(_naive, attempt={"OptSAM": "optsam"})
sam_db = partial(_naive, attempt={"SAM-db": "sam-db"})


def penalty(scale: Scale, choices: Choices) -> Plan:
    """The penalty with the settings of SAMPa-0.2, on clean labels and with 80 % noise."""
    clean = images(scale, choices.get("clean"))
    rows = {"ResNet-56": clean, "ResNet-32 (80 % noisy label)": recipes.noisy(80)}
    if scale != "paper":
        noisy = one_rho(images(scale, choices.get("noise80"), noise=80, edition=LARGER))
        rows = {"clean labels": clean, "80 % wrong labels": noisy}
    found: list[PlannedEntry] = []
    for row, run in rows.items():
        found += row_of(row, run, SAM_AND_SAMPA)
        found += row_of(row, replace(run, rho=run.rhos["sampa-0.2"]), {"Penalizing": "penalty"})
    pairs = (("SAMPa-0.2", "SAM"), ("Penalizing", "SAM"), ("Penalizing", "SAMPa-0.2"))
    return Plan(run_in_words(clean), found, pairs)


def lambdas(scale: Scale, choices: Choices) -> Plan:
    """SAMPa-λ for λ = 0, 0.1, ..., 1, with SAMPa-0.2's ρ throughout."""
    rows = {"ResNet-56": recipes.cifar(10, "resnet56"), "WRN-28-10": recipes.cifar(10, "wrn-28-10")}
    if scale != "paper":
        noisy = images(scale, choices.get("noise"), noise=40, edition=LARGER)
        rows = {"conv net": one_rho(noisy)}
    found: list[PlannedEntry] = []
    for row, run in rows.items():
        fixed = replace(run, rho=run.rhos["sampa-0.2"])
        found += row_of(row, fixed, {name: f"sampa-{lam:g}" for name, lam in LAMBDAS.items()})
    return Plan(run_in_words(found[0].run), found, against_first(LAMBDAS))


# ---- pictures --------------------------------------------------------------------------------


def over_noise(outcome: Outcome) -> tuple[Chart, ...]:
    """Test accuracy over the share of wrong labels, a line for each method."""
    title, axes = "Test accuracy under label noise", ("wrong training labels in %", ACCURACY)
    return (Chart("label-noise", title, *axes, lines_over(outcome, NOISE_ROWS), BAND),)


def over_lambda(outcome: Outcome) -> tuple[Chart, ...]:
    """Test accuracy over λ, a line for each network."""
    title, lines = "Test accuracy over λ", lines_over(outcome, LAMBDAS)
    return (Chart("lambda", title, "λ", ACCURACY, lines, BAND),)
