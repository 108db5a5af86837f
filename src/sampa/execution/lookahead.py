"""Peek: where the base optimizer would step with a gradient, without stepping.

y_{t+1} = ModelUpdate_{m_t}(x_t, g)   (Algorithm 2), with m_t (momentum, Adam's moments, step
counter) left untouched bit for bit. It works for any torch optimizer: `step` runs on a copy of its
state, and the copy is dropped.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.optim.optimizer as torch_optimizer
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from sampa.execution.compiler import outliving
from sampa.method import Move
from sampa.torch_private import GLOBAL_STEP_HOOKS, STEP_HOOKS
from sampa.vectors.vector import Vector, Weights, copy_

Copies = list[tuple[Tensor, Tensor]]


def lookahead(base: Optimizer, g: Vector) -> Move:
    """The move from x_t to y_{t+1} = Peek(x_t, g)."""

    def move(weights: Weights) -> None:
        set_gradients(weights, g.clone() if writes_into_gradients(base) else g)
        with borrowed_state(base):
            _unhooked_step(base)
        clear_gradients(weights)

    return move


def writes_into_gradients(base: Optimizer) -> bool:
    """Whether a step may change its gradients; those of torch that do not are known."""
    if type(base) not in (SGD, Adam, AdamW, Adagrad):
        return True
    # SGD adds the momentum to the gradient itself.
    return any(group.get("nesterov") and not group["fused"] for group in base.param_groups)


@contextmanager
def borrowed_state(base: Optimizer) -> Iterator[None]:
    """Let `base` work on a copy of its state and options, then give it back the original."""
    state, groups = base.state, base.param_groups
    options = [{k: v for k, v in group.items() if k != "params"} for group in groups]
    copies: Copies = []
    base.state = defaultdict(dict, {p: _copied(values, copies) for p, values in state.items()})
    for group, saved in zip(groups, options, strict=True):
        group.update(_copied(saved, copies))
    copy_([copy for copy, _ in copies], [original for _, original in copies])
    try:
        yield
    finally:
        base.state = state
        for group, saved in zip(groups, options, strict=True):
            for key in group.keys() - saved.keys() - {"params"}:
                del group[key]
            group.update(saved)


def momentum(base: Optimizer, weights: Weights) -> Vector | None:
    """The momentum buffer (SGD, RMSprop) or first moment (Adam and kin); None if it has none."""
    buffers = [
        base.state.get(p, {}).get("momentum_buffer", base.state.get(p, {}).get("exp_avg"))
        if p.requires_grad
        else None
        for p in weights
    ]
    return Vector(buffers) if any(b is not None for b in buffers) else None


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All its parameters, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def set_gradients(weights: Weights, g: Iterable[Tensor | None]) -> None:
    """Put g where torch optimizers look for gradients."""
    for p, gradient in zip(weights, g, strict=True):
        p.grad = gradient


def clear_gradients(weights: Weights) -> None:
    """Leave no gradient behind."""
    for p in weights:
        p.grad = None


def keep_gradients(weights: Weights) -> None:
    """Let gradients outlive the next backward pass, also if that is a CUDA graph."""
    for p in weights:
        if p.is_cuda and p.grad is not None:
            p.grad = outliving(p.grad)


def take_gradients(weights: Weights) -> Vector:
    """The gradients that a backward pass left, taken away from the parameters.

    Raises:
        RuntimeError: If one of them is sparse.
    """
    keep_gradients(weights)
    gradients = [p.grad for p in weights]
    clear_gradients(weights)
    if any(t is not None and t.is_sparse for t in gradients):
        raise RuntimeError(
            "gradients must be dense, got a sparse one: norms and moves over all weights would "
            "fill it anyway; build the layer with sparse=False"
        )
    return Vector(gradients)


def _unhooked_step(base: Optimizer) -> None:
    """`base.step()` without step hooks and schedulers' counters: a lookahead is not a step."""
    hooks: list[tuple[Any, str]] = [(base, name) for name in STEP_HOOKS]
    hooks += [(torch_optimizer, name) for name in GLOBAL_STEP_HOOKS]
    saved = [getattr(owner, name) for owner, name in hooks]
    for owner, name in hooks:
        setattr(owner, name, OrderedDict())
    try:
        type(base).step(base)  # a scheduler patches the instance
    finally:
        for (owner, name), value in zip(hooks, saved, strict=True):
            setattr(owner, name, value)


def _copied(value: Any, copies: Copies) -> Any:
    """The same with new tensors, which are noted and still to be filled: all of them together."""
    if type(value) is Tensor:
        copies.append((torch.empty_like(value), value))
        return copies[-1][0]
    if isinstance(value, nn.Parameter):  # some optimizers keep a reference to a weight: not state
        return value
    if isinstance(value, Tensor):  # a subclass may have no operation on several
        return value.clone()
    if isinstance(value, dict):
        return {k: _copied(v, copies) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(v, copies) for v in value)
    return value
