"""Sums over all parameters: one number from many tensors.

How a sum rounds depends on where its numbers lie, so tensors are laid end to end first: a vector in
pieces has the norm of the same vector in one buffer, to the last bit. Long sums are cut, because
float32 loses digits over millions of numbers; the pieces are joined in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LOW_PRECISION = (torch.float16, torch.bfloat16)
# How many numbers are summed in their own precision, along a norm and along a product.
ROW, CHUNK = 1 << 15, 1 << 18


def global_norm(tensors: Sequence[Tensor]) -> float:
    """One norm over several tensors; half precision is summed in float32."""
    norms = [n for (t,) in _end_to_end([(t,) for t in tensors]) for n in _norms(t.reshape(-1))]
    return math.hypot(*_numbers(norms))


def inner_product(pairs: Sequence[tuple[Tensor, Tensor]]) -> float:
    """The sum of the inner products of the pairs; half precision is summed in float32."""
    terms = [
        torch.dot(*parts)
        for s, t in _end_to_end(pairs)
        for parts in zip(_chunks(s), _chunks(t), strict=True)
    ]
    return sum(_numbers(terms), 0.0)


def _end_to_end(rows: Sequence[tuple[Tensor, ...]]) -> Sequence[tuple[Tensor, ...]]:
    """The rows as one row, column by column, where that is possible."""
    columns = list(zip(*rows, strict=True))
    if len(rows) < 2 or any(len({(t.dtype, t.device) for t in column}) > 1 for column in columns):
        return rows
    return [tuple(torch.cat([t.reshape(-1) for t in column]) for column in columns)]


def _norms(t: Tensor) -> list[Tensor]:
    dtype = torch.float32 if t.dtype in LOW_PRECISION else None
    whole = t.numel() - t.numel() % ROW
    pieces = [t[:whole].view(-1, ROW), t[whole:].view(1, -1)]
    return [torch.linalg.vector_norm(p, dim=1, dtype=dtype) for p in pieces if p.numel()]


def _chunks(t: Tensor) -> tuple[Tensor, ...]:
    t = t.reshape(-1)
    return (t.to(torch.float32) if t.dtype in LOW_PRECISION else t).split(CHUNK)


def _numbers(results: Sequence[Tensor]) -> list[float]:
    """The results of kernels, fetched at once where they are on one device."""
    if not results:
        return []
    if len({(r.device, r.dtype) for r in results}) > 1:
        results = [r.to("cpu", torch.float64) for r in results]
    return torch.cat([r.reshape(-1) for r in results]).tolist()
