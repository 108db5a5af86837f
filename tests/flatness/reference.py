"""Flatness as plain slow code: the loss as a function of one flat vector, and its whole Hessian."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import sampa

Batch = tuple[Tensor, Tensor]


def net(seed: int = 0) -> nn.Sequential:
    """A smooth net of 21 weights in double precision."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3)).double()


def batches(sizes: Sequence[int] = (7, 5), seed: int = 1) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(n, 2, generator=generator, dtype=torch.float64),
            torch.randint(3, (n,), generator=generator),
        )
        for n in sizes
    ]


def joined(parts: Sequence[Batch]) -> Batch:
    x, y = zip(*parts, strict=True)
    return torch.cat(x), torch.cat(y)


def loss_of(model: nn.Module) -> Callable[[Batch], sampa.Loss]:
    def loss_fn(batch: Batch) -> sampa.Loss:
        x, y = batch
        z = model(x)
        return sampa.Loss(F.cross_entropy(z, y), logits=z, targets=y)

    return loss_fn


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def shaped(model: nn.Module, vector: Tensor) -> dict[str, Tensor]:
    found, place = {}, 0
    for name, p in model.named_parameters():
        found[name] = vector[place : place + p.numel()].view(p.shape)
        place += p.numel()
    return found


def logits_at(model: nn.Module, vector: Tensor, x: Tensor) -> Tensor:
    return functional_call(model, shaped(model, vector), x)


def loss_at(model: nn.Module, vector: Tensor, batch: Batch) -> Tensor:
    return F.cross_entropy(logits_at(model, vector, batch[0]), batch[1])


def hessian(model: nn.Module, batch: Batch) -> Tensor:
    found = torch.autograd.functional.hessian(lambda v: loss_at(model, v, batch), flat(model))
    assert isinstance(found, Tensor)
    return found


def gauss_newton(model: nn.Module, batch: Batch) -> Tensor:
    x, y = batch
    vector = flat(model)
    j = torch.autograd.functional.jacobian(lambda v: logits_at(model, v, x).reshape(-1), vector)
    z = logits_at(model, vector, x).detach()
    h = torch.autograd.functional.hessian(lambda s: F.cross_entropy(s.view_as(z), y), z.reshape(-1))
    assert isinstance(j, Tensor)
    assert isinstance(h, Tensor)
    return j.T @ h @ j


def flattened(vector: sampa.Vector) -> Tensor:
    return torch.cat([t.reshape(-1) for t in vector.present])
