"""What users may get wrong, said with name, rule, value and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from torch.amp.grad_scaler import GradScaler


class WrongUsage(ValueError):
    """Something that the command line got wrong: a command ends with exit code 2."""


def require(name: str, value: Any, holds: bool, rule: str) -> None:
    """Raise a ValueError that gives the name, the rule and the value, unless the rule holds."""
    if not holds:
        raise ValueError(f"{name} must be {rule}, got {value!r}")


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise a ValueError unless the value is one of the choices."""
    require(name, value, value in choices, f"one of {', '.join(map(repr, choices))}")


def require_number(name: str, value: Any, low: float, high: float, rule: str) -> None:
    """Raise a ValueError unless the value is a number with low <= value <= high."""
    require(name, value, isinstance(value, Real) and low <= float(value) <= high, rule)


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """What to say about a name that does not exist."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(names)}"
    return f"{kind} must be a known name, got {name!r}; {hint}"


def require_base(base: Any) -> None:
    """Raise if `base` is no optimizer that steps from one given gradient."""
    from torch.optim import LBFGS, Optimizer  # the command line needs the other messages at once

    if not isinstance(base, Optimizer):
        raise TypeError(
            f"base must be a torch optimizer, got {type(base).__name__}; build it first: "
            "sampa.SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.05)"
        )
    if not any(group["params"] for group in base.param_groups):
        raise ValueError(
            "base must have at least one parameter, got none; pass model.parameters() "
            "(a list of them if they are needed twice: it is used up after the first time)"
        )
    if hasattr(base, "base"):
        raise TypeError(
            "base must be a plain torch optimizer, got a sampa optimizer; "
            "methods are combined by choosing their pieces, not by wrapping twice"
        )
    if isinstance(base, LBFGS):
        raise TypeError(
            "base must make its step from one given gradient, got LBFGS, which evaluates the loss "
            "itself; use a first-order optimizer"
        )


def require_known(given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise a TypeError that suggests the nearest name, if a keyword is not known."""
    for name in given:
        near = difflib.get_close_matches(name, list(known), n=1)
        hint = f"did you mean {near[0]}=?" if near else f"every method takes {', '.join(known)}"
        raise TypeError(f"{name} is not a hyper-parameter of this method or an option; {hint}")


def refuse_missing_batch() -> NoReturn:
    """Refuse to go on without the batch that the method held."""
    raise RuntimeError(
        "the held batch is missing: it was left out of state_dict (save_batch=False); "
        "hand it back with optimizer.hold(batch) before the next step"
    )


def refuse_call(loss_fn: Any, batch: Any, scaler: GradScaler | None) -> NoReturn:
    """Say what a call of `step` as of a plain optimizer's is missing."""
    if loss_fn is None or batch is None:
        missing = "loss_fn and batch" if loss_fn is None else "batch"
        got = f"loss_fn={loss_fn!r}, batch={batch!r}"
        hint = "" if scaler is not None else "; with a GradScaler pass scaler= to the constructor"
        raise RuntimeError(
            f"step needs {missing}: it computes the gradients itself. Write\n"
            "    def loss_fn(batch): x, y = batch; return F.cross_entropy(model(x), y)\n"
            f"    loss = optimizer.step(loss_fn, batch)\n(got {got}{hint})"
        )
    raise TypeError(f"loss_fn must be callable, got {type(loss_fn).__name__}")


def described(value: Any) -> Any:
    """A hyper-parameter as something that compares across processes and survives saving."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Real):  # as a plain number: a NumPy scalar is refused by a safe load
        return int(value) if isinstance(value, Integral) else float(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))  # addresses differ between processes
