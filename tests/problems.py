"""Small problems with known answers, shared by the tests."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import sampa

Batch = tuple[Tensor, Tensor]
MakeOptimizer = Callable[[torch.optim.Optimizer], sampa.SharpnessAware]


class Quadratic(nn.Module):
    """The four-weight problem of the golden values: ½ Σ a (x − c)², averaged over two samples."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Module(), nn.Module()
        self.fc.weight = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
        self.fc.bias = nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
        self.norm.weight = nn.Parameter(torch.tensor([1.5], dtype=torch.float64))

    def forward(self, batch: Batch) -> Tensor:
        a, c = batch
        x = torch.cat(list(self.parameters()))
        return (0.5 * a * (x - c).square()).sum(dim=1).mean()


def _batch(a: list[list[float]], c: list[list[float]]) -> Batch:
    return torch.tensor(a, dtype=torch.float64), torch.tensor(c, dtype=torch.float64)


QUADRATIC_BATCHES: list[Batch] = [
    _batch([[1, 2, 3, 4], [3, 2, 1, 2]], [[0, 0, 0, 0], [1, -1, 0, 2]]),
    _batch([[2, 1, 1, 3], [2, 3, 1, 1]], [[0, 1, -1, 0], [1, 0, 1, 0]]),
    _batch([[1, 1, 2, 2], [1, 3, 2, 4]], [[0, 0, 1, 1], [0, 1, 0, 0]]),
    _batch([[2, 2, 2, 2], [4, 2, 2, 2]], [[0, 0, 0, 0], [1, 0, 0, 1]]),
]


class SmallNet(nn.Module):
    """A convolution, BatchNorm and dropout: everything that serial and parallel must agree on."""

    def __init__(self, batch_norm: bool = True, dropout: float = 0.3) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6) if batch_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(6 * 8 * 8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(F.relu(self.bn(self.conv(x)))).flatten(1))


def image_batches(count: int, size: int = 16, seed: int = 0) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield (
            torch.randn(size, 1, 8, 8, generator=generator),
            torch.randint(10, (size,), generator=generator),
        )


def small_net(seed: int = 0, **options: Any) -> SmallNet:
    torch.manual_seed(seed)
    return SmallNet(**options)


def weights_of(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def gradient_of(model: nn.Module) -> Tensor:
    """The gradient that was handed to the base optimizer, as a flat vector."""
    gradients = [p.grad for p in model.parameters()]
    assert all(g is not None for g in gradients)
    return torch.cat([g.flatten() for g in gradients if g is not None])


def in_layout(model: nn.Module, layout: torch.memory_format) -> nn.Module:
    untyped: Any = model  # torch's annotations of `to` leave memory_format out
    return untyped.to(memory_format=layout)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two nests of tensors and numbers are equal at zero tolerance."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_bits(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    return a == b or (a != a and b != b)


BASES: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd-momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd-nesterov": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "sgd-nesterov-foreach": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, foreach=True
    ),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.01),
    "sgd-fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=0.05, fused=True),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=0.05, foreach=True),
    "adamw-amsgrad": lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, lr_decay=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
}

METHODS: dict[str, Callable[..., sampa.SharpnessAware]] = {
    "base": sampa.Base,
    "sam": sampa.SAM,
    "sam-db": sampa.SAMdb,
    "sam-db-previous": partial(sampa.SAMdb, perturb_on="previous"),
    "sampa-0": partial(sampa.SAMPa, lam=0.0),
    "sampa-0.2": partial(sampa.SAMPa, lam=0.2),
    "sampa-script": partial(sampa.SAMPa, bootstrap="script", bn_pass="perturbed"),
    "optgd": sampa.OptGD,
    "randsam": sampa.RandSAM,
    "optsam": sampa.OptSAM,
}


def sgd(model: nn.Module, **options: Any) -> torch.optim.SGD:
    """The base optimizer of the golden values."""
    settings: dict[str, Any] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, **options}
    return torch.optim.SGD(model.parameters(), **settings)


def cross_entropy_of(model: Callable[[Tensor], Tensor]) -> Callable[[Batch], Tensor]:
    """A loss_fn for `step`."""

    def loss_fn(batch: Batch) -> Tensor:
        x, y = batch
        return F.cross_entropy(model(x), y)

    return loss_fn


def trajectory(
    optimizer: sampa.SharpnessAware,
    model: nn.Module,
    batches: Iterable[Batch],
    loss_fn: Callable[[Batch], Tensor] | None = None,
) -> list[Tensor]:
    """The weights after every update, as flat vectors; calls that change nothing are left out."""
    visited: list[Tensor] = []
    for batch in batches:
        optimizer.step(loss_fn or model, batch)
        assert optimizer.last is not None
        if optimizer.last.updated:
            visited.append(flat(model))
    return visited


def tiny_mlp(seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Four tensors, smooth, fast: for step-by-step comparisons."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def vector_batches(
    count: int, size: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[Batch]:
    """Batches for `tiny_mlp`."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(size, 4, generator=generator, dtype=dtype),
            torch.randint(3, (size,), generator=generator),
        )
        for _ in range(count)
    ]


class Points(list[Tensor]):
    """Weights at which a loss was evaluated, one after the other, and the batch of each."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Any] = []

    def note(self, point: Tensor, batch: Any) -> None:
        self.append(point)
        self.batches.append(batch)

    def on(self, batch: Any) -> list[Tensor]:
        """Those of one batch. SAMPa's are y_t and, a call of `step` later, x̃_t."""
        return [p for p, b in zip(self, self.batches, strict=True) if b is batch]


def watched(
    model: nn.Module, loss_fn: Callable[[Any], Tensor]
) -> tuple[Callable[[Any], Tensor], Points]:
    """The same loss_fn, and the weights at which it gets called.

    The probes of a round are evaluated in any order: where a round has several, look at the batch.
    """
    points = Points()

    def watching(batch: Any) -> Tensor:
        points.note(flat(model), batch)
        return loss_fn(batch)

    return watching, points


def held_gradient(optimizer: sampa.SharpnessAware) -> Tensor:
    """g_t as SAMPa, OptGD and OptSAM keep it between steps: nothing public shows it."""
    return torch.cat([t.flatten() for t in optimizer._carried.method_state.g if t is not None])


def through_a_file(state: Any) -> Any:
    """Saved, and loaded by the loader that runs no code."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)
