"""Sums over all parameters: one number, on their device, from many tensors.

What counts on a GPU is the number of kernels, so tensors are reduced together: norms by one
operation on all of them, products after joining tensors in groups (torch has no product of lists).
On a CPU kernels cost little, but float32 loses digits over millions of numbers: there, long tensors
are reduced in pieces. Sums of pieces are taken in float64 wherever a device has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

LOW_PRECISION = (torch.float16, torch.bfloat16)
# How many numbers a CPU sums in their own precision, in a norm and in a product.
NORM_PIECE, PRODUCT_PIECE = 1 << 15, 1 << 18
# How many numbers a group of joined tensors has at most, and how many groups there are at least, so
# that the joined copies of both factors are smaller than the parameters.
GROUP, GROUPS = 20_000_000, 3

Pair = tuple[Tensor, Tensor]


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """One norm over several tensors as a scalar; half precision is summed in float32."""
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for t in tensors:
        kinds.setdefault(t.dtype, []).extend(_pieces(t, NORM_PIECE))
    norms: list[Tensor] = []
    for dtype, pieces in kinds.items():
        wide = torch.float32 if dtype in LOW_PRECISION else None
        norms += torch._foreach_norm(pieces, dtype=wide)
    return torch.linalg.vector_norm(_together(norms))


def inner_product(pairs: Sequence[Pair]) -> Tensor:
    """The sum of the pairs' inner products as a scalar; half precision is summed in float32."""
    on_cpu = all(s.device.type == t.device.type == "cpu" for s, t in pairs)
    parts = _pieces_of_pairs(pairs) if on_cpu else joined_in_groups(pairs)
    return _together([torch.dot(_wide(s), _wide(t)) for s, t in parts]).sum()


def precise(device: torch.device) -> torch.dtype:
    """The type of sums over all parameters: float64, or float32 on devices without it."""
    return torch.float32 if device.type == "mps" else torch.float64


def joined_in_groups(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """The pairs joined end to end in a few groups: two kernels for each."""
    most = min(GROUP, -(-sum(s.numel() for s, _ in pairs) // GROUPS))
    group: list[Pair] = []
    size = 0
    for s, t in pairs:
        if group and (size + s.numel() > most or s.device != group[0][0].device):
            yield _joined(group)
            group, size = [], 0
        group.append((s, t))
        size += s.numel()
    if group:
        yield _joined(group)


def _joined(group: Sequence[Pair]) -> Pair:
    if len(group) == 1:
        s, t = group[0]
        return s.reshape(-1), t.reshape(-1)
    both = torch.cat([t.reshape(-1) for side in zip(*group, strict=True) for t in side])
    s, t = both.split(both.numel() // 2)
    return s, t


def _pieces_of_pairs(pairs: Sequence[Pair]) -> Iterator[Pair]:
    for s, t in pairs:
        yield from zip(_pieces(s, PRODUCT_PIECE), _pieces(t, PRODUCT_PIECE), strict=True)


def _pieces(t: Tensor, size: int) -> Sequence[Tensor]:
    """The numbers of a tensor, in pieces where a CPU sums them."""
    if t.device.type != "cpu" or t.numel() <= size:
        return (t.reshape(-1),)
    return t.reshape(-1).split(size)


def _wide(t: Tensor) -> Tensor:
    return t.to(torch.float32) if t.dtype in LOW_PRECISION else t


def _together(numbers: Sequence[Tensor]) -> Tensor:
    """Scalars in one tensor, on the first one's device and as precise as it can."""
    if not numbers:
        return torch.zeros(1, dtype=torch.float64)
    device = numbers[0].device
    if all(n.device == device and n.dtype == numbers[0].dtype for n in numbers):
        return torch.stack(list(numbers)).to(precise(device))
    return torch.stack([n.to(device, precise(device)) for n in numbers])
