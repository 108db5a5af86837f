"""Sums over all parameters: one number, on their device, from many tensors.

Tensors are joined end to end first, so that the number of kernels does not grow with the number of
layers. Long sums are cut, because float32 loses digits over millions of numbers; the pieces are
joined in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LOW_PRECISION = (torch.float16, torch.bfloat16)
# How many numbers are summed in their own precision, along a norm and along a product.
ROW, CHUNK = 1 << 15, 1 << 18


def global_norm(tensors: Sequence[Tensor]) -> Tensor:
    """One norm over several tensors as a float64 scalar; half precision is summed in float32."""
    norms = [n for (t,) in _end_to_end([(t,) for t in tensors]) for n in _norms(t.reshape(-1))]
    return torch.linalg.vector_norm(_float64(norms))


def inner_product(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """The sum of the pairs' inner products as a float64 scalar; half precision as float32."""
    terms = [
        torch.dot(*parts)
        for s, t in _end_to_end(pairs)
        for parts in zip(_chunks(s), _chunks(t), strict=True)
    ]
    return _float64(terms).sum()


def _end_to_end(rows: Sequence[tuple[Tensor, ...]]) -> Sequence[tuple[Tensor, ...]]:
    """The rows as one row, column by column, if all tensors of a column are of one kind."""
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


def _float64(results: Sequence[Tensor]) -> Tensor:
    """The results of kernels in one tensor, on the first one's device."""
    if not results:
        return torch.zeros(1, dtype=torch.float64)
    device = results[0].device
    return torch.cat([r.reshape(-1).to(device, torch.float64) for r in results])
