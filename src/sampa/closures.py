"""The ways to call `step`: with a closure in torch's convention, besides `loss_fn` and a batch."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from sampa.execution.evaluate import Excursions
from sampa.execution.lookahead import parameters_of
from sampa.loss import Closure
from sampa.messages import refuse_accumulated, refuse_call, refuse_closure
from sampa.method import Method
from sampa.options import Options
from sampa.vectors.vector import Weights, local


def closure_of(
    loss_fn: Any, batch: Any, closure: Any, method: Method, options: Options, base: Optimizer
) -> Closure:
    """The closure that `step` was called with, to be called with the batch of each probe.

    Args:
        loss_fn: As `step` was given it.
        batch: Likewise.
        closure: Likewise.
        method: Of the optimizer.
        options: Of the optimizer.
        base: Of the optimizer: whose gradients the closure leaves.

    Raises:
        RuntimeError: If the call is another one, or the method needs more; with the form to use.
    """
    if isinstance(loss_fn, Closure) and batch is not None and closure is None:
        chosen = loss_fn
    else:
        given = _torch_closure(loss_fn, batch, closure, options)
        if method.holds_batch:
            refuse_closure(
                f"{type(method).__name__} evaluates a batch again in the next step, and a closure "
                "sees the newest alone"
            )
        chosen = Closure(_Alone(given, parameters_of(base)))
    if getattr(method, "needs_loss_fn", False):
        refuse_closure(
            f"{type(method).__name__} differentiates another loss or chooses samples, and a "
            "closure has run backward on its own"
        )
    if options.accumulate > 1:
        refuse_closure(
            f"accumulate={options.accumulate} cuts the batch into micro-batches, and a closure "
            "evaluates all of it"
        )
    return chosen


class _Alone:
    """A closure that must not add to gradients from before: methods need all of them at once.

    A framework that accumulates calls backward several times and hands over the last time alone.
    torch's convention is that the closure zeroes gradients: for its first call one from before
    is put back (the smallest, since it is kept in memory), and must be gone afterwards.
    """

    def __init__(self, given: Callable[[], Any], weights: Weights) -> None:
        self._given = given
        found = [(p, p.grad) for p in weights if p.grad is not None]
        self._before = min(found, key=lambda pair: pair[1].numel(), default=None)

    def __call__(self, _batch: None) -> Any:
        before, self._before = self._before, None
        if before is None:
            return self._given()
        p, gradient = before
        p.grad = gradient
        loss = self._given()
        if p.grad is gradient:
            refuse_accumulated()
        return loss


def _torch_closure(loss_fn: Any, batch: Any, closure: Any, options: Options) -> Callable[[], Any]:
    """The function without arguments of `step(closure)` or `step(closure=closure)`."""
    given = loss_fn if closure is None else closure
    is_another_form = batch is not None or (closure is not None and loss_fn is not None)
    if given is None or is_another_form:
        refuse_call(loss_fn, batch, closure, options.scaler)
    if not callable(given) or isinstance(given, Closure) or _takes_a_batch(given):
        refuse_call(given, batch, None, options.scaler)
    if options.scaler is not None or _is_called_by_scaler():
        refuse_closure(
            "with a GradScaler the gradients of all probes are unscaled together; pass scaler= to "
            "the constructor, and do not call scaler.step"
        )
    return given


def initialized(base: Optimizer) -> bool:
    """Let the base optimizer create its state, if that is what `step()` was called for.

    torch's distributed checkpoint sets all gradients to zero and calls `step(closure=None)`. The
    weights stay.
    """
    weights = parameters_of(base)
    gradients = [p.grad for p in weights if p.requires_grad]
    if base.state or not gradients or _is_called_by_scaler():
        return False
    if any(g is None or local([g])[0].any() for g in gradients):
        return False
    with Excursions().to(lambda _: base.step(), weights):
        return True


def _takes_a_batch(function: Callable[..., Any]) -> bool:
    """Whether it cannot be called without an argument: a `loss_fn`, whose batch is missing."""
    known = function.forward if isinstance(function, nn.Module) else function
    try:
        arguments = inspect.signature(known).parameters.values()
    except (TypeError, ValueError):  # written in another language, without a signature
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(a.kind in positional and a.default is a.empty for a in arguments)


def _is_called_by_scaler() -> bool:
    """Whether a GradScaler's `step` is what called: it passes a positional closure on."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code is not GradScaler.step.__code__:
        frame = frame.f_back
    return frame.f_code is GradScaler.step.__code__
