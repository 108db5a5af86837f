"""The keywords that every method takes besides its own, with their defaults and rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import wraps
from types import CodeType
from typing import Any, Literal, ParamSpec, Self, TypeVar

from torch.amp.grad_scaler import GradScaler

from sampa.execution.executor import Executor
from sampa.execution.joint import as_one
from sampa.messages import require, require_choice, require_known

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Keywords that every method takes besides its own.

    Attributes:
        executor: From `sampa.distribute`; None computes everything in this process.
        max_norm: Clip the gradient handed to the base optimizer to this norm.
        accumulate: Cut each batch into this many micro-batches; the gradient is the whole batch's.
        scaler: A torch GradScaler for fp16. Pass it here and do not call its `step` or `update`.
        perturb_eps: Added to a norm before dividing by it.
        same_noise: Let both passes over a batch see the same dropout masks.
        seed: Of dropout and random directions; torch's initial seed if not given.
        save_batch: Put the held batch into `state_dict`; if not, hand it back with `hold`.
        hold: How methods that hold a batch do: by "reference", and refuse to go on if it was
            changed meanwhile; or as a "copy", for loaders that refill their memory and for a
            `loss_fn` that works in place.
        max_skips: Raise after this many steps in a row with a gradient that is not finite.
        checks: When the host learns that a gradient was not finite: "now", in the same step, or
            "late", in the next one, so that it never waits for a device. Late checks need a base
            optimizer with `fused=True` or `capturable=True`, and lose one more batch per skip.
        sync_perturbation: Whether data ranks perturb by their common gradient (the result does not
            depend on how many there are) or each by its own (m-sharpness, one pass less to sync).
    """

    executor: Executor | None = None
    max_norm: float | None = None
    accumulate: int = 1
    scaler: GradScaler | None = None
    perturb_eps: float = 1e-12
    same_noise: bool = False
    seed: int | None = None
    save_batch: bool = True
    hold: Literal["reference", "copy"] = "reference"
    max_skips: int = 100
    checks: Literal["now", "late"] = "now"
    sync_perturbation: bool = True

    def __post_init__(self) -> None:
        require("accumulate", self.accumulate, self.accumulate >= 1, ">= 1")
        require(
            "max_norm", self.max_norm, self.max_norm is None or self.max_norm > 0, "> 0 or None"
        )
        eps = self.perturb_eps
        require("perturb_eps", eps, 0 <= eps < math.inf, ">= 0 and finite")
        require_choice("hold", self.hold, ("reference", "copy"))
        require_choice("checks", self.checks, ("now", "late"))
        require("max_skips", self.max_skips, self.max_skips >= 1, ">= 1")

    @classmethod
    def of(cls, given: Mapping[str, Any], factory: CodeType | None = None) -> Self:
        """The options of these keywords.

        Args:
            given: The keywords that are no hyper-parameters of the method.
            factory: Of the method: what it takes itself is suggested too.

        Raises:
            TypeError: If a keyword is unknown, suggesting the nearest one.
            ValueError: If a value breaks its rule.
        """
        known = [f.name for f in fields(cls)]
        own = () if factory is None else factory.co_varnames[: _arguments(factory)]
        require_known({k: v for k, v in given.items() if k not in known}, known, own)
        return cls(**{**_DEFAULTS.get({}), **given})


_DEFAULTS: ContextVar[Mapping[str, Any]] = ContextVar("default options")


@contextmanager
def default_options(**options: Any) -> Iterator[None]:
    """Give options to the optimizers that are built in the block without values of their own.

    For frameworks that let users build an optimizer and know more about it than they do.
    """
    token = _DEFAULTS.set({**_DEFAULTS.get({}), **options})
    try:
        yield
    finally:
        _DEFAULTS.reset(token)


def _arguments(function: CodeType) -> int:
    return function.co_argcount + function.co_kwonlyargcount


def with_base_alone(factory: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a factory without hyper-parameters of its own say what to write in place of two values.

    Raises:
        TypeError: If there is another value behind the base.
    """

    @wraps(factory)
    def checked(*values: _P.args, **options: _P.kwargs) -> _T:
        if len(values) > 1:
            base: Any = values[0]
            as_one(base)  # other libraries take the parameters and the class of the base
            raise TypeError(
                f"{factory.__qualname__} has no hyper-parameters, got {values[1]!r} after the base "
                "optimizer; leave it out, and give options by name (seed=1)"
            )
        return factory(*values, **options)

    return checked
