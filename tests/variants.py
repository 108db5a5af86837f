"""What the tests of the variants share: a small net, a loss that tells all, settings that act.

The net has a LayerNorm, so that SAM-ON finds a normalization layer and a micro-batch's gradient is
still the mean of its samples'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa
from sampa.method import BaseView, Hyperparameters, ModelView
from sampa.vectors.random import RandomNumbers
from sampa.vectors.vector import add_
from tests.problems import BASES, Points, flat, vector_batches

Sample = tuple[Tensor, ...]  # inputs, classes, the samples' numbers
MakeBase = Callable[[Any], torch.optim.Optimizer]
LossFn = Callable[[Sample], sampa.Loss]


def normalized_mlp(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)).double()


def batch_norm_mlp(seed: int = 0, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = (nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, 3))
    return nn.Sequential(*layers).double()


def numbered(batches: Iterable[tuple[Tensor, Tensor]]) -> list[Sample]:
    """Batches whose samples are numbered from the first to the last."""
    result: list[Sample] = []
    for x, y in batches:
        start = sum(len(b[1]) for b in result)
        result.append((x, y, torch.arange(start, start + len(y))))
    return result


BATCHES = numbered(vector_batches(6))


def loss_of(model: nn.Module) -> LossFn:
    """The loss with everything that some method needs."""

    def loss_fn(batch: Sample) -> sampa.Loss:
        x, y, index = batch
        logits = model(x)
        per_sample = F.cross_entropy(logits, y, reduction="none")
        return sampa.Loss(per_sample.mean(), per_sample, logits, y, index)

    return loss_fn


def training_loss(loss: sampa.Loss) -> Tensor:
    """The ascent loss that changes nothing."""
    assert loss.value is not None
    return loss.value


def nothing(parameter: sampa.ParameterInfo) -> bool:
    return False


def run(
    make: Callable[..., sampa.SharpnessAware],
    batches: Sequence[Sample] = BATCHES,
    base: str | MakeBase = "sgd-momentum",
    epochs: int = 1,
    net: Callable[[], nn.Module] = normalized_mlp,
    **settings: Any,
) -> list[Tensor]:
    """The weights after every update; calls that change nothing are left out."""
    model = net()
    make_base = BASES[base] if isinstance(base, str) else base
    optimizer = make(
        make_base(model.parameters()), executor=sampa.Serial(model), seed=0, **settings
    )
    visited: list[Tensor] = []
    for epoch in range(epochs):
        optimizer.set_epoch(epoch)
        for batch in batches:
            optimizer.step(loss_of(model), batch)
            assert optimizer.last is not None
            if optimizer.last.updated:
                visited.append(flat(model))
    return visited


def assert_same(actual: list[Tensor], expected: list[Tensor], atol: float = 0.0) -> None:
    """At every update; zero tolerance unless a formula rounds differently."""
    assert len(actual) == len(expected) > 0
    for t, (a, b) in enumerate(zip(actual, expected, strict=True)):
        distance = (a - b).abs().max().item()
        assert distance <= atol, f"{distance} apart after update {t + 1}"


def gradient(model: nn.Module, batch: Sample, objective: Any = training_loss) -> list[Tensor]:
    """The plain gradient of an objective at the model's weights."""
    return list(torch.autograd.grad(objective(loss_of(model)(batch)), list(model.parameters())))


def gradient_at(point: Tensor, batch: Sample, objective: Any = training_loss) -> Tensor:
    """The same at given weights of `normalized_mlp`, as one flat vector."""
    model = normalized_mlp()
    nn.utils.vector_to_parameters(point, model.parameters())
    return torch.cat([g.flatten() for g in gradient(model, batch, objective)])


def points_of(
    make: Callable[..., sampa.SharpnessAware],
    batches: Sequence[Sample] = BATCHES[:1],
    base: str = "sgd-momentum",
    **settings: Any,
) -> list[Points]:
    """For each call of step: x_t, then every point at which loss_fn was called."""
    model = normalized_mlp()
    optimizer = make(BASES[base](model.parameters()), executor=sampa.Serial(model), **settings)
    visited: list[Points] = []

    def loss_fn(batch: Sample) -> sampa.Loss:
        visited[-1].note(flat(model), batch)
        return loss_of(model)(batch)

    for batch in batches:
        visited.append(Points())
        visited[-1].note(flat(model), None)
        optimizer.step(loss_fn, batch)
    return visited


def context(
    x: Sequence[Tensor],
    rho: float | Sequence[float] = 0.1,
    t: int = 0,
    eps: float = 0.0,
    names: Sequence[str] | None = None,
) -> sampa.Context:
    """A context for pieces that are tested without an optimizer."""
    infos = None if names is None else [sampa.ParameterInfo(n, "norm" in n) for n in names]
    return sampa.Context(
        t=t,
        epoch=0,
        x=x,
        groups=Hyperparameters(
            rho=[rho] * len(x) if isinstance(rho, int | float) else rho,
            lr=[0.1] * len(x),
            weight_decay=[0.0] * len(x),
            eps=eps,
        ),
        base=BaseView(
            lookahead=lambda g: lambda weights: add_(weights, g, [-0.1] * len(x)),
            momentum=lambda: None,
        ),
        model=ModelView(parameters=lambda: infos, buffers=list),
        random=RandomNumbers(t),
        batch_size=lambda: 1,
    )


def moved(move: sampa.Move | None, x: Sequence[Tensor]) -> list[Tensor]:
    """x̃ − x for a move."""
    assert move is not None
    weights = [t.clone() for t in x]
    move(weights)
    return [a - b for a, b in zip(weights, x, strict=True)]


def norm(tensors: Iterable[Tensor]) -> float:
    return math.sqrt(sum(t.square().sum().item() for t in tensors))


def vector(*values: Sequence[float] | None) -> sampa.Vector:
    return sampa.Vector(
        [None if v is None else torch.tensor(v, dtype=torch.float64) for v in values]
    )


def entries(vector: sampa.Vector) -> list[Tensor]:
    """The tensors of a vector that has one for each parameter."""
    tensors = [t for t in vector if t is not None]
    assert len(tensors) == len(vector)
    return tensors


# Every method with settings in which all that it does happens within a few steps of six samples.
ACTIVE: dict[str, Callable[..., sampa.SharpnessAware]] = {
    **sampa.METHODS,
    "msam": partial(sampa.MicroBatchSAM, num_shards=2),
    "looksam": partial(sampa.LookSAM, k=2),
    "ae-sam": partial(sampa.AESAM, total_steps=9),
    "rst": partial(sampa.RST, p=0.5),
    "esam": partial(sampa.ESAM, gamma=0.5),
    "saf": partial(sampa.SAF, start_epoch=0, gap=1),
    "mesa": partial(sampa.MESA, start_epoch=0, decay=0.5),
    "ssam-f": partial(sampa.SparseSAM, num_samples=2),
    "async-sam": partial(sampa.AsyncSAM, ascent_share=0.5),
    "gsam": partial(sampa.GSAM, rho=0.1, alpha=0.4, rho_min=0.05, lr_max=0.2),
    "sampa+msam": partial(sampa.SAMPa, micro_batches=sampa.MicroBatches(count=2)),
}

PLAN = [(epoch, batch) for epoch in range(3) for batch in BATCHES[:3]]  # nine steps, three epochs


def build(
    name: str, model: nn.Module, base: str = "sgd-momentum", **options: Any
) -> sampa.SharpnessAware:
    options = {"executor": sampa.Serial(model), "seed": 0, **options}
    return ACTIVE[name](BASES[base](model.parameters()), **options)


def net() -> nn.Sequential:
    return batch_norm_mlp(dropout=0.3)


def train(
    optimizer: sampa.SharpnessAware, model: nn.Module, plan: list[tuple[int, Sample]]
) -> Iterator[float]:
    """Make the steps of a plan; yields the loss of each."""
    for epoch, batch in plan:
        optimizer.set_epoch(epoch)
        yield optimizer.step(loss_of(model), batch).item()
