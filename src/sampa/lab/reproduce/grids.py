"""The experiments that train: each a function from scale and choice to a plan."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sampa.lab.reproduce.plan import (
    Choices,
    Plan,
    PlannedEntry,
    accuracies,
    against_first,
    readings_of,
    standing_for,
)
from sampa.lab.reproduce.settings import (
    FINE_TUNING_LR,
    FULL,
    GLUE_EPOCHS,
    NETWORKS,
    adamw,
    fine_tuned,
    glue_run,
    images,
    in_proportion,
    run_in_words,
)
from sampa.lab.results.charts import Chart
from sampa.lab.results.outcome import AVERAGE, Choice, Outcome
from sampa.lab.results.paper import Scale
from sampa.lab.results.pictures import BAND, lines_over
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import Run

ACCURACY_ROW = "test accuracy in %"
HUMAN = "human labels (CIFAR-10N)"
FOUR = {"SGD": "sgd", "SAM": "sam", "SAMPa-0": "sampa-0", "SAMPa-0.2": "sampa-0.2"}
STEPPED_PAIRS = (("SAM", "SGD"), ("SAMPa-0.2", "SGD"), ("SAMPa-0", "SAM"), ("SAMPa-0.2", "SAM"))
SAM_AND_SAMPA = {"SAM": "sam", "SAMPa-0.2": "sampa-0.2"}
THREE_NETWORKS = ("ResNet-56", "WRN-28-2", "VGG19-BN")
QUICK = ("LookSAM", "AE-SAM", "SAF", "MESA", "ESAM")
EFFICIENT = {**SAM_AND_SAMPA, **{name: name.lower() for name in QUICK}}
VARIANTS = {name: name.lower() for name in ("mSAM", "ASAM", "SAM-ON", "VaSSO", "BiSAM")}
LAMBDAS = {f"λ = {i / 10:g}": i / 10 for i in range(11)}
FEWER_LAMBDAS = tuple(f"λ = {lam:g}" for lam in (0, 0.1, 0.2, 0.3, 0.5, 0.7, 1))
NOISE_ROWS = {f"{percent} %": percent for percent in (0, 20, 40, 60, 80)}
FEWER_NOISES = {"0 %": "clean", "40 %": "noise", "80 %": "noise80"}  # each with its tuning
CLASS_TUNINGS = {10: "clean", 100: "cifar100"}
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


def twice_as_long(name: str) -> str:
    """What a method with twice the epochs is called."""
    return f"{name}, 2× epochs"


TWICE = twice_as_long("SAMPa-0.2")


def _plan_networks(scale: Scale, choices: Choices, classes: int) -> Plan:
    """Four methods on each network, and SAMPa-0.2 with twice the epochs."""
    rows = _by_network(scale, choices, tuple(NETWORKS[scale]), classes)
    twice = {row: replace(run, epochs=2 * run.epochs) for row, run in rows.items()}
    found = [*accuracies(rows, FOUR), *accuracies(twice, {TWICE: "sampa-0.2"})]
    if len(rows) == 1:
        found = standing_for(AVERAGE, found)
    about = f"{run_in_words(next(iter(rows.values())))}; rows: {', '.join(rows)}"
    pairs = (*STEPPED_PAIRS, (TWICE, "SGD"), (TWICE, "SAMPa-0.2"))
    return Plan(found, pairs, about, average=len(rows) > 1)


plan_cifar10, plan_cifar100 = (partial(_plan_networks, classes=n) for n in (10, 100))


def _by_network(
    scale: Scale, choices: Choices, rows: tuple[str, ...], classes: int = 10
) -> dict[str, Run]:
    """A run for each of some networks; the paper's names mean the first one elsewhere."""
    known = NETWORKS[scale]
    if scale == "paper":
        return {row: find_recipe(f"cifar{classes}-{known[row].name}") for row in rows}
    run = images(scale, choices.get(CLASS_TUNINGS[classes]), classes=classes)
    found = {row: replace(run, model=known[row]) for row in rows if row in known}
    return found or {next(iter(known)): run}


def plan_full_cifar10(scale: Scale, choices: Choices) -> Plan:
    """All images at full size; ρ is tuned for each method."""
    if scale == "paper":
        rows = _by_network(scale, choices, ("ResNet-56",))
    else:
        rows = {"pooled ResNet": images(scale, choices.get("full"), edition=FULL)}
    return Plan(standing_for("ResNet-56", accuracies(rows, FOUR)), STEPPED_PAIRS)


def plan_late_cifar10(scale: Scale, choices: Choices) -> Plan:
    """Published networks trained on: what a method adds in the last epochs."""
    if scale == "smoke":
        rows = {"conv net": images(scale, None)}
    else:
        rows = {f"ResNet-{n}": find_recipe(f"cifar10-resnet{n}-late-cpu") for n in (20, 56)}
    about = "; ".join(run_in_words(run) for run in rows.values())
    return Plan(accuracies(rows, FOUR), STEPPED_PAIRS, about)


def plan_imagenet(scale: Scale, choices: Choices) -> Plan:
    is_paper = scale == "paper"
    run = find_recipe("imagenet-resnet50") if is_paper else images(scale, choices.get("clean"))
    found = readings_of(run, SAM_AND_SAMPA, ("Top1", "accuracy"), ("Top5", "top5"))
    return Plan(found, against_first(SAM_AND_SAMPA))


def plan_efficiency(scale: Scale, choices: Choices) -> Plan:
    """Accuracy of the efficient variants; `speed` measures their time."""
    run = generalization(scale, choices)
    found = accuracies({"Accuracy": run}, SAM_AND_SAMPA)
    for name in QUICK:
        own = of_variant(run, scale, name.lower())
        found.append(PlannedEntry(name, own, (("Accuracy", "accuracy"),)))
    return Plan(found, against_first(EFFICIENT))


def generalization(scale: Scale, choices: Choices) -> Run:
    """What variants are compared on: ResNet-56 in the paper, wrong labels in reduced editions."""
    if scale == "paper":
        return images("paper", None)
    run = images(scale, choices.get("noise"), noise=40)
    own = {method: rho for chosen in choices.values() for method, rho in chosen.rhos.items()}
    return replace(run, rhos=run.rhos | own)


def of_variant(run: Run, scale: Scale, method: str) -> Run:
    """A run of another variant, with the paper's ρ or one that stands to SAM's as in the paper."""
    return run.changed(method=method) if scale == "paper" else in_proportion(run, method)


def plan_vit(scale: Scale, choices: Choices) -> Plan:
    """Fine-tuning: the reduced edition has an EfficientNet with ImageNet's weights."""
    if scale == "paper":
        rows = {f"C{n}": find_recipe(f"cifar{n}-vit-b-16") for n in (10, 100)}
    elif scale == "smoke":
        rows = {"C10": adamw(images("smoke", choices.get("clean")), 1e-3)}
    else:
        untuned = Choice(FINE_TUNING_LR, 0.1)
        rows = {"C10": fine_tuned("cpu", choices.get("fine-tuning", untuned))}
    return Plan(accuracies(rows, SAM_AND_SAMPA), against_first(SAM_AND_SAMPA))


def plan_glue(scale: Scale, choices: Choices) -> Plan:
    methods = {"AdamW": "adamw", "SAM": "sam", "SAMPa-0": "sampa-0", "SAMPa-0.1": "sampa-0.1"}
    found: list[PlannedEntry] = []
    tasks = GLUE_ROWS if scale == "paper" else GLUE_EPOCHS
    runs = {task: glue_run(scale, task, choices.get("glue")) for task in tasks}
    for task, run in runs.items():
        rows = GLUE_ROWS[task] if scale != "smoke" else ((GLUE_ROWS[task][0][0], "accuracy"),)
        found += readings_of(run, methods, *rows)
    about = "; ".join(map(run_in_words, runs.values())) if scale == "cpu" else ""
    return Plan(found, (*against_first(methods), ("SAMPa-0.1", "SAM")), about)


def plan_noise(scale: Scale, choices: Choices) -> Plan:
    """Levels of label noise; the paper, too, has another ρ at 80 %."""
    if scale != "cpu":
        rows = {row: _noisy(scale, choices, percent) for row, percent in NOISE_ROWS.items()}
        return Plan(accuracies(rows, FOUR), STEPPED_PAIRS)
    rows = {row: _noisy(scale, choices, NOISE_ROWS[row]) for row in FEWER_NOISES}
    # CIFAR-10N: people who labeled carelessly, wrong in two of five; not in the paper.
    run = images(scale, choices.get("noise"))
    rows[HUMAN] = replace(run, data=replace(run.data, human_labels="worse"))
    about = f"{run_in_words(rows['0 %'])}; wrong labels: {', '.join(rows)}"
    return Plan(accuracies(rows, FOUR), STEPPED_PAIRS, about)


def _noisy(scale: Scale, choices: Choices, percent: int) -> Run:
    if scale == "paper":
        return find_recipe(f"cifar10-noise{percent}")
    return images(scale, choices.get(FEWER_NOISES.get(f"{percent} %", "noise")), noise=percent)


def plan_incorporation(scale: Scale, choices: Choices) -> Plan:
    """Each variant alone and with SAMPa; ρ is doubled with SAMPa as in the paper, or tuned."""
    run = generalization(scale, choices)
    found = [
        PlannedEntry(column, of_variant(run, scale, name), ((row, "accuracy"),))
        for row, method in VARIANTS.items()
        for column, name in (("alone", method), ("with SAMPa", f"sampa+{method}"))
    ]
    return Plan(found, (("with SAMPa", "alone"),))


def _plan_naive(scale: Scale, choices: Choices, name: str) -> Plan:
    """A naive attempt beside SGD and SAM on three networks; SAM's ρ if it has none of its own."""
    rows = _by_network(scale, choices, THREE_NETWORKS)
    found = accuracies(rows, {"SGD": "sgd", "SAM": "sam"})
    method, chosen = name.lower(), choices.get("naive")
    for row, run in rows.items():
        rho = run.rhos["sam"] if chosen is None else chosen.rhos[method]
        found += accuracies({row: replace(run, rho=rho)}, {name: method})
    return Plan(found, (("SAM", "SGD"), (name, "SGD"), (name, "SAM")))


plan_optsam, plan_sam_db = partial(_plan_naive, name="OptSAM"), partial(_plan_naive, name="SAM-db")


def _with_rho_of(method: str, rows: dict[str, Run]) -> dict[str, Run]:
    return {row: replace(run, rho=run.rhos[method]) for row, run in rows.items()}


def plan_penalty(scale: Scale, choices: Choices) -> Plan:
    """The penalty with the settings of SAMPa-0.2, on clean labels and with 80 % noise."""
    clean, noisy = images(scale, choices.get("clean")), _noisy(scale, choices, 80)
    rows = {"clean labels": clean, "80 % wrong labels": noisy}
    if scale == "paper":
        rows = {"ResNet-56": clean, "ResNet-32 (80 % noisy label)": noisy}
    found = accuracies(rows, SAM_AND_SAMPA)
    found += accuracies(_with_rho_of("sampa-0.2", rows), {"Penalizing": "penalty"})
    pairs = (("SAMPa-0.2", "SAM"), ("Penalizing", "SAM"), ("Penalizing", "SAMPa-0.2"))
    return Plan(found, pairs)


def plan_lambdas(scale: Scale, choices: Choices) -> Plan:
    """SAMPa-λ for λ = 0, 0.1, ..., 1, with SAMPa-0.2's ρ throughout."""
    if scale == "paper":
        rows = _by_network(scale, choices, ("ResNet-56", "WRN-28-10"))
    else:
        rows = {"conv net": _noisy(scale, choices, 40)}
    shown = FEWER_LAMBDAS if scale == "cpu" else LAMBDAS
    methods = {name: f"sampa-{LAMBDAS[name]:g}" for name in shown}
    return Plan(accuracies(_with_rho_of("sampa-0.2", rows), methods), against_first(methods))


# ---- pictures --------------------------------------------------------------------------------


def over_noise(outcome: Outcome) -> tuple[Chart, ...]:
    """Test accuracy over the share of wrong labels, a line for each method."""
    title, axes = "Test accuracy under label noise", ("wrong training labels in %", ACCURACY_ROW)
    return (Chart("label-noise", title, *axes, lines_over(outcome, NOISE_ROWS), BAND),)


def over_lambda(outcome: Outcome) -> tuple[Chart, ...]:
    """Test accuracy over λ, a line for each network."""
    title, lines = "Test accuracy over λ", lines_over(outcome, LAMBDAS)
    return (Chart("lambda", title, "λ", ACCURACY_ROW, lines, BAND),)
