"""What is known of the model: names, normalization layers, buffers, given or seen running."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

import sampa
from sampa.execution.layers import LARGE_BUFFER, Layers, all_layers, is_normalization_layer
from tests.variants import batch_norm_mlp

INPUT = torch.randn(5, 4, dtype=torch.float64)


def parameters(model: nn.Module) -> list[Tensor]:
    return list(model.parameters())


def test_a_given_model_tells_full_names() -> None:
    model = batch_norm_mlp()
    described = Layers(model).describe(parameters(model))
    assert described is not None
    assert [p.name for p in described] == [name for name, _ in model.named_parameters()]


def test_a_given_model_tells_its_normalization_layers() -> None:
    model = batch_norm_mlp()
    described = Layers(model).describe(parameters(model))
    assert described is not None
    assert [p.is_normalization for p in described] == [False, False, True, True, False, False]


def test_layers_are_noticed_as_they_run() -> None:
    model, layers = batch_norm_mlp(), Layers(None)
    with layers.one_pass(parameters(model)):
        model(INPUT)
    described = layers.describe(parameters(model))
    assert described is not None
    assert [p.is_normalization for p in described] == [False, False, True, True, False, False]


def test_names_of_noticed_layers_are_the_last_parts() -> None:
    """Enough for ASAM, which looks for "weight"."""
    model, layers = batch_norm_mlp(), Layers(None)
    with layers.one_pass(parameters(model)):
        model(INPUT)
    described = layers.describe(parameters(model))
    assert described is not None
    assert [p.name for p in described] == ["weight", "bias"] * 3


def test_nothing_is_known_before_a_layer_ran() -> None:
    assert Layers(None).describe(parameters(batch_norm_mlp())) is None


def test_a_weight_outside_the_layers_makes_the_description_unknown() -> None:
    model = batch_norm_mlp()
    stranger = nn.Parameter(torch.zeros(1))
    assert Layers(model).describe([*parameters(model), stranger]) is None


def test_a_shared_weight_is_described_by_its_first_name() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    described = Layers(model).describe([model.get_parameter("1.weight")])
    assert described is not None
    assert described[0].name == "0.weight"


def test_watching_leaves_no_global_hook_behind() -> None:
    before = dict(torch_module._global_forward_pre_hooks)
    with Layers(None).one_pass(parameters(batch_norm_mlp())):
        assert dict(torch_module._global_forward_pre_hooks) != before
    assert dict(torch_module._global_forward_pre_hooks) == before


def test_a_known_model_needs_no_hook() -> None:
    before = dict(torch_module._global_forward_pre_hooks)
    model = nn.Linear(1, 1)
    seen = []

    def loss_fn(x: Tensor) -> Tensor:
        seen.append(dict(torch_module._global_forward_pre_hooks))
        return model(x).square().mean()

    base = torch.optim.SGD(model.parameters(), lr=0.1)
    sampa.SAM(base, executor=sampa.Serial(model)).step(loss_fn, torch.ones(2, 1))
    assert seen == [before, before]


def test_float_buffers_are_the_running_mean_and_variance() -> None:
    """Not the count of batches, which cannot be averaged."""
    model = batch_norm_mlp()
    buffers = Layers(model).float_buffers()
    assert [id(b) for b in buffers] == [id(model[1].running_mean), id(model[1].running_var)]


def test_float_buffers_of_noticed_layers_are_the_same() -> None:
    model, layers = batch_norm_mlp(), Layers(None)
    with layers.one_pass(parameters(model)):
        model(INPUT)
    assert list(map(id, layers.float_buffers())) == list(map(id, Layers(model).float_buffers()))


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.BatchNorm3d(4),
        nn.SyncBatchNorm(4),
        nn.LayerNorm(4),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4, affine=True),
        nn.RMSNorm(4),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_torchs_normalization_layers_are_recognized(layer: nn.Module) -> None:
    assert is_normalization_layer(layer)


def test_a_layer_from_elsewhere_is_recognized_by_its_name() -> None:
    class LlamaRMSNorm(nn.Module):
        pass

    assert is_normalization_layer(LlamaRMSNorm())


@pytest.mark.parametrize("layer", [nn.Linear(2, 2), nn.Conv2d(1, 1, 1), nn.Embedding(3, 2)])
def test_other_layers_are_no_normalization(layer: nn.Module) -> None:
    assert not is_normalization_layer(layer)


def test_all_layers_are_those_of_torch_in_its_order() -> None:
    shared = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(2))
    model = nn.Sequential(shared, nn.ModuleDict({"a": nn.Linear(2, 2), "b": shared}), shared[1])
    model.register_module("left out", None)
    assert all_layers(model) == [*model.modules()]


class WithTable(nn.Module):
    """Reads a buffer that is too large to be copied in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(LARGE_BUFFER))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[0]  # pyright: ignore[reportIndexIssue]


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_buffers_of_a_scripted_model_are_put_back() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(4, 3), WithTable(), nn.BatchNorm1d(3)))
    base = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = sampa.SAM(base, rho=0.1, executor=sampa.Serial(model))
    for _ in range(3):
        optimizer.step(lambda x: model(x).square().mean(), torch.randn(5, 4))
    *_, batches = model.buffers()
    assert batches.item() == 3  # of two passes one counts
