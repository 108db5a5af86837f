"""What users may get wrong, said with name, rule, value and what to do."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

if TYPE_CHECKING:
    from torch.amp.grad_scaler import GradScaler

_P = ParamSpec("_P")
_T = TypeVar("_T")


class WrongUsage(ValueError):
    """Something that the command line got wrong: a command ends with exit code 2."""


@contextmanager
def wrong_usage() -> Iterator[None]:
    """Around what only looks at what was asked for: whatever is wrong with it is wrong usage."""
    try:
        yield
    except WrongUsage:
        raise
    except ValueError as error:
        raise WrongUsage(str(error)) from error


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


STEPS_OTHERWISE = {
    "LBFGS": "evaluates the loss itself, in a closure",
    "AliG": "needs the value of the loss",
    "AdaHessian": "needs second derivatives",
    "SophiaH": "needs second derivatives",
    "LOMO": "updates the weights during backward",
    "AdaLOMO": "updates the weights during backward",
    "GSAM": "needs two gradients a step",
}
"""Optimizers of torch and pytorch_optimizer that make no step from one given gradient, and why."""


def refuses_other_forms(factory: Callable[_P, _T]) -> Callable[_P, _T]:
    """A factory that says what to write instead of SAM(parameters, torch.optim.SGD, rho=0.05).

    Without it Python complains first, that rho is given twice.
    """

    @functools.wraps(factory)
    def checked(*given: _P.args, **options: _P.kwargs) -> _T:
        if len(given) > 1 and isinstance(given[1], type):
            require_base(given[0])
        return factory(*given, **options)

    return checked


def require_base(base: Any) -> None:
    """Raise if `base` is no optimizer that steps from one given gradient."""
    from torch.optim import Optimizer  # the command line needs the other messages at once

    name = type(base).__name__
    if not isinstance(base, Optimizer):
        hint = "build it first: sampa.SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=0.05)"
        if callable(getattr(base, "step", None)):
            hint = (
                "it has a step of its own but does not subclass torch.optim.Optimizer, so that its "
                "state cannot be found; use a class that does (schedulefree.AdamWScheduleFree, "
                "pytorch_optimizer.ScheduleFreeWrapper)"
            )
        raise TypeError(f"base must be a torch optimizer, got {name}; {hint}")
    if hasattr(base, "base") and hasattr(base, "method"):
        raise TypeError(
            "base must be a plain torch optimizer, got a sampa optimizer; pass its base: methods "
            "are combined by choosing their pieces, not by wrapping twice"
        )
    if not hasattr(base, "param_groups"):
        raise TypeError(
            f"base must have param_groups, got {name}, which has none; pass the optimizer inside it"
        )
    if not any(group["params"] for group in base.param_groups):
        raise ValueError(
            "base must have at least one parameter, got none; pass model.parameters() "
            "(a list of them if they are needed twice: it is used up after the first time)"
        )
    _require_step_from_one_gradient(base)
    for group in base.param_groups:
        require_group(group)


def require_group(group: Mapping[str, Any]) -> None:
    """Raise if a group's options turn the step around, or make it part of a graph."""
    if group.get("maximize"):
        raise ValueError(
            "maximize must be False in every group, got True: methods climb the loss that they are "
            "given, and add terms to it; write maximize=False and let loss_fn return -loss"
        )
    if group.get("differentiable"):
        raise ValueError(
            "differentiable must be False in every group, got True: a step of sampa has no graph; "
            "write differentiable=False"
        )


def _require_step_from_one_gradient(base: Any) -> None:
    name = type(base).__name__
    names = [kind.__name__ for kind in type(base).__mro__]
    reason = next((STEPS_OTHERWISE[kind] for kind in names if kind in STEPS_OTHERWISE), None)
    arguments = list(inspect.signature(type(base).step).parameters.values())[1:]
    if reason is None and any(a.default is a.empty and a.name == "closure" for a in arguments):
        reason = "evaluates the loss itself, in a closure"
    if hasattr(base, "first_step") and hasattr(base, "second_step"):
        reason = "needs two gradients a step"
    if reason is not None:
        instead = "use a first-order optimizer"
        if "two gradients" in reason:
            instead = "pass the optimizer inside it to the method of sampa (sampa.METHODS)"
        raise TypeError(
            f"base must make its step from one given gradient, got {name}, which {reason}; "
            f"{instead}"
        )


TWO_CALLS = ("first_step", "second_step")
"""How other libraries make the two halves of SAM's step."""


def require_shardable(is_sharded: bool, method: Any, sync_perturbation: bool) -> None:
    """Refuse what cannot be done where each rank holds a part of the weights.

    Args:
        is_sharded: Whether it does.
        method: The method.
        sync_perturbation: The option.

    Raises:
        ValueError: Naming the method or the option, and what to do.
    """
    if is_sharded and getattr(method, "needs_whole_vectors", False):
        raise ValueError(
            f"{type(method).__name__} needs all weights at once, got a sharded model, of which "
            "each rank has a part; leave out fully_shard, or choose another method"
        )
    if is_sharded and not sync_perturbation:
        raise ValueError(
            "sync_perturbation must be True for a sharded model, got False: the gradient of one "
            "data rank alone is gone when FSDP has scattered the average; leave it out"
        )


def refuse_attribute(owner: str, name: str) -> NoReturn:
    """Say that there is no such attribute, and what takes the place of other libraries'."""
    hint = ""
    if name in TWO_CALLS:
        hint = f": step makes both passes; in place of {' and '.join(TWO_CALLS)} write{HOW_TO_STEP}"
    raise AttributeError(f"{owner!r} object has no attribute {name!r}{hint}")


def require_known(given: Mapping[str, Any], known: Iterable[str], own: Iterable[str] = ()) -> None:
    """Raise a TypeError that suggests the nearest name, if a keyword is not known.

    Args:
        given: The keywords.
        known: What every method takes.
        own: What this one takes besides.
    """
    for name in given:
        near = difflib.get_close_matches(name, [*own, *known], n=1)
        hint = f"did you mean {near[0]}=?" if near else f"every method takes {', '.join(known)}"
        raise TypeError(f"{name} is not a hyper-parameter of this method or an option; {hint}")


def refuse_half_a_state(missing: str) -> NoReturn:
    """Refuse to go on with one part of a distributed checkpoint."""
    raise RuntimeError(
        f"a run from a distributed checkpoint needs both of its parts, and {missing} was not "
        "loaded; save and load set_optimizer_state_dict(model, optimizer, ...) and "
        "optimizer.extra_state() together"
    )


def refuse_lost_vector(name: str) -> NoReturn:
    """Say that the states of the parameters came without what the method keeps there."""
    raise RuntimeError(
        f"the state that was loaded must have {name!r} for each parameter, and has it for none; "
        "torch leaves it out with StateDictOptions(flatten_optimizer_state_dict=True): save and "
        "load without that option"
    )


def refuse_missing_batch() -> NoReturn:
    """Refuse to go on without the batch that the method held."""
    raise RuntimeError(
        "the held batch is missing: it was left out of state_dict (save_batch=False); "
        "hand it back with optimizer.hold(batch) before the next step"
    )


def refuse_endless_skipping(
    progress: Mapping[str, Any], losses: Sequence[float], norms: Sequence[float]
) -> NoReturn:
    """Say that too many steps in a row were dropped."""
    raise RuntimeError(
        f"{progress['skips_in_a_row']} steps in a row had a gradient that is not finite (losses "
        f"{losses}, norms {norms} at update {progress['updates']}); the weights are unchanged "
        "since the first of them: look at the loss and the data, lower the learning rate, or raise "
        "max_skips"
    )


HOW_TO_STEP = """
    def loss_fn(batch): x, y = batch; return F.cross_entropy(model(x), y)
    loss = optimizer.step(loss_fn, batch)
"""


def refuse_call(loss_fn: Any, batch: Any, closure: Any, scaler: GradScaler | None) -> NoReturn:
    """Say what a call of `step` as of a plain optimizer's is missing."""
    if closure is not None:
        raise TypeError(
            "step takes loss_fn and a batch, or a closure alone, got both; leave out closure=, or "
            "pass sampa.Closure(function) and the batch"
        )
    if loss_fn is not None and not callable(loss_fn):
        raise TypeError(f"loss_fn must be callable, got {type(loss_fn).__name__}")
    needed = {"loss_fn": loss_fn, "batch": batch}
    missing = " and ".join(name for name, value in needed.items() if value is None)
    got = f"loss_fn={loss_fn!r}, batch={batch!r}"
    hint = "" if scaler is not None else "; with a GradScaler pass scaler= to the constructor"
    raise RuntimeError(
        f"step needs {missing}: it computes the gradients itself. Write{HOW_TO_STEP}(got "
        f"{got}{hint})"
    )


def refuse_closure(reason: str) -> NoReturn:
    """Say why a closure cannot be used, and what can."""
    raise RuntimeError(f"step cannot take a closure here: {reason}. Write{HOW_TO_STEP}")


def refuse_parts() -> NoReturn:
    """Say why a batch of several parts cannot be used, and what can."""
    raise RuntimeError(
        "step cannot take a batch in parts here: the method differentiates another loss or chooses "
        "samples, and needs the whole batch for that. Let the loader yield whole batches (no "
        "accumulation by a framework), and pass accumulate= to the optimizer, which cuts them"
        f":{HOW_TO_STEP}"
    )


def refuse_other_parts(held_in_parts: bool | None) -> NoReturn:
    """Say why a batch in parts cannot follow a held one that is not, or the other way round."""
    raise ValueError(
        "in_parts must be the same in all steps of a method that holds a batch, got "
        f"{not held_in_parts} after {held_in_parts}: a step evaluates the batch before it too; "
        "pass in_parts=True always, with a list of one where a batch has no parts"
    )


def refuse_accumulated() -> NoReturn:
    """Say what a closure must do with gradients from before it."""
    raise RuntimeError(
        "a closure must zero the gradients, and this one added to those from before "
        "step: a method needs several gradients, each of the whole batch, so that what was "
        "accumulated outside of the closure would count in one of them alone. Let its first line "
        "be optimizer.zero_grad(). To cut a batch into micro-batches, pass accumulate= to the "
        f"optimizer and the whole batch to step:{HOW_TO_STEP}"
    )


def described(value: Any) -> Any:
    """A hyper-parameter as something that compares across processes and survives saving."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Real):  # as a plain number: a NumPy scalar is refused by a safe load
        return int(value) if isinstance(value, Integral) else float(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))  # addresses differ between processes
