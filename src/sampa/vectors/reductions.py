"""Sums over all parameters: one number, on their device, from many tensors.

What counts on a GPU is the number of kernels, so tensors are reduced together: norms by one
operation on all of them, products after joining tensors in groups (torch has no product of lists).
A CPU spends more time on calls than on the numbers of short tensors, and float32 loses digits over
millions of numbers: there, short tensors are joined and long ones reduced in pieces. Sums of pieces
are taken in float64 wherever a device has it.

Where each process holds a shard of every tensor, its own sum is one part of the number: inside
`over_shards` the parts of all processes are gathered, and added in the same order on all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, starmap
from operator import attrgetter

import torch
from torch import Tensor

from sampa.torch_private import flatten_tensors

LOW_PRECISION = (torch.float16, torch.bfloat16)
# How many numbers a CPU sums in their own precision, in a norm and in a product.
NORM_PIECE, PRODUCT_PIECE = 1 << 15, 1 << 18
# Up to this many numbers, copying a tensor costs a CPU less than a call for it alone.
SHORT = 1 << 12
# A group of joined tensors is complete when it has this many numbers, or its share of all: where
# tensors are many there are several groups, so that the joined copies are smaller than the vectors.
GROUP, GROUPS = 20_000_000, 3

Pair = tuple[Tensor, Tensor]

Gather = Callable[[Tensor], Tensor]
"""From the numbers of this process to those of all that hold shards, one row each."""

_GATHER: ContextVar[Gather | None] = ContextVar("where the other shards are", default=None)


@contextmanager
def over_shards(gather: Gather | None) -> Iterator[None]:
    """Take sums inside the block over the shards of all processes; None: tensors are whole."""
    token = _GATHER.set(gather)
    try:
        yield
    finally:
        _GATHER.reset(token)


def global_norms(vectors: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """One norm over the tensors of each vector, as scalars, in one exchange for all of them."""
    return _norms_over_shards([_norm(tensors) for tensors in vectors])


def tensor_norms(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The norm of each tensor on its own, of its type, in one exchange for all of them."""
    norms = [torch.linalg.vector_norm(t) for t in tensors]
    pairs = zip(_norms_over_shards(norms), tensors, strict=True)
    return [norm.to(t.device, t.dtype.to_real()) for norm, t in pairs]


def _norms_over_shards(own: list[Tensor]) -> list[Tensor]:
    gather = _GATHER.get()
    if gather is None or not own:
        return own
    return list(torch.linalg.vector_norm(gather(_together(own)), dim=0))


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    """One norm over several tensors as a scalar; half precision is summed in float32."""
    norms: list[Tensor] = []
    dtypes = dict.fromkeys(map(_DTYPE, tensors))
    for dtype in dtypes:
        some = [*tensors] if len(dtypes) == 1 else [t for t in tensors if t.dtype == dtype]
        norms += _norms_of_rows(_rows(some)) if on_cpu(some) else _each_norm(some)
    return _norm_of_norms(norms)


def _norms_of_rows(rows: list[Tensor]) -> Sequence[Tensor]:
    return _each_norm(_pieces(rows, NORM_PIECE))


def _each_norm(tensors: list[Tensor]) -> Sequence[Tensor]:
    """The norm of each of some tensors of one type."""
    return torch._foreach_norm(tensors, dtype=torch.float32 if _is_low(tensors[0]) else None)


def _norm_of_norms(norms: Sequence[Tensor]) -> Tensor:
    together = _together(norms)
    return torch.linalg.vector_norm(together, dtype=precise(together.device))


def inner_product(pairs: Sequence[Pair]) -> Tensor:
    """The sum of the pairs' inner products as a scalar; half precision is summed in float32."""
    if on_cpu(*pairs):
        return _product_of_rows(_rows([s for s, _ in pairs]), _rows([t for _, t in pairs]))
    return _sum_of_products(joined_in_groups(pairs))


def _product_of_rows(left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    pieces = _pieces(left, PRODUCT_PIECE), _pieces(right, PRODUCT_PIECE)
    return _sum_of_products(zip(*pieces, strict=True))


def _sum_of_products(pairs: Iterable[Pair]) -> Tensor:
    products: list[Tensor] = []
    for s, t in pairs:
        products.append(torch.dot(_wide(s), _wide(t)))
        del s, t  # before the next group is joined
    together = _together(products)
    own = together.sum(dtype=precise(together.device))
    gather = _GATHER.get()
    return own if gather is None else gather(own.reshape(1)).sum()


def norms_and_product(
    left: Sequence[Tensor], right: Sequence[Tensor]
) -> tuple[list[Tensor], Tensor]:
    """The norms of two vectors with the same entries, and their inner product.

    The same bits as one after the other, but on a CPU the short tensors are joined only once.
    """
    if not on_cpu(left, right) or len({*map(_DTYPE, left), *map(_DTYPE, right)}) != 1:
        return global_norms([left, right]), inner_product([*zip(left, right, strict=True)])
    rows = _rows(left), _rows(right)
    own = [_norm_of_norms(_norms_of_rows(side)) for side in rows]
    return _norms_over_shards(own), _product_of_rows(*rows)


_DTYPE, _IS_CPU = attrgetter("dtype"), attrgetter("is_cpu")


def on_cpu(*groups: Iterable[Tensor]) -> bool:
    """Whether the host itself computes with these tensors."""
    return all(map(_IS_CPU, chain.from_iterable(groups)))


def precise(device: torch.device) -> torch.dtype:
    """The type of sums over all parameters: float64, or float32 on devices without it."""
    return torch.float32 if device.type == "mps" else torch.float64


def joined_in_groups(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """The pairs joined end to end in a few groups: two kernels for each."""
    groups = min(max(len(pairs) // 30, 1), GROUPS)
    most = min(GROUP, sum(s.numel() for s, _ in pairs) / groups)
    group: list[Pair] = []
    size = 0
    for s, t in starmap(_in_memory_order, pairs):
        if group and (size >= most or s.device != group[0][0].device):
            yield _joined(group)
            group, size = [], 0
        group.append((s, t))
        size += s.numel()
    if group:
        yield _joined(group)


def _in_memory_order(s: Tensor, t: Tensor) -> Pair:
    """Two tensors with their dimensions as in memory, if both have the same: to join needs no copy.

    So it is with the weights and gradients of a model with its channels last.
    """
    if s.is_contiguous() or s.stride() != t.stride():
        return s, t
    order = sorted(range(s.dim()), key=s.stride, reverse=True)
    return s.permute(order), t.permute(order)


def _joined(group: Sequence[Pair]) -> Pair:
    if len(group) == 1:
        s, t = group[0]
        return s.reshape(-1), t.reshape(-1)
    both = flatten_tensors([t for side in zip(*group, strict=True) for t in side])
    s, t = both.split(both.numel() // 2)
    return s, t


def _rows(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The numbers of tensors in rows: the short ones joined, then each of the others."""
    short: list[Tensor] = []
    rows: list[Tensor] = []
    for t in tensors:
        short.append(t) if t.numel() <= SHORT else rows.append(t.reshape(-1))
    if short:
        rows.insert(0, flatten_tensors(short))
    return rows


def _pieces(rows: Sequence[Tensor], size: int) -> list[Tensor]:
    """Rows of at most `size` numbers."""
    return [p for row in rows for p in (row.split(size) if row.numel() > size else (row,))]


def _wide(t: Tensor) -> Tensor:
    return t.to(torch.float32) if _is_low(t) else t


def _is_low(t: Tensor) -> bool:
    return t.dtype in LOW_PRECISION


def _together(numbers: Sequence[Tensor]) -> Tensor:
    """Scalars in one tensor, on the first one's device."""
    if not numbers:
        return torch.zeros(1)
    device, dtype = numbers[0].device, numbers[0].dtype
    if all(n.device == device and n.dtype == dtype for n in numbers):
        return torch.stack(list(numbers))
    return torch.stack([n.to(device, precise(device)) for n in numbers])
