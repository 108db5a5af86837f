"""What is set up differently on ranks is told on all of them, before gradients meet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import sampa
from tests.distributed.failing import messages, rank
from tests.distributed.training import Run, Session
from tests.problems import in_layout, small_net

pytestmark = pytest.mark.dist

# ---- models that differ ----------------------------------------------------------------------


def other_shape() -> nn.Module:
    return nn.Linear(4, 3 + rank())


def other_order() -> nn.Module:
    names = ["a", "b"] if rank() == 0 else ["b", "a"]
    return nn.ModuleDict({name: nn.Linear(4, 4) for name in names})


def other_dtype() -> nn.Module:
    return nn.Linear(4, 4).to(torch.float64 if rank() else torch.float32)


def other_count() -> nn.Module:
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(1 + rank())))


def other_layout() -> nn.Module:
    layout = torch.channels_last if rank() else torch.contiguous_format
    return in_layout(nn.Conv2d(2, 3, 3), layout)


def other_frozen() -> nn.Module:
    return nn.Linear(4, 4).requires_grad_(rank() == 0)


def other_buffer() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=rank() == 0))


def distribute(net: Callable[[], nn.Module], **options: Any) -> None:
    sampa.distribute(net(), **options)


@pytest.mark.parametrize(
    "net",
    [
        other_shape,
        other_order,
        other_dtype,
        other_count,
        other_layout,
        other_frozen,
        other_buffer,
    ],
)
def test_models_that_differ_are_told_on_all_ranks(net: Callable[[], nn.Module]) -> None:
    for message in messages(2, distribute, net):
        assert "the model differs between ranks: rank 0 has" in message
        assert "build it the same way on every rank" in message


# ---- optimizers and calls that differ --------------------------------------------------------


def build(options: Callable[[], dict[str, Any]]) -> None:
    Session(Run(options=options()))


def other_rho() -> dict[str, Any]:
    return {"rho": 0.1 + rank()}


def other_lam() -> dict[str, Any]:
    return {"lam": 0.2 if rank() else 0.1}


@pytest.mark.parametrize(("options", "name"), [(other_rho, "rho"), (other_lam, "lam")])
def test_optimizers_that_differ_are_told_on_all_ranks(
    options: Callable[[], dict[str, Any]], name: str
) -> None:
    for message in messages(2, build, options):
        assert f"the optimizer differs between ranks: rank 0 has {name}:" in message


def train_different_parameters() -> None:
    model = small_net()
    executor = sampa.distribute(model)
    parameters = list(model.parameters())[rank() :]
    sampa.SAMPa(torch.optim.SGD(parameters, lr=0.1), executor=executor)


def test_optimizers_of_different_parameters_are_told_on_all_ranks() -> None:
    for message in messages(2, train_different_parameters):
        assert "the optimizer differs between ranks: rank 0 has parameter 0: conv.weight" in message


def distribute_differently() -> None:
    sampa.distribute(small_net(), branches=1 + rank())


def test_a_different_number_of_branches_is_told_on_all_ranks() -> None:
    for message in messages(2, distribute_differently):
        assert "the call of sampa.distribute differs between ranks" in message


def three_branches() -> None:
    sampa.distribute(small_net(), branches=3)


def test_branches_that_do_not_divide_the_ranks_are_refused() -> None:
    for message in messages(2, three_branches):
        assert "branches must divide the number of processes, got branches=3 and 2" in message


def train_a_stranger() -> None:
    model = small_net()
    executor = sampa.distribute(model)
    extra = [nn.Parameter(torch.zeros(3))] if rank() else []
    base = torch.optim.SGD([*model.parameters(), *extra], lr=0.1)
    sampa.SAMPa(base, executor=executor)


def test_a_parameter_outside_the_distributed_model_is_told_on_all_ranks() -> None:
    for message in messages(2, train_a_stranger):
        assert "every trained parameter must belong to the distributed model, got 1" in message


def without_executor() -> None:
    sampa.SAMPa(torch.optim.SGD(small_net().parameters(), lr=0.1))


def test_an_optimizer_without_executor_is_refused_under_torchrun() -> None:
    for message in messages(2, without_executor):
        assert "2 processes were started but the optimizer has no executor" in message


def complex_net() -> nn.Module:
    return nn.Linear(4, 4, dtype=torch.complex64)


def test_complex_parameters_are_refused() -> None:
    for message in messages(2, distribute, complex_net):
        assert "must have real parameters, got complex ones" in message
