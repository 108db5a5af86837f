"""What averages gradients unseen, inside of loss_fn, is found by its effect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import sampa
from tests.distributed.training import Outcome, Run, Session, cross_entropy, differences, serial
from tests.problems import Batch, small_net
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist


class Wrapped(Session):
    """A wrapper of the user's around executor.model."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.wrapper = DistributedDataParallel(self.executor.model)

    def loss_fn(self, batch: Batch) -> Tensor:
        return cross_entropy(self.wrapper, batch)


class Hooked(Session):
    """Hooks of the user's that average each gradient."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        for p in self.model.parameters():
            p.register_post_accumulate_grad_hook(average)


class HookedClosure(Hooked):
    """The same, where a closure calls backward."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.loss_fn = sampa.Closure(self.backward)

    def backward(self, batch: Batch) -> Tensor:
        loss = cross_entropy(self.executor.model, batch)
        loss.backward()
        return loss


def average(p: Tensor) -> None:
    assert p.grad is not None
    dist.all_reduce(p.grad)


def what_is_said(kind: type[Session], run: Run) -> str:
    """In the first exchange, before the weights change."""
    session = kind(run)
    session.advance(1)
    before = {k: v.clone() for k, v in session.model.state_dict().items()}
    with pytest.raises(RuntimeError, match="step 1: something else averages gradients") as error:
        session.advance(1)
    assert differences(before, session.model.state_dict()) == []
    return str(error.value)


NETWORK = {"shared_memory": False}


@pytest.mark.parametrize(
    ("kind", "distribute"),
    [(Wrapped, {}), (Hooked, {}), (Hooked, NETWORK)],
    ids=["wrapper", "hooks", "hooks over the network"],
)
@pytest.mark.parametrize("options", [{}, {"accumulate": 2}], ids=str)
def test_what_averages_gradients_inside_of_loss_fn_is_found_in_the_first_exchange(
    kind: type[Session], distribute: dict[str, Any], options: dict[str, Any]
) -> None:
    run = Run(distribute=distribute, options=options, net=net_without_statistics)
    for message in run_ranks(2, what_is_said, kind, run):
        assert "without DistributedDataParallel or another wrapper around it" in message


def test_it_is_found_where_a_closure_calls_backward() -> None:
    run_ranks(2, what_is_said, HookedClosure, Run(net=net_without_statistics))


def test_it_is_found_on_two_by_two_ranks() -> None:
    run_ranks(4, what_is_said, Hooked, Run(net=net_without_statistics))


def net_without_statistics() -> nn.Module:
    return small_net(batch_norm=False)


def linear_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Its gradient depends neither on the weights nor on the batch, in which it writes."""
    return model(batch[0].fill_(1.0)).mean()


def one_layer() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 1))


class Counted(Session):
    calls = 0

    def loss_fn(self, batch: Batch) -> Tensor:
        self.calls += 1
        return super().loss_fn(batch)


def train_and_count(run: Run) -> tuple[Outcome, int]:
    session = Counted(run)
    session.advance(run.steps)
    return session.outcome(), session.calls


def on_a_fused_base(base: torch.optim.Optimizer, **options: Any) -> sampa.SharpnessAware:
    """Its update is queued before the host has read the step's numbers."""
    parameters = [p for group in base.param_groups for p in group["params"]]
    return sampa.SAMPa(torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=True), **options)


@pytest.mark.parametrize("distribute", [{}, NETWORK], ids=str)
@pytest.mark.parametrize(
    ("make", "checks"), [(sampa.SAMPa, "now"), (on_a_fused_base, "now"), (on_a_fused_base, "late")]
)
def test_gradients_that_are_equal_by_right_cost_one_pass(
    make: Any, distribute: dict[str, Any], checks: str
) -> None:
    run = Run(steps=6, net=one_layer, loss=linear_loss, make=make)
    run = replace(run, distribute=distribute, options={"checks": checks, "hold": "copy"})
    expected = serial(run)
    for outcome, calls in run_ranks(2, train_and_count, run):
        assert differences(outcome, expected) == []
        assert calls == run.steps + 1
