"""Parameters that take no part in a pass have no gradient, as in one process; zero is not none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import sampa
from tests.distributed.training import Run, differences, parallel, serial, train
from tests.marks import rest_is_slow
from tests.ranks import collect_ranks

pytestmark = pytest.mark.dist

VARIES = {"find_unused_parameters": True}


class StochasticDepth(nn.Module):
    """Drops a layer by a coin for each pass: often one branch uses it and the other does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 32)
        self.maybe = nn.Linear(32, 32)
        self.last = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1)).relu()
        if torch.rand(()) < 0.5:
            x = x + self.maybe(x)
        return self.last(x)


def stochastic_depth() -> nn.Module:
    torch.manual_seed(0)
    return StochasticDepth()


RUN = Run(net=stochastic_depth, distribute=VARIES)


def assert_all_equal(run: Run) -> None:
    expected = serial(run)
    assert [differences(o, expected) for o in parallel(run)] == [[], []]


@pytest.mark.parametrize("base", rest_is_slow(["sgd-momentum", "adamw"], "adamw"))
@pytest.mark.parametrize("way", [{}, {"shared_memory": False, "bucket_mb": 0.001}], ids=str)
def test_a_layer_dropped_on_one_branch_matches_serial_bitwise(
    base: str, way: dict[str, Any]
) -> None:
    assert_all_equal(replace(RUN, base=base, distribute={**VARIES, **way}))


def test_a_layer_dropped_in_some_micro_batches_matches_serial_bitwise() -> None:
    assert_all_equal(replace(RUN, options={"accumulate": 3}))


def test_a_coin_decides_differently_on_the_two_branches_of_this_run() -> None:
    """Else the tests above would show nothing."""
    uses = collect_ranks(2, uses_of_the_layer, RUN)
    assert {(True, False), (False, True), (True, True)} <= set(zip(*uses, strict=True))


def uses_of_the_layer(run: Run) -> list[bool]:
    seen: list[bool] = []

    class Watched(StochasticDepth):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(False)
            return super().forward(x)

    def net() -> nn.Module:
        torch.manual_seed(0)
        model = Watched()
        model.maybe.register_forward_hook(lambda *_: seen.append(not seen.pop()))
        return model

    train(replace(run, net=net))
    return seen[1:]


class NeverUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(64, 10)
        self.never = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x.flatten(1))


def never_used() -> nn.Module:
    torch.manual_seed(0)
    return NeverUsed()


def test_a_parameter_that_is_never_used_matches_serial_bitwise() -> None:
    """Weight decay would shrink it, were its gradient zero."""
    assert_all_equal(replace(RUN, net=never_used))


class BlocksGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        return x * w.abs().mean()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        return grad_outputs[0], None


class Blocked(nn.Module):
    """A parameter in the graph whose gradient is undefined: DDP takes part in it as zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.blocked = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(BlocksGradient.apply(x.flatten(1), self.blocked))


def blocked() -> nn.Module:
    torch.manual_seed(0)
    return Blocked()


def test_an_undefined_gradient_matches_serial_bitwise() -> None:
    assert_all_equal(replace(RUN, net=blocked))


@pytest.mark.parametrize(
    ("net", "name"), [(never_used, "never.weight"), (blocked, "blocked")], ids=["unused", "blocked"]
)
@pytest.mark.parametrize("branches", [1, 2])
def test_without_the_switch_the_message_names_parameter_and_switch(
    net: Any, name: str, branches: int
) -> None:
    run = Run(steps=5, net=net, distribute={"branches": branches})
    for message in collect_ranks(2, train, run, timeout=30):
        assert f"no gradient arrived for '{name}'" in message
        assert "sampa.distribute(model, find_unused_parameters=True)" in message


class Uneven(StochasticDepth):
    """From its second pass on, branch 1 does without a layer; branch 0 waits for its gradient."""

    passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        x = self.first(x.flatten(1)).relu()
        if dist.get_rank() == 0 or self.passes == 1:
            x = x + self.maybe(x)
        return self.last(x)


@pytest.mark.parametrize("way", [{}, {"shared_memory": False, "bucket_mb": 0.001}], ids=str)
def test_all_ranks_learn_that_one_branch_does_not_use_a_parameter(way: dict[str, Any]) -> None:
    expected = "no gradient arrived for 'maybe.weight' on rank(s) [1]"
    for message in collect_ranks(2, train, Run(steps=5, net=Uneven, distribute=way), timeout=30):
        assert expected in message


def test_a_layer_used_by_some_data_ranks_only_has_their_mean_everywhere() -> None:
    run = replace(RUN, make=sampa.SAM, distribute={**VARIES, "branches": 1})
    first, second = parallel(run)
    assert differences(first, second) == []
