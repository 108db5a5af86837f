"""The papers' recurrences as plain slow code, one equation a line.

Nothing of sampa is used here. Weights are lists of tensors; `model_update` is a pure function of
(optimizer, weights, gradient) that works on a deep copy, so that Peek is Update with the optimizer
thrown away. Each generator yields the weights after every update.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

Weights = list[Tensor]
Gradient = Callable[[Weights, Any], Weights]
Recurrence = Callable[..., Iterator[Weights]]

EPS = 1e-12


def model_update(m: Optimizer, x: Weights, g: Weights) -> tuple[Optimizer, Weights]:
    """(m', ModelUpdate_m(x, g)), leaving m, x and g as they are."""
    m = copy.deepcopy(m)
    params = [p for group in m.param_groups for p in group["params"]]
    for p, value, gradient in zip(params, x, g, strict=True):
        p.data = value.clone()
        p.grad = gradient.clone()
    m.step()
    return m, [p.detach().clone() for p in params]


def norm(v: Weights) -> float:
    """The norm of all numbers, one after the other: the tensors here are short."""
    return torch.linalg.vector_norm(torch.cat([t.flatten() for t in v])).item()


def ascend(x: Weights, g: Weights, rho: float) -> Weights:
    """x + ρ g / ‖g‖."""
    factor = 1 / (norm(g) + EPS) * rho  # torch divides a number by a tensor in this order
    return [a + factor * b for a, b in zip(x, g, strict=True)]


def base(grad: Gradient, m: Optimizer, x: Weights, batches: Sequence[Any]) -> Iterator[Weights]:
    for B in batches:
        m, x = model_update(m, x, grad(x, B))
        yield x


def sam(
    grad: Gradient, m: Optimizer, x: Weights, batches: Sequence[Any], rho: float
) -> Iterator[Weights]:
    for B in batches:
        x_tilde = ascend(x, grad(x, B), rho)
        m, x = model_update(m, x, grad(x_tilde, B))
        yield x


def sam_db(
    grad: Gradient, m: Optimizer, x: Weights, batches: Sequence[Any], rho: float
) -> Iterator[Weights]:
    for B, B_next in pairwise(batches):
        x_tilde = ascend(x, grad(x, B_next), rho)
        m, x = model_update(m, x, grad(x_tilde, B))
        yield x


def sam_db_previous(
    grad: Gradient, m: Optimizer, x: Weights, batches: Sequence[Any], rho: float
) -> Iterator[Weights]:
    for B_previous, B in pairwise(batches):
        x_tilde = ascend(x, grad(x, B_previous), rho)
        m, x = model_update(m, x, grad(x_tilde, B))
        yield x


def opt_sam(
    grad: Gradient, m: Optimizer, x: Weights, batches: Sequence[Any], rho: float
) -> Iterator[Weights]:
    x_tilde = x
    for B in batches:
        g = grad(x_tilde, B)
        m, x = model_update(m, x, g)
        x_tilde = ascend(x, g, rho)
        yield x


def opt_gd(grad: Gradient, m: Optimizer, x: Weights, batches: Sequence[Any]) -> Iterator[Weights]:
    g = grad(x, batches[0])
    for B_next in batches[1:]:
        _, y = model_update(m, x, g)
        g = grad(y, B_next)
        m, x = model_update(m, x, g)
        yield x


def sampa(
    grad: Gradient, m: Optimizer, x: Weights, batches: Sequence[Any], rho: float, lam: float
) -> Iterator[Weights]:
    """Algorithm 2."""
    g = grad(x, batches[0])
    for B, B_next in pairwise(batches):
        x_tilde = ascend(x, g, rho)
        _, y = model_update(m, x, g)
        g_tilde = grad(x_tilde, B)
        g = grad(y, B_next)
        G = [torch.add((1 - lam) * a, b, alpha=lam) for a, b in zip(g_tilde, g, strict=True)]
        m, x = model_update(m, x, G)
        yield x


def sampa_script(
    grad: Gradient, m: Optimizer, x: Weights, batches: Sequence[Any], rho: float, lam: float
) -> Iterator[Weights]:
    """Algorithm 2 after the published script's start: a plain step on B_0, whose g stays."""
    g = grad(x, batches[0])
    m, x = model_update(m, x, g)
    yield x
    for B, B_next in pairwise(batches):
        x_tilde = ascend(x, g, rho)
        _, y = model_update(m, x, g)
        g_tilde = grad(x_tilde, B)
        g = grad(y, B_next)
        G = [torch.add((1 - lam) * a, b, alpha=lam) for a, b in zip(g_tilde, g, strict=True)]
        m, x = model_update(m, x, G)
        yield x
