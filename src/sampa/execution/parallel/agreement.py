"""Ranks that should agree, compared: the weights bit for bit, and the batch across branches.

Weights are compared at the first exchange and then at regular intervals: what goes wrong with
them goes wrong from the first step (a checkpoint loaded on one rank only) or for good (a bit that
flipped, a kernel that rounds at random). A fingerprint of each batch travels with its loss. All
comparisons are made after the backward pass has been queued, and before the update.
"""

from __future__ import annotations

import atexit
import marshal
import os
import threading
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from enum import Enum
from functools import cache, partial
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sampa.batches import NAMED, PLAIN
from sampa.execution.executor import Doubt, stacklevel_of_caller
from sampa.execution.parallel.disagreement import (
    BEGAN,
    CHANGED,
    ranks_where,
    refuse_marks,
    refuse_replicas,
)
from sampa.execution.parallel.groups import Groups
from sampa.torch_private import parts_of_sparse
from sampa.vectors.random import LARGEST_PIECE, scramble_
from sampa.vectors.vector import Weights, is_sharded, local

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MARSHAL = 2  # the last version of the format that does not depend on references and interning
SMALL_BATCH = 1 << 17  # bytes that are hashed in less time than it takes to wake a thread


class Agreement:
    """Compares fingerprints of weights and batches between ranks, every `every` rounds."""

    def __init__(
        self,
        groups: Groups,
        names: Mapping[Tensor, str],
        buffer_names: Callable[[], Sequence[str]],
        every: int,
    ) -> None:
        self._groups = groups
        self._names = names
        self._buffer_names = buffer_names
        self._every = every
        self._rounds = 0  # since the last check
        self._has_checked = False

    def renew(self) -> None:
        """Compare at the next exchange again: other parameters are trained."""
        self._has_checked = False

    def check(
        self,
        weights: Weights,
        steady: Callable[[], Mapping[str, Tensor]],
        mark: BatchMark,
        *,
        exchanges: bool,
    ) -> bool:
        """Compare, if it is time to; all ranks call it at the same point of a step.

        Args:
            weights: At x_t, on every rank.
            steady: The buffers that passes leave alone, by name.
            mark: Of the incoming batch.
            exchanges: Whether this round exchanges gradients; the first that does is checked.

        Returns:
            Whether all ranks told, by their mark, that other parameters are trained now.

        Raises:
            RuntimeError: On every rank, naming the parameter, or how to get equal batches.
        """
        self._rounds += 1
        if self._rounds < self._every and (self._has_checked or not exchanges):
            return False
        self._rounds, self._has_checked = 0, True
        named = {self._names[p]: p for p in weights if p in self._names} | {**steady()}
        marks = torch.stack([_fingerprint(t) for t in local(named.values())])
        found = self._groups.gather_checks(torch.cat([mark.value(marks).long(), marks])).cpu()
        has_changed = self.have_all_changed(found[..., 0])
        self._require_same(found[..., 1:], named)
        return has_changed

    def have_all_changed(self, marks: Tensor) -> bool:
        """Whether all ranks told that other parameters are trained now; waits for the marks.

        Raises:
            RuntimeError: If only some did, or if branches got different batches.
        """
        if (marks == CHANGED).all():
            return True
        doubt = self.doubt_about(marks)
        if doubt.flag:
            doubt.refuse()
        return False

    def doubt_about(self, marks: Tensor) -> Doubt:
        """Whether branches disagree at a data rank, or some rank says that it cannot go on.

        Data ranks have shards of their own, but the same buffers.

        Args:
            marks: Those of all batches: for each branch, those of its data ranks.
        """
        wrong = (marks != marks[:1]) | (marks < 0)
        if self._groups.data_ranks > 1:
            wrong = wrong | ((marks.amax() >= BEGAN) & (marks != marks[0, 0]))
        told = marks, self._groups.step, self._names, self._buffer_names
        return Doubt(wrong.any(), partial(refuse_marks, *told))

    def _require_same(self, found: Tensor, named: Mapping[str, Tensor]) -> None:
        for i, (name, t) in enumerate(named.items()):
            # Of a sharded one, data ranks have different parts.
            first = found[:1, :, i] if is_sharded(t) else found[:1, :1, i]
            differing = ranks_where(found[..., i] != first)
            if differing:
                is_parameter = name in self._names.values()
                refuse_replicas(name, differing, self._groups.step, is_parameter=is_parameter)


class BatchMark:
    """A number that depends on every leaf of a batch, on its structure, and on the place of a byte.

    Data on the CPU is hashed in a thread while the device works, if there is much of it, so that
    nothing waits; data on a device is hashed there. The same in all processes.

    Args:
        leaves: What `walk` finds in the batch.
    """

    def __init__(self, leaves: Iterable[Any] = ()) -> None:
        on_cpu: list[Chunk] = []
        on_device: list[Tensor] = []
        for leaf in leaves:
            for chunk in [leaf] if _is_plain_on_cpu(leaf) else _chunks(leaf):
                if isinstance(chunk, Tensor) and not chunk.is_cpu:
                    on_device.append(chunk)
                else:
                    on_cpu.append(chunk)
        self._checksum: Future[int] = Future()
        if sum(len(c) if isinstance(c, bytes) else c.nbytes for c in on_cpu) > SMALL_BATCH:
            _hash_queue().put((self._checksum, on_cpu))
        else:
            self._checksum.set_result(_checksum(_with_descriptions(on_cpu)))
        self._sums = [_sum_of_hashes(t) * (2 * i + 1) for i, t in enumerate(on_device)]

    def value(self, like: Tensor) -> Tensor:
        """The mark as one float64, which holds it exactly, on the device of `like`.

        Waits for the thread, not for the device.
        """
        mark = like.new_full((1,), self._checksum.result(), dtype=torch.float64)
        for s in self._sums:  # below 2⁵³ in all
            mark += s.bitwise_and((1 << 48) - 1).to(mark)
        return mark


class ChangeMark(BatchMark):
    """In place of a batch's mark: this rank trains other parameters, or has other buffers."""

    said = CHANGED

    def value(self, like: Tensor) -> Tensor:
        return like.new_full((1,), self.said, dtype=torch.float64)


class UnusedMark(ChangeMark):
    """In place of a batch's mark: a parameter took no part in this rank's pass, and should have.

    Args:
        parameters: Those of the model, in an order that all ranks share.
        unused: Of them; the first is told.
    """

    def __init__(self, parameters: Iterable[Tensor], unused: AbstractSet[Tensor]) -> None:
        super().__init__()
        self.said = CHANGED - 1 - next(i for i, p in enumerate(parameters) if p in unused)


class BufferMark(ChangeMark):
    """In place of a batch's mark: passes of this rank began to change buffers.

    Args:
        numbers: Of the buffers, in an order that all ranks share; the first can be read off.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__()
        all_of_them = zlib.crc32(marshal.dumps([*numbers], _MARSHAL))
        self.said = BEGAN * ((numbers[0] << 32) + (all_of_them or 1))


Chunk = bytes | Tensor | np.ndarray


def _chunks(leaf: Any) -> list[Chunk]:
    """What is hashed of a leaf: its type and its bits, and nothing that another process draws."""
    kind = type(leaf)
    if kind in PLAIN or kind in (tuple, list):
        return [marshal.dumps(leaf, _MARSHAL)]
    if isinstance(leaf, Tensor):
        parts = _strided_parts(leaf)
        shapes = [(str(t.dtype), tuple(t.shape)) for t in parts]
        whole = () if leaf.is_nested else tuple(leaf.shape)
        return [marshal.dumps((str(leaf.layout), whole, shapes), _MARSHAL), *parts]
    if isinstance(leaf, np.ndarray | np.generic):
        array = np.asarray(leaf)
        mask = [np.ma.getmaskarray(leaf)] if isinstance(leaf, np.ma.MaskedArray) else []
        return [marshal.dumps((array.dtype.str, array.shape), _MARSHAL), array, *mask]
    return [marshal.dumps((kind.__qualname__, _described(leaf)), _MARSHAL)]


def _is_plain_on_cpu(leaf: Any) -> bool:
    """Whether a leaf is a tensor of which the thread may find out all that is hashed."""
    return (
        type(leaf) is Tensor
        and leaf.is_cpu
        and leaf.layout is torch.strided
        and not (leaf.is_nested or leaf.is_quantized)
    )


def _with_descriptions(chunks: Iterable[Chunk]) -> list[Chunk]:
    return [c for x in chunks for c in (_chunks(x) if isinstance(x, Tensor) else (x,))]


def _described(leaf: Any) -> Any:
    """A leaf of another kind as a plain value."""
    if isinstance(leaf, Enum):
        return leaf.name
    if isinstance(leaf, NAMED):
        return getattr(leaf, "__qualname__", leaf.__name__)
    if isinstance(leaf, bytearray | memoryview | str | bytes):
        return bytes(leaf, "utf-8", "surrogatepass") if isinstance(leaf, str) else bytes(leaf)
    if isinstance(leaf, int | float | complex):
        return int(leaf) if isinstance(leaf, int) else complex(leaf)
    if isinstance(leaf, torch.device):
        return leaf.type  # each rank may have one of its own
    if isinstance(leaf, torch.dtype | torch.layout):
        return str(leaf)
    if not isinstance(leaf, weakref.ref):
        _warn_of(type(leaf))
    return None


def _strided_parts(t: Tensor) -> list[Tensor]:
    """The plain tensors that a sparse, nested, quantized or wrapped tensor is made of."""
    if t.layout is torch.jagged:  # its cache of lengths is made where it is asked for
        return [t.values(), t.offsets()]  # pyright: ignore[reportAttributeAccessIssue]
    if hasattr(t, "__tensor_flatten__"):
        names, _ = t.__tensor_flatten__()  # pyright: ignore[reportAttributeAccessIssue]
        return [part for name in names for part in _strided_parts(getattr(t, name))]
    if t.is_nested:
        return list(t.unbind())
    if t.is_quantized:
        return [t.dequantize()]
    if t.layout is torch.strided:
        return [t]
    if t.layout is torch.sparse_coo:
        return list(parts_of_sparse(t))
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    if t.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [t.ccol_indices(), t.row_indices(), t.values()]
    return [t.to_dense()]


@cache
def _warn_of(kind: type) -> None:
    """Say once what cannot be compared."""
    warnings.warn(
        f"the batch contains a {kind.__module__}.{kind.__qualname__}, which cannot be compared "
        "between ranks, since pickle does not take it: branches whose batches differ in nothing "
        "else would not be told; yield what it stands for as tensors, arrays, numbers or text, or "
        f"give {kind.__qualname__} a __getstate__",
        stacklevel=stacklevel_of_caller(),
    )


Hashing = tuple[Future[int], Sequence[Chunk]]


@cache
def _hash_queue() -> SimpleQueue[Hashing | None]:
    """What a thread of this process hashes; handed over in less time than an executor takes."""
    queue: SimpleQueue[Hashing | None] = SimpleQueue()
    thread = threading.Thread(target=_hash_all, args=(queue,), name="sampa-marks", daemon=True)

    def end() -> None:
        queue.put(None)
        thread.join()

    thread.start()
    atexit.register(end)  # a thread that is inside of torch when Python ends aborts the process
    return queue


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_hash_queue.cache_clear)  # its thread is the parent's


def _hash_all(queue: SimpleQueue[Hashing | None]) -> None:
    while job := queue.get():
        found, chunks = job
        try:
            found.set_result(_checksum(_with_descriptions(chunks)))
        except BaseException as error:  # for the one who waits
            found.set_exception(error)
        del job, found, chunks  # the batch is not kept until the next one


def _fingerprint(t: Tensor) -> Tensor:
    """A number that depends on every bit of a tensor and its place, on the tensor's device.

    Places are those of the elements in their logical order: replicas may differ in their strides.
    """
    if t.is_cpu:  # 15 times faster there than hashes of the elements
        return torch.tensor(_checksum([t]))
    return _sum_of_hashes(t)


def _sum_of_hashes(t: Tensor) -> Tensor:
    """Σ hash(element, place) of a tensor on a device, without asking it."""
    elements = _flat(t)
    elements = elements.view(_INTEGERS[elements.element_size()])
    words = elements.view(torch.int32) if elements.element_size() == 8 else elements
    total = torch.zeros((), dtype=torch.int64, device=t.device)
    for number, piece in enumerate(words.split(LARGEST_PIECE)):
        hashes = torch.arange(len(piece), dtype=torch.int32, device=t.device).mul_(0x3C6EF373)
        scramble_(hashes.bitwise_xor_(piece.to(torch.int32)), number << 32 | len(piece))
        total += hashes.sum(dtype=torch.int64)
    return total


def _checksum(chunks: Sequence[Chunk]) -> int:
    """Of all bytes in their order. zlib lets other threads run meanwhile."""
    value = 0
    for chunk in chunks:
        if isinstance(chunk, Tensor):
            chunk = _flat(chunk).view(torch.uint8).numpy().data
        elif isinstance(chunk, np.ndarray):
            flat = np.ascontiguousarray(chunk).reshape(-1)
            chunk = flat.view(np.uint8).data if flat.itemsize else b""
        value = zlib.crc32(chunk, value)
    return value


def _flat(t: Tensor) -> Tensor:
    """The elements in their logical order, as real numbers."""
    t = torch.view_as_real(t.detach().resolve_conj()) if t.is_complex() else t.detach()
    return t.resolve_neg().reshape(-1).contiguous()
