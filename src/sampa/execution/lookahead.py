"""Peek: where the base optimizer would step with a gradient, without stepping.

y_{t+1} = ModelUpdate_{m_t}(x_t, g)   (Algorithm 2), with m_t (momentum, Adam's moments, step
counter) left untouched bit for bit. It works for any torch optimizer: `step` runs on a copy of all
that the optimizer keeps (state, options of its groups, attributes), and the copy is dropped. So
does an optimizer inside it. Generators are put back: the real step draws the same numbers.

A large model steps in two halves where the base optimizer treats each tensor on its own, so that
only half of its state is copied at a time.
"""

from __future__ import annotations

import copy
from bisect import bisect
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.optim.optimizer as torch_optimizer
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from sampa.execution.compiler import outliving
from sampa.execution.joint import Joint
from sampa.execution.randomness import kept_generators
from sampa.execution.untouched import Snapshot
from sampa.method import Move
from sampa.torch_private import GLOBAL_STEP_HOOKS, HOOKS, STEP_HOOKS, shared_in_copies
from sampa.vectors.vector import Vector, Weights, all_whole, clones, is_sharded, local, placed

ATOMS = frozenset(
    {int, float, bool, str, type(None), torch.dtype, torch.device, FunctionType, type}
)
"""Types whose values never change: they need no copy."""

TENSOR_BY_TENSOR = (SGD, Adam, AdamW, Adagrad)
"""Optimizers of torch that treat each tensor on its own, and leave one without gradient alone."""

LARGE_MODEL = 10_000_000  # numbers, from which on memory counts more than the time of a call

CHECKED_LOOKAHEADS = 2
"""How often an optimizer is checked: before its first step it has no state, after it it has."""


@dataclass
class FirstLookaheads:
    """What is known of an optimizer from its first lookaheads.

    Attributes:
        lookaheads: How many of them left it as it was.
        shares_memory: Whether some of its tensors are parts of the same memory.
    """

    lookaheads: int = 0
    shares_memory: bool = False


_SEEN: WeakKeyDictionary[Optimizer, FirstLookaheads] = WeakKeyDictionary()


def lookahead(base: Optimizer, g: Vector) -> Move:
    """The move from x_t to y_{t+1} = Peek(x_t, g)."""

    def move(_: Weights) -> None:
        weights = parameters_of(base)  # whatever part of them is at hand
        seen = _SEEN.setdefault(base, FirstLookaheads())
        snapshot = Snapshot(base, weights) if seen.lookaheads < CHECKED_LOOKAHEADS else None
        if snapshot is not None:
            seen.shares_memory = snapshot.shares_memory
        for part in _parts(base, weights):
            along = Vector(g.tensors[part])
            set_gradients(weights[part], along.clone() if writes_into_gradients(base) else along)
            with borrowed_state(base), _without_global_hooks(), _kept_randomness(base, weights):
                type(base).step(base)  # a scheduler patches the instance
            clear_gradients(weights[part])
        if snapshot is not None:
            snapshot.require_untouched(base, weights)
            seen.lookaheads += 1

    return move


def _parts(base: Optimizer, weights: Weights) -> list[slice]:
    """The parts of the weights to step with, one after the other."""
    if type(base) not in TENSOR_BY_TENSOR or sum(p.numel() for p in weights) < LARGE_MODEL:
        return [slice(None)]
    sizes = list(accumulate(p.numel() for p in weights))
    half = bisect(sizes, sizes[-1] / 2)
    return [slice(half), slice(half, None)]


def bases_of(base: Optimizer) -> list[Optimizer]:
    """The optimizers that step: several if they were joined."""
    return base.bases if isinstance(base, Joint) else [base]


def writes_into_gradients(base: Optimizer) -> bool:
    """Whether a step may change its gradients; those of torch that do not are known."""
    bases = bases_of(base)
    if any(type(one) not in TENSOR_BY_TENSOR for one in bases):
        return True
    # SGD adds the momentum to the gradient itself.
    groups = [group for one in bases for group in one.param_groups]
    return any(group.get("nesterov") and not group["fused"] for group in groups)


@contextmanager
def borrowed_state(base: Optimizer) -> Iterator[None]:
    """Let `base` work on a copy of all that it keeps, then give it back the original."""
    copies = Copies(base, shared_memory=_SEEN.setdefault(base, FirstLookaheads()).shares_memory)
    try:
        for owner, borrowed in copies.borrowed:
            vars(owner).update(borrowed)
            vars(owner).pop("step", None)  # a scheduler's, which is the original's
        yield
    finally:
        for owner, kept in copies.kept:
            vars(owner).update(kept)
            for name in vars(owner).keys() - kept.keys():
                del vars(owner)[name]


class Copies:
    """A copy of all that an optimizer keeps, and optimizers inside it.

    Weights and modules are not copied. Whatever is met twice is copied once, so that what was
    shared is shared in the copy. The tensors of the state are copied by one operation for all.

    Attributes:
        kept: Each optimizer with its own attributes, the base first.
        borrowed: Each optimizer with their copies.
    """

    def __init__(self, base: Optimizer, *, shared_memory: bool) -> None:
        self.kept: list[tuple[Optimizer, dict[str, Any]]] = []
        self.borrowed: list[tuple[Optimizer, dict[str, Any]]] = []
        self._base = base
        self._spares = type(base) in TENSOR_BY_TENSOR  # weights without a gradient
        self._shared_memory = shared_memory
        self._memo: dict[Any, Any] = {}
        self._knows_weights = False
        if not shared_memory:
            self._copy_plain_entries(base.state)
        self._borrow(base)

    def _copy_plain_entries(self, state: dict[Any, Any]) -> None:
        """Copy the entries that hold plain tensors and numbers alone: there is one per weight."""
        plain = {*ATOMS, Tensor}
        entries = [
            entry
            for key, entry in state.items()
            if type(entry) is dict
            and not self._is_spared(key)
            and plain.issuperset(map(type, entry.values()))
        ]
        tensors = [t for entry in entries for t in entry.values() if type(t) is Tensor]
        known = self._memo
        known.update(zip(map(id, tensors), clones(tensors), strict=True))
        for entry in entries:
            known[id(entry)] = {name: known.get(id(t), t) for name, t in entry.items()}

    def _is_spared(self, key: Any) -> bool:
        return self._spares and isinstance(key, Tensor) and key.grad is None

    def _borrow(self, owner: Optimizer) -> Optimizer:
        """The same optimizer, noted with its attributes and their copies."""
        self._memo[id(owner)] = owner
        kept = dict(vars(owner))
        borrowed: dict[str, Any] = {}
        self.kept.append((owner, kept))
        self.borrowed.append((owner, borrowed))
        for name, value in kept.items():
            if name in STEP_HOOKS:
                borrowed[name] = OrderedDict()
            if name in HOOKS:
                continue
            try:
                borrowed[name] = self._of(value)
            except Exception as error:
                raise RuntimeError(
                    "a lookahead works on a copy of all that the base optimizer keeps, and "
                    f"{type(owner).__name__}.{name} cannot be copied ({error}); give the class of "
                    "what it holds a __deepcopy__, or use a method without a lookahead, such as "
                    "sampa.SAM"
                ) from error
        return owner

    def _of(self, value: Any) -> Any:
        kind = type(value)
        if kind in ATOMS:
            return value
        known = self._memo.get(id(value))
        if known is not None:
            return known
        if kind is Tensor and not self._shared_memory:
            return self._noted(value, value.detach().clone())
        if kind is dict or kind is defaultdict:
            made = {} if kind is dict else defaultdict(value.default_factory)
            return self._entries(value, self._noted(value, made))
        if kind is list:
            made = self._noted(value, [])
            made.extend(map(self._of, value))
            return made
        if kind is tuple:
            return tuple(map(self._of, value))
        return self._of_any_kind(value)

    def _entries(self, value: dict[Any, Any], made: dict[Any, Any]) -> dict[Any, Any]:
        """Fill `made` with copies of the entries."""
        known = self._memo
        for key, part in value.items():
            if id(part) in known:
                made[key] = known[id(part)]
            # The list of a group's parameters: weights, and nothing that a step may change.
            # (Its type first: a key may be a weight, and to compare that is an operation.)
            elif type(part) is list and key == "params":
                made[key] = part
            elif not self._is_spared(key):
                made[key] = self._of(part)
        return made

    def _of_any_kind(self, value: Any) -> Any:
        if isinstance(value, nn.Module):
            return value
        if isinstance(value, Optimizer):
            return self._borrow(value)
        if not self._knows_weights:
            self._knows_weights = True
            weights = parameters_of(self._base)
            self._memo.update((id(p), p) for p in weights)
            if self._shared_memory:
                self._memo.update(shared_in_copies(weights))
            return self._of(value)
        if isinstance(value, Tensor) and type(value) not in (Tensor, nn.Parameter):
            return self._noted(value, value.detach().clone())
        return copy.deepcopy(value, self._memo)

    def _noted(self, value: Any, made: Any) -> Any:
        self._memo[id(value)] = made
        return made


def momentum(base: Optimizer, weights: Weights) -> Vector | None:
    """The momentum buffer (SGD, RMSprop) or first moment (Adam and kin); None if it has none."""
    buffers = [_buffer_of(base.state.get(p)) if p.requires_grad else None for p in weights]
    return _vector(buffers) if any(b is not None for b in buffers) else None


def _buffer_of(state: Any) -> Tensor | None:
    if not isinstance(state, dict):
        return None
    buffer = state.get("momentum_buffer", state.get("exp_avg"))
    return buffer if isinstance(buffer, Tensor) else None  # AdaShift's is a deque of gradients


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All its parameters, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def set_gradients(weights: Weights, g: Iterable[Tensor | None]) -> None:
    """Put g where torch optimizers look for gradients."""
    whole = all_whole(weights)
    for p, gradient in zip(weights, g, strict=True):
        p.grad = gradient if whole else placed(p, gradient)


def clear_gradients(weights: Weights) -> None:
    """Leave no gradient behind."""
    for p in weights:
        p.grad = None


def keep_gradients(weights: Weights) -> None:
    """Let gradients outlive the next backward pass, also if that is a CUDA graph."""
    for p in weights:
        if p.is_cuda and p.grad is not None and not is_sharded(p):  # those are new in each pass
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
    return _vector(gradients)


def _vector(tensors: Iterable[Tensor | None]) -> Vector:
    """Tensors that belong to parameters, as far as this process holds them."""
    return Vector(local(tensors))


@contextmanager
def _without_global_hooks() -> Iterator[None]:
    """No step hooks for all optimizers: a lookahead is not a step."""
    saved = {name: getattr(torch_optimizer, name) for name in GLOBAL_STEP_HOOKS}
    if not any(saved.values()):
        yield
        return
    try:
        for name in saved:
            setattr(torch_optimizer, name, OrderedDict())
        yield
    finally:
        for name, hooks in saved.items():
            setattr(torch_optimizer, name, hooks)


def _kept_randomness(base: Optimizer, weights: Weights) -> AbstractContextManager[None]:
    """Put generators back where the step may draw from them; torch's own optimizers do not."""
    if all(type(one).__module__.startswith("torch.optim") for one in bases_of(base)):
        return nullcontext()
    return kept_generators({p.device for p in weights})
