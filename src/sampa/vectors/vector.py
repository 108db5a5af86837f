"""Arithmetic on vectors shaped like the parameters; the only multi-tensor code.

A vector holds one tensor per parameter, in the order of the optimizer's groups. An entry is None
where a parameter has no gradient: "no gradient" is not "a gradient of zero", since a base optimizer
leaves such a parameter alone (no weight decay, no momentum).

Vectors are values: nothing here changes one after it was made, so that its norm is computed once.
Only the live weights are changed in place, through `add_` and `copy_`; and `mix` can spend a vector
that is not needed again.

Of a parameter that is sharded over processes (a DTensor) a vector holds the shard of this process,
as a plain tensor: `local` and `placed` lead there and back. Element by element that makes no
difference, and sums over all parameters are taken over all shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeGuard, TypeVar

import torch
from torch import Tensor, nn

from sampa.torch_private import storage_address
from sampa.vectors.reductions import (
    LOW_PRECISION,
    global_norms,
    inner_product,
    norms_and_product,
)

Weights = Sequence[Tensor]  # the live parameters, which moves change in place
WHOLE = frozenset({Tensor, nn.Parameter, type(None)})
"""Types of entries that are never shards: one look at all types is what most steps pay for them."""

_KIND = attrgetter("dtype", "device")
Entry = TypeVar("Entry", bound=Tensor | None)
Number = float | Tensor
"""A factor: a Python number, or a scalar on a device, which the host does not wait for."""


def as_number(value: Number) -> Number:
    """A factor that can be used without waiting: a tensor on a device stays one."""
    on_device = isinstance(value, Tensor) and value.device.type != "cpu"
    return value if on_device else float(value)


class Vector:
    """One tensor (or None) per parameter, with its global L2 norm."""

    __slots__ = ("_cosine", "_norm", "tensors")

    def __init__(self, tensors: Iterable[Tensor | None]) -> None:
        self.tensors = tuple(tensors)
        self._norm: Tensor | None = None
        self._cosine: tuple[Tensor, Tensor] | None = None  # the other's norm, by which it is known

    def __iter__(self) -> Iterator[Tensor | None]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __reduce__(self) -> tuple[type[Vector], tuple[list[Tensor | None]]]:
        return Vector, (list(self.tensors),)

    @property
    def present(self) -> list[Tensor]:
        """The entries that are not None."""
        return [t for t in self.tensors if t is not None]

    @property
    def pattern(self) -> tuple[bool, ...]:
        """For each entry, whether it is present."""
        return tuple(t is not None for t in self.tensors)

    @property
    def norm(self) -> Tensor:
        """‖v‖ over all tensors together: a float64 scalar on their device."""
        if self._norm is None:
            compute_norms([self])
        assert self._norm is not None
        return self._norm

    def map_elements(self, function: Callable[[Tensor], Tensor]) -> Vector:
        """The vector of an element-wise function. A sharded entry may be given in parts."""
        return Vector(None if t is None else function(t) for t in self.tensors)

    def map_tensors(self, function: Callable[[Tensor], Tensor]) -> Vector:
        """The vector of a function of each whole tensor, such as division by its own norm."""
        return Vector(None if t is None else function(t) for t in self.tensors)

    def filled(self, values: Iterable[Tensor]) -> Vector:
        """The vector with other tensors where this one has entries, absent elsewhere."""
        remaining = iter(values)
        return Vector(None if t is None else next(remaining) for t in self.tensors)

    def clone(self) -> Vector:
        """A copy of all tensors together: on a GPU one kernel, not one for each."""
        return self.filled(clones(self.present))

    def shares_memory_with(self, others: Iterable[Vector]) -> bool:
        """Whether an entry uses the same memory as an entry of the others."""
        theirs = {address for v in others for address in v._addresses()}
        return not theirs.isdisjoint(self._addresses())

    def _addresses(self) -> Iterator[int]:
        return map(storage_address, map(Tensor.untyped_storage, self.present))


def compute_norms(vectors: Iterable[Vector]) -> None:
    """Compute the norms of several vectors at once: shards are summed in one exchange."""
    unknown = list({id(v): v for v in vectors if v._norm is None}.values())
    for v, norm in zip(unknown, global_norms([v.present for v in unknown]), strict=True):
        v._norm = norm


def local(tensors: Iterable[Entry]) -> list[Entry]:
    """The part of each tensor that this process holds: itself, or the memory of its shard."""
    found = list(tensors)
    return found if all_whole(found) else [*map(_held_part, found)]


def all_whole(tensors: Iterable[Tensor | None]) -> bool:
    """Whether all are of types that have no shards."""
    return WHOLE.issuperset(map(type, tensors))


def is_sharded(t: Tensor) -> bool:
    """Whether a tensor is a DTensor, whose type is imported only by those who have one."""
    return hasattr(t, "to_local")


def _held_part(t: Any) -> Any:
    if t is None or not is_sharded(t):
        return t
    with torch.no_grad():
        return t.to_local().detach().requires_grad_(t.requires_grad)


def placed(p: Any, part: Tensor | None) -> Tensor | None:
    """A vector's entry as the parameter has it: the shard of a DTensor as a DTensor."""
    if part is None or not is_sharded(p):
        return part
    layout = p.device_mesh, p.placements
    return type(p).from_local(part, *layout, run_check=False, shape=p.shape, stride=p.stride())


def dot(a: Vector, b: Vector) -> Tensor:
    """⟨a, b⟩ as a float64 scalar; an absent entry counts as zero, half precision as float32."""
    return inner_product([*zip(*_common(a.tensors, b.tensors), strict=True)])


def cosine(a: Vector, b: Vector) -> Tensor:
    """⟨a, b⟩ / (‖a‖ ‖b‖), or NaN where one of them is zero; computed once for the same two."""
    if a._cosine is not None and a._cosine[0] is b._norm:
        return a._cosine[1]
    if a._norm is b._norm is None and a.pattern == b.pattern:
        (a._norm, b._norm), along = norms_and_product(a.present, b.present)
    else:
        along = dot(a, b)
    product = a.norm * b.norm
    found = torch.where(product > 0, along / product, math.nan)
    a._cosine = b.norm, found
    return found


def scale(v: Vector, factor: Number) -> Vector:
    """factor · v."""
    return v.filled(_scaled(v.present, factor))


def add(a: Vector, b: Vector, alpha: Number = 1.0) -> Vector:
    """a + α b; an absent entry counts as zero, and two absent ones stay absent."""
    return _joined(
        a,
        b,
        lambda s, t: _sum(s, t, alpha),
        only_a=lambda s: s,
        only_b=lambda t: _scaled([t], alpha)[0],
    )


def _sum(a: list[Tensor], b: list[Tensor], alpha: Number) -> Sequence[Tensor]:
    """a + α b for each pair of tensors."""
    if not isinstance(alpha, Tensor):
        return torch._foreach_add(a, b, alpha=alpha)
    total = _scaled(b, alpha)  # as `alpha=` a tensor would be read, and the host would wait for it
    torch._foreach_add_(total, a)
    return total


def _scaled(tensors: list[Tensor], factor: Number) -> list[Tensor]:
    """factor · t for each tensor, as new tensors of the same type."""
    if not tensors:
        return []
    if not _are_alike(tensors):
        return [(t * _like(factor, t)).to(t.dtype) for t in tensors]
    return list(torch._foreach_mul(tensors, _factor(factor, tensors)))


def _factor(factor: Number, tensors: list[Tensor]) -> Number:
    """What to multiply tensors by that are alike, so that torch takes its fast route.

    On a CPU that is a tensor too: of a Python number it makes one for each tensor of the list,
    which takes six times as long as the multiplication of a short one. The bits are the same.
    """
    if not isinstance(factor, Tensor) and tensors[0].is_cpu:
        factor = torch.full((), factor, dtype=torch.float64)
    return _like(factor, tensors[0])


def _are_alike(tensors: list[Tensor]) -> bool:
    """Whether one factor fits all. A scalar in half precision would take on the factor's type."""
    if len({*map(_KIND, tensors)}) > 1:
        return False
    return tensors[0].dtype not in LOW_PRECISION or all(t.dim() for t in tensors)


def _like(factor: Number, t: Tensor) -> Number:
    """The factor in the precision of t: of another one it would leave torch's fast route.

    Half precision would lose digits of the factor itself, and multiplies in float32 anyway.
    """
    if not isinstance(factor, Tensor):
        return factor
    return factor.to(t.device, torch.float32 if t.dtype in LOW_PRECISION else t.dtype.to_real())


def mix(a: Vector, b: Vector, lam: float, *, into_a: bool = False) -> Vector:
    """(1 − λ) a + λ b; an absent entry counts as zero, and two absent ones stay absent.

    Args:
        into_a: Use the memory of a, which is spent then: for a gradient that is not needed again.
    """
    if lam in (0, 1):  # an entry that is absent stays absent
        return b if lam else a
    if into_a:
        a._norm = a._cosine = None
    return _joined(
        a,
        b,
        lambda s, t: _mixed(s, t, lam, into_a),
        only_a=lambda s: s * (1 - lam),
        only_b=lambda t: t * lam,
    )


def _mixed(a: list[Tensor], b: list[Tensor], lam: float, into_a: bool) -> Sequence[Tensor]:
    total = a if into_a else _scaled(a, 1 - lam)
    if into_a:
        torch._foreach_mul_(a, _factor(1 - lam, a) if _are_alike(a) else 1 - lam)
    torch._foreach_add_(total, b, alpha=lam)
    return total


def multiply(a: Vector, b: Vector) -> Vector:
    """a · b element by element; absent where one of them is."""
    return _joined(a, b, lambda s, t: torch._foreach_mul(s, t))


def _joined(
    a: Vector,
    b: Vector,
    both: Callable[[list[Tensor], list[Tensor]], Sequence[Tensor]],
    only_a: Callable[[Tensor], Tensor | None] = lambda s: None,
    only_b: Callable[[Tensor], Tensor | None] = lambda t: None,
) -> Vector:
    """A function of two vectors: `both` where each has an entry, the others where one has."""
    of_a, of_b = _common(a.tensors, b.tensors)
    found = both(of_a, of_b) if of_a else ()
    if len(found) == len(a):
        return Vector(found)
    joined = iter(found)
    entries: list[Tensor | None] = []
    for s, t in zip(a, b, strict=True):
        if s is not None and t is not None:
            entries.append(next(joined))
        elif s is not None:
            entries.append(only_a(s))
        else:
            entries.append(None if t is None else only_b(t))
    return Vector(entries)


def _common(
    a: Sequence[Tensor | None], b: Sequence[Tensor | None]
) -> tuple[list[Tensor], list[Tensor]]:
    """The entries of both where each has one."""
    if len(a) == len(b) and _all_present(a) and _all_present(b):
        return [*a], [*b]
    pairs = [(s, t) for s, t in zip(a, b, strict=True) if s is not None and t is not None]
    return [s for s, _ in pairs], [t for _, t in pairs]


def _all_present(tensors: Sequence[Tensor | None]) -> TypeGuard[Sequence[Tensor]]:
    return type(None) not in {*map(type, tensors)}


def weighted_sum(vectors: Sequence[Vector], shares: Sequence[float]) -> Vector:
    """Σ share · v, in the order given."""
    if len(vectors) == 1 and shares[0] == 1.0:
        return vectors[0]
    total = scale(vectors[0], shares[0])
    for v, share in zip(vectors[1:], shares[1:], strict=True):
        total = add(total, v, alpha=share)
    return total


def restrict(v: Vector, keep: Sequence[bool]) -> Vector:
    """v on the chosen tensors, absent elsewhere."""
    return Vector(t if kept else None for t, kept in zip(v, keep, strict=True))


def restrict_to(v: Vector, other: Vector) -> Vector:
    """v where `other` has an entry, absent elsewhere."""
    return v if all(other.pattern) else restrict(v, other.pattern)


def add_(weights: Weights, v: Vector, alphas: Sequence[Number]) -> None:
    """weights += alphas · v in place, one factor per tensor (parameter groups differ in ρ)."""
    # Tensors are told apart by identity: as keys they are slow.
    keys = [id(alpha) if isinstance(alpha, Tensor) else (alpha,) for alpha in alphas]
    for key, alpha in dict(zip(keys, alphas, strict=True)).items():
        own = [w if other == key else None for w, other in zip(weights, keys, strict=True)]
        moved, along = _common(own, v.tensors)
        if not moved:
            continue
        if isinstance(alpha, Tensor):
            torch._foreach_add_(moved, _scaled(along, alpha))
        else:
            torch._foreach_add_(moved, along, alpha=alpha)


def clones(tensors: list[Tensor]) -> Sequence[Tensor]:
    """A copy of each tensor, by one operation for all."""
    if not tensors:
        return ()
    if hasattr(torch, "_foreach_clone"):  # missing in torch 2.10
        return torch._foreach_clone(tensors)
    copies = [torch.empty_like(t) for t in tensors]
    torch._foreach_copy_(copies, tensors)
    return copies


def copy_(targets: Weights, sources: Iterable[Tensor | None]) -> None:
    """targets ← sources in place, bit for bit, where a source is present."""
    written, values = _common(targets, [*sources])
    if written:
        torch._foreach_copy_(written, values)
