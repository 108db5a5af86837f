"""Ranks that should agree, compared: the weights bit for bit, and the batch across branches.

Weights are compared at the first exchange and then at regular intervals: what goes wrong with
them goes wrong from the first step (a checkpoint loaded on one rank only) or for good (a bit that
flipped, a kernel that rounds at random). A fingerprint of each batch travels with its loss.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sampa.batches import tensors_in
from sampa.execution.parallel.groups import Groups
from sampa.vectors.vector import Weights

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Agreement:
    """Compares fingerprints of weights and batches between ranks, every `every` rounds."""

    def __init__(self, groups: Groups, names: Mapping[Tensor, str], every: int) -> None:
        self._groups = groups
        self._names = names
        self._every = every
        self._rounds = 0  # since the last check
        self._has_checked = False

    def check(self, weights: Weights, batch: Any, *, exchanges: bool) -> None:
        """Compare, if it is time to; all ranks call it at the same point of a step.

        Args:
            weights: At x_t, on every rank.
            batch: The incoming one.
            exchanges: Whether this round exchanges gradients; the first that does is checked.

        Raises:
            RuntimeError: On every rank, naming the parameter, or how to get equal batches.
        """
        self._rounds += 1
        if self._rounds < self._every and (self._has_checked or not exchanges):
            return
        self._rounds, self._has_checked = 0, True
        trained = [p for p in weights if p in self._names]
        marks = [_fingerprint(p) for p in trained]
        mark = marks[0].new_tensor(_batch_fingerprint(batch if self._groups.branches > 1 else None))
        found = self._groups.gather_checks(torch.stack([mark, *marks])).cpu()
        self.require_same_batches(found[..., 0].tolist())
        self._require_same_weights(found[..., 1:], trained)

    def require_same_batches(self, found: list[list[float]]) -> None:
        """Branches must agree at each data rank; data ranks have shards of their own.

        Args:
            found: The marks of all batches: for each branch, those of its data ranks.

        Raises:
            RuntimeError: On every rank, saying how to get equal batches.
        """
        if all(marks == found[0] for marks in found):
            return
        first = found[0]
        same = [a == b for marks in found for a, b in zip(marks, first, strict=True)]
        ranks = [rank for rank, is_same in enumerate(same) if not is_same]
        raise RuntimeError(
            f"step {self._groups.step}: the branches got different batches: those of rank(s) "
            f"{ranks} are not what branch 0 has; branches must see the same batches in the same "
            "order; write DataLoader(dataset, sampler=executor.sampler(dataset)) and seed random "
            "augmentation alike"
        )

    def _require_same_weights(self, found: Tensor, trained: list[Tensor]) -> None:
        for i, p in enumerate(trained):
            differing = (found[..., i] != found[0, 0, i]).flatten().nonzero().flatten().tolist()
            if differing:
                raise RuntimeError(
                    f"step {self._groups.step}: the replicas differ: {self._names[p]!r} on rank(s) "
                    f"{differing} is not what rank 0 has; weights must change in optimizer.step "
                    "only, or by the same operation on every rank (load checkpoints on all of them)"
                )


def batch_mark(batch: Any) -> float:
    """A fingerprint of a batch that a float64 holds exactly."""
    return float(_batch_fingerprint(batch) & ((1 << 52) - 1))


def _fingerprint(t: Tensor) -> Tensor:
    """A sum over the bits: one that flipped changes it, as do two samples that changed places."""
    t = torch.view_as_real(t) if t.is_complex() else t
    if t.numel() == 0:
        return torch.zeros((), dtype=torch.int64, device=t.device)
    rows = t.detach().reshape(t.shape[0] if t.dim() else 1, -1).contiguous()
    in_eights = rows.shape[1] * rows.element_size() % 8 == rows.data_ptr() % 8 == 0
    width = 8 if in_eights else rows.element_size()
    sums = rows.view(_INTEGERS[width]).sum(1, dtype=torch.int64)
    return (sums * torch.arange(1, 2 * len(sums), 2, device=t.device)).sum()


def _batch_fingerprint(batch: Any) -> int:
    tensors = [t for t in tensors_in(batch) if t.layout is torch.strided]
    if all(t.device.type == "cpu" for t in tensors):
        return _checksum(tensors)
    marks = [_fingerprint(t).cpu() * (2 * i + 1) for i, t in enumerate(tensors)]
    return int(torch.stack(marks).sum())


def _checksum(tensors: list[Tensor]) -> int:
    """Of all bytes in their order, without a kernel: small batches are marked in every step."""
    value = 0
    for t in tensors:
        flat = t.detach().reshape(-1).contiguous()
        value = zlib.crc32(flat.view(torch.uint8).numpy().data, value)
    return value
