"""Two ranks, one for each probe, equal one process at zero tolerance over a whole run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.training import Outcome, Run, cross_entropy, differences, parallel, serial
from tests.marks import rest_is_slow
from tests.problems import Batch, SmallNet, in_layout, small_net

pytestmark = pytest.mark.dist


def assert_all_equal(run: Run) -> list[Outcome]:
    """Weights, buffers, base state, held gradient, losses and records, on both ranks."""
    expected = serial(run)
    outcomes = parallel(run)
    assert differences(outcomes[0], expected) == []
    assert differences(outcomes[1], expected) == []
    return outcomes


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("lam", rest_is_slow([0.0, 0.2, 1.0], 0.0, 0.2))
@pytest.mark.parametrize("base", rest_is_slow(["sgd-momentum", "adamw"], "sgd-momentum"))
def test_two_ranks_match_serial_bitwise(base: str, lam: float, shared_memory: bool) -> None:
    distribute = {"shared_memory": shared_memory}
    assert_all_equal(Run(steps=51, base=base, options={"lam": lam}, distribute=distribute))


@pytest.mark.parametrize("base", rest_is_slow(["sgd-nesterov-foreach", "rmsprop"], "rmsprop"))
def test_any_base_optimizer_looks_ahead_alike_on_two_ranks(base: str) -> None:
    assert_all_equal(Run(base=base))


@pytest.mark.parametrize("bucket_mb", [0.001, 0.01])
def test_the_number_of_buckets_does_not_change_a_bit(bucket_mb: float) -> None:
    assert_all_equal(Run(distribute={"bucket_mb": bucket_mb, "shared_memory": False}))


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate": 2},
        pytest.param({"accumulate": 3}, marks=pytest.mark.slow),
        {"max_norm": 0.1},
        {"same_noise": True},
        {"rho": 0.0},
        {"bn_pass": "perturbed"},
        {"bootstrap": "script"},
    ],
    ids=str,
)
def test_options_of_a_step_act_alike_on_two_ranks(options: dict[str, Any]) -> None:
    assert_all_equal(Run(options=options))


def groups_with_their_own_rho(model: nn.Module) -> list[dict[str, Any]]:
    assert isinstance(model, SmallNet)
    return [
        {"params": model.conv.parameters(), "rho": 0.3},
        {"params": model.bn.parameters(), "rho": 0.0, "weight_decay": 0.0},
        {"params": model.head.parameters()},
    ]


def test_groups_with_their_own_rho_act_alike_on_two_ranks() -> None:
    assert_all_equal(Run(groups=groups_with_their_own_rho))


def channels_last_net() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.Conv2d(6, 5, 3, padding=1),
        nn.Flatten(),
        nn.Linear(5 * 8 * 8, 10),
    )
    return in_layout(net, torch.channels_last)


@pytest.mark.parametrize("way", [{}, {"bucket_mb": 0.001, "shared_memory": False}], ids=str)
def test_channels_last_weights_keep_their_layout_in_the_exchange(way: dict[str, Any]) -> None:
    assert_all_equal(Run(net=channels_last_net, distribute=way))


class OddStrides(nn.Module):
    """A weight whose memory has gaps, and one that is transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.gapped = nn.Parameter(torch.randn(64, 20)[:, ::2] / 8)
        self.transposed = nn.Parameter(torch.randn(10, 10).T)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.gapped @ self.transposed


def net_with_odd_strides() -> nn.Module:
    torch.manual_seed(0)
    return OddStrides()


def test_weights_of_any_stride_are_exchanged_right() -> None:
    assert_all_equal(Run(net=net_with_odd_strides))


class ToFloat64(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


def net_of_two_dtypes() -> nn.Module:
    torch.manual_seed(0)
    head = nn.Linear(32, 10, dtype=torch.float64)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), ToFloat64(), head)


def test_parameters_of_two_dtypes_are_exchanged_right() -> None:
    assert_all_equal(Run(net=net_of_two_dtypes))


def net_with_frozen_layer() -> nn.Module:
    net = small_net()
    net.conv.requires_grad_(False)
    return net


def test_a_frozen_layer_is_left_alone_on_two_ranks() -> None:
    outcomes = assert_all_equal(Run(net=net_with_frozen_layer))
    assert torch.equal(outcomes[0].model["conv.weight"], small_net().conv.weight)


class NetWithTable(nn.Module):
    """With a frozen parameter of another dtype, as a model with a quantized part has."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_net()
        self.table = nn.Parameter(torch.ones(3, dtype=torch.bfloat16), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) * self.table.float().mean()


def test_a_frozen_parameter_of_another_dtype_changes_nothing() -> None:
    assert_all_equal(Run(net=NetWithTable))


def cross_entropy_of_two_views(model: nn.Module, batch: Batch) -> Tensor:
    x, y = batch
    return cross_entropy(model, (x, y)) + 0.5 * cross_entropy(model, (-x, y))


def test_a_loss_may_call_the_model_twice() -> None:
    assert_all_equal(Run(loss=cross_entropy_of_two_views))


def test_the_run_that_is_compared_trains() -> None:
    outcome = serial(Run())
    assert outcome.records[-1] is not None
    assert outcome.records[-1].step == 20
    assert not torch.equal(outcome.model["head.weight"], small_net().head.weight)
