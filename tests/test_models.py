"""What a model may be made of: recomputed activations, hooks of the user, weights used twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import sampa
from tests.distributed.training import Run, Session, differences, serial
from tests.problems import cross_entropy_of, flat, small_net, tiny_mlp, vector_batches
from tests.ranks import run_ranks

STEPS = 6
FACTORS = 0.5, 3.0


class Net(nn.Module):
    """With dropout in a block that may be computed again in backward."""

    def __init__(self, reentrant: bool | None = None, dropout: float = 0.3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.reentrant = reentrant
        self.first = nn.Linear(64, 32)
        self.block = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Dropout(dropout))
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x.flatten(1))
        if self.reentrant is None:
            return self.head(self.block(x))
        return self.head(checkpoint(self.block, x, use_reentrant=self.reentrant))


def with_hooks(dropout: float = 0.3) -> nn.Module:
    """One on a tensor, one after a gradient was added up."""
    model = Net(dropout=dropout)
    model.first.weight.register_hook(lambda g: g * FACTORS[0])

    def after(p: Tensor) -> None:
        assert p.grad is not None
        p.grad.mul_(FACTORS[1])

    model.head.bias.register_post_accumulate_grad_hook(after)
    return model


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0] * ctx.factor, None


class WithoutHooks(Net):
    """The same factors, in the graph."""

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = (
            _Times.apply(p, factor)
            for p, factor in zip((self.first.weight, self.head.bias), FACTORS, strict=True)
        )
        hidden = self.block(F.linear(x.flatten(1), weight, self.first.bias))
        return F.linear(hidden, self.head.weight, bias)


class Tied(nn.Module):
    """One matrix under two names, used at both ends."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encode = nn.Linear(64, 10, bias=False)
        self.decode = nn.Linear(64, 10, bias=False)
        self.middle = nn.Linear(10, 64)
        self.decode.weight = self.encode.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(torch.tanh(self.middle(self.encode(x.flatten(1)))))


class Twice(Tied):
    """The same with one name."""

    def __init__(self) -> None:
        super().__init__()
        self.decode = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.middle(self.encode(x.flatten(1))))
        return F.linear(hidden, self.encode.weight)


# Each beside a model that needs nothing special and trains the same weights.
NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "recomputed": (partial(Net, False), Net),
    "recomputed, reentrant": (partial(Net, True), Net),
    "hooks": (with_hooks, WithoutHooks),
    "tied": (Tied, Twice),
}
METHODS: dict[str, Callable[..., sampa.SharpnessAware]] = {
    "sam": sampa.SAM,
    "sampa": sampa.SAMPa,
    "sampa+msam": partial(sampa.SAMPa, micro_batches=sampa.MicroBatches(8)),
}


def run_of(net: Callable[[], nn.Module], **options: Any) -> Run:
    settings: dict[str, Any] = {"steps": STEPS, "options": {"max_norm": 0.3}, **options}
    return Run(net=net, **settings)


def weights(run: Run) -> list[Tensor]:
    session = Session(run)
    session.advance(run.steps)
    return [p.detach() for p in session.model.parameters()]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("method", METHODS)
def test_a_model_trains_as_one_without_anything_special(name: str, method: str) -> None:
    found, expected = (weights(run_of(net, make=METHODS[method])) for net in NETS[name])
    assert differences(found, expected) == []


@pytest.mark.parametrize("name", [name for name in NETS if name != "hooks"])
def test_micro_batches_add_up_as_of_one_without_anything_special(name: str) -> None:
    """But hooks after accumulation see what was added up so far, as with any torch optimizer."""
    options = {"options": {"accumulate": 2}}
    found, expected = (weights(run_of(net, **options)) for net in NETS[name])
    assert differences(found, expected) == []


# ---- several processes -------------------------------------------------------------------------


def on_two_branches() -> dict[tuple[str, bool], Any]:
    """One rank: SAMPa with each model, over shared memory and over the network."""
    found = {}
    for name, (net, _) in NETS.items():
        for shared in (True, False):
            distribute = {"shared_memory": shared, "bucket_mb": 0.001}
            session = Session(run_of(net, distribute=distribute))
            session.advance(STEPS)
            found[name, shared] = session.outcome()
    return found


@pytest.mark.slow
@pytest.mark.dist
def test_two_branches_equal_one_process_bit_for_bit() -> None:
    one = {name: serial(run_of(net)) for name, (net, _) in NETS.items()}
    for rank in run_ranks(2, on_two_branches):
        for (name, _), outcome in rank.items():
            assert differences(outcome, one[name]) == [], name


def on_two_data_ranks() -> dict[str, list[Tensor]]:
    """One rank: SAM without dropout, which would see each part of a batch alone."""
    nets = {
        "recomputed": partial(Net, False, 0.0),
        "recomputed, reentrant": partial(Net, True, 0.0),
        "hooks": partial(with_hooks, 0.0),
        "tied": Tied,
    }
    options = {"make": sampa.SAM, "distribute": {"branches": 1}, "dtype": torch.float64}
    return {name: weights(run_of(net, **options)) for name, net in nets.items()}


@pytest.mark.slow
@pytest.mark.dist
def test_two_data_ranks_train_the_weights_of_one_process() -> None:
    (one,) = run_ranks(1, on_two_data_ranks)
    for rank in run_ranks(2, on_two_data_ranks):
        torch.testing.assert_close(rank, one, rtol=0, atol=1e-12)


# ---- what is refused ---------------------------------------------------------------------------


def stepping_in_backward(parameters: Iterable[Tensor]) -> None:
    """An optimizer for each parameter, which steps as soon as the gradient is there."""
    for p in parameters:
        optimizer = torch.optim.SGD([p], lr=0.1)

        def step(_: Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        p.register_post_accumulate_grad_hook(step)


@pytest.mark.parametrize("which", [slice(None), slice(1, 2)])
@pytest.mark.parametrize("make", METHODS.values())
def test_an_optimizer_in_a_gradient_hook_is_refused(make: Any, which: slice) -> None:
    """Of all weights, or of one in the middle."""
    model = tiny_mlp()
    model[0].weight.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) > 2
    stepping_in_backward(trained[which])
    optimizer, loss_fn = make(torch.optim.SGD(model.parameters(), lr=0.1)), cross_entropy_of(model)
    with pytest.raises(RuntimeError, match="an optimizer in a gradient hook"):
        optimizer.step(loss_fn, vector_batches(1, size=16)[0])


def test_a_loss_fn_that_writes_to_the_weights_is_refused_at_x_t() -> None:
    model = tiny_mlp()
    optimizer = sampa.SAM(torch.optim.SGD(model.parameters(), lr=0.1))
    points: list[Tensor] = []

    def loss_fn(batch: Any) -> Tensor:
        points.append(flat(model))
        if len(points) == 2:  # in the perturbed pass, from which the weights come back
            with torch.no_grad():
                next(model.parameters()).clamp_(-0.1, 0.1)
        return cross_entropy_of(model)(batch)

    with pytest.raises(RuntimeError, match="something wrote to them"):
        optimizer.step(loss_fn, vector_batches(1)[0])
    assert torch.equal(flat(model), points[0])


def distribute_over_two_devices() -> str:
    model = small_net()
    model.head = torch.nn.Linear(6 * 8 * 8, 10, device="meta")
    with pytest.raises(ValueError, match="must be on one device per rank") as refused:
        sampa.distribute(model)
    return str(refused.value)


@pytest.mark.dist
def test_a_model_on_several_devices_is_not_distributed() -> None:
    assert all(
        "['cpu', 'meta']" in message for message in run_ranks(2, distribute_over_two_devices)
    )
