"""Random vectors as a function of (key, place), drawn on the device of the weights.

A number depends on the key, which stands for the run's seed and the step, and on its place: which
element of which parameter it is. So it is the same on every device and rank, in every shard and
after a resume, and nothing is copied from the host.

x = mix(mix(place ⊕ k₀) + k₁) with 32-bit integers that wrap around, k₀ and k₁ the halves of a key,
and mix the two multiplications of lowbias32 (Wellons, "Hash function prospector", 2018). One of
them after k₁ is not enough: keys that differ by little would give numbers that are correlated. The
upper 24 bits are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from sampa.vectors.vector import Vector, Weights, all_whole, is_sharded

ALIGNMENT = 64  # elements; a parameter's first place is a multiple, so that its memory is aligned
BLOCK = 1 << 30  # places that share a key: their numbers in the block fit 32 bits
PIECES = {"cpu": 1 << 17}  # numbers made at once: the caches of a processor hold them
LARGEST_PIECE = 1 << 24  # elsewhere: few kernels, and temporary memory that does not grow

Fill = Callable[[Tensor, int], None]
"""Writes the numbers of consecutive places, given the first, into a flat float32 tensor."""

Shaped = Callable[[Tensor, Tensor], Tensor]
"""From the numbers at a parameter's place to its entry of the vector."""

Spans = Sequence[tuple[int, int]]
"""Of each shard, its first element in the whole parameter, and how many that has."""


@dataclass(frozen=True, slots=True)
class RandomNumbers:
    """The random numbers of one step, the same on all ranks.

    A method that draws several vectors in a step numbers them (`draw`): they are independent.

    Example:
        >>> u = RandomNumbers(7).uniform([torch.zeros(2, 3, requires_grad=True)])
        >>> bool((u.tensors[0] < 1).all())
        True
    """

    key: int
    parameters: Weights = ()  # those whose shards the weights are, if they are shards

    def number(self, index: int = 0) -> float:
        """A number in [0, 1) on the host, for a decision: no device is asked."""
        return (_key(self.key, -1, index) >> 40) * 2.0**-24

    def uniform(self, weights: Weights, draw: int = 0) -> Vector:
        """Uniform numbers in [0, 1) for the trainable weights, bit for bit alike on all devices.

        They are multiples of 2⁻²⁴ in float32, also for weights in half precision: rounded to
        that, many would be equal, and some 1.
        """
        return _drawn(weights, self.parameters, partial(self.fill_uniform, draw=draw), _real)

    def normal(self, weights: Weights, draw: int = 0) -> Vector:
        """Normal numbers for the trainable weights, of their types; none is beyond 5.4 (24 bits).

        The integers behind them are the same everywhere; devices may differ in the last bits of
        `erfinv`.
        """
        return _drawn(weights, self.parameters, partial(self.fill_normal, draw=draw), _like)

    def fill_uniform(self, out: Tensor, first: int, draw: int = 0) -> None:
        """Write the uniform numbers of the places from `first` on: of a shard, for example."""
        self._fill_symmetric(out, first, draw)
        out.add_(0.5)

    def fill_normal(self, out: Tensor, first: int, draw: int = 0) -> None:
        """Write the normal numbers of the places from `first` on."""
        self._fill_symmetric(out, first, draw)
        # In the middle between two multiples: symmetric, and never ±1, where erfinv is infinite.
        out.add_(2.0**-25).mul_(2).erfinv_().mul_(math.sqrt(2))

    def _fill_symmetric(self, out: Tensor, first: int, draw: int) -> None:
        """Write multiples of 2⁻²⁴ from −½ to ½."""
        size = min(out.numel(), PIECES.get(out.device.type, LARGEST_PIECE))
        counted = torch.arange(size, dtype=torch.int32, device=out.device)  # slow, so once
        for start, count in _pieces(first, out.numel(), size):
            block, place = divmod(start, BLOCK)
            bits = torch.add(counted.narrow(0, 0, count), place)
            scramble_(bits, _key(self.key, draw, block))
            # The shift keeps the sign, which saves a mask.
            bits.bitwise_right_shift_(8)
            torch.mul(bits, 2.0**-24, out=out.narrow(0, start - first, count))


def scramble_(x: Tensor, key: int) -> None:
    """Replace each 32-bit integer by a hash of it and the key, in place: a bijection.

    The upper bits are the good ones.
    """
    scratch = torch.empty_like(x)
    _mix_(x.bitwise_xor_(_signed(key)), scratch)
    _mix_(x.add_(_signed(key >> 32)), scratch)


def places(weights: Weights, spans: Spans | None = None) -> list[int]:
    """The place of each parameter's first element; frozen ones have none, complex elements two."""
    numbers = [p.numel() for p in weights] if spans is None else [n for _, n in spans]
    kinds = [(2 if p.is_complex() else 1) * p.requires_grad for p in weights]
    sizes = [n * kind for n, kind in zip(numbers, kinds, strict=True)]
    return list(accumulate((n + -n % ALIGNMENT for n in sizes), initial=0))


def spans_of(weights: Sequence[Any]) -> Spans | None:
    """For each sharded parameter the first element of its shard, and how many it has in all.

    Shards are rows (the first dimension), as many on each process as there are on the first but for
    the last. None if nothing is sharded.
    """
    if all_whole(weights) or not any(map(is_sharded, weights)):
        return None
    return [_span(p) if is_sharded(p) else (0, p.numel()) for p in weights]


def _span(p: Any) -> tuple[int, int]:
    rows = p.shape[0]
    most = -(-rows // p.device_mesh.size())
    first = min(p.device_mesh.get_local_rank() * most, rows)
    return first * (p.numel() // max(rows, 1)), p.numel()


def _drawn(weights: Weights, parameters: Weights, fill: Fill, shaped: Shaped) -> Vector:
    """A vector of numbers: one buffer for all tensors of a device, so that kernels are few."""
    spans = spans_of(parameters)
    firsts = places(weights, spans)
    if spans is not None:
        starts = [first + start for first, (start, _) in zip(firsts, spans, strict=False)]
        shards = zip(weights, starts, strict=True)
        return Vector(_shard(p, at, fill, shaped) if p.requires_grad else None for p, at in shards)
    trained = {p.device for p in weights if p.requires_grad}
    numbers = {device: torch.empty(firsts[-1], device=device) for device in trained}
    for buffer in numbers.values():
        fill(buffer, 0)
    pairs = zip(weights, pairwise(firsts), strict=True)
    return Vector(
        shaped(numbers[p.device].narrow(0, a, b - a), p) if p.requires_grad else None
        for p, (a, b) in pairs
    )


def _shard(p: Tensor, first: int, fill: Fill, shaped: Shaped) -> Tensor:
    """The entry of a shard whose elements have the places from `first` on."""
    numbers = torch.empty(p.numel(), device=p.device)
    fill(numbers, first)
    return shaped(numbers, p)


def _real(numbers: Tensor, p: Tensor) -> Tensor:
    """The first numbers, shaped like a parameter."""
    return numbers.narrow(0, 0, p.numel()).view(p.shape)


def _like(numbers: Tensor, p: Tensor) -> Tensor:
    """The first numbers, like a parameter; a complex one has variance 1 in all."""
    if not p.is_complex():
        return _real(numbers, p).to(p.dtype)
    pairs = numbers.narrow(0, 0, 2 * p.numel()).view(*p.shape, 2)
    return torch.view_as_complex(pairs * math.sqrt(0.5)).to(p.dtype)


def _pieces(first: int, count: int, size: int) -> Iterator[tuple[int, int]]:
    """The first place and the length of pieces that stay within a block."""
    start, end = first, first + count
    while start < end:
        length = min(size, end - start, BLOCK - start % BLOCK)
        yield start, length
        start += length


def _mix_(x: Tensor, scratch: Tensor) -> None:
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        torch.bitwise_right_shift(x, shift, out=scratch)
        # torch's shift copies the sign into the upper bits.
        x.bitwise_xor_(scratch.bitwise_and_((1 << (32 - shift)) - 1))
        x.mul_(_signed(factor))


def _signed(word: int) -> int:
    """The lower 32 bits, as torch's int32 has them."""
    word &= 0xFFFFFFFF
    return word - (word >> 31 << 32)


def _key(*parts: int) -> int:
    """64 bits from some numbers: SplitMix64's finalizer after each."""
    mask, h = (1 << 64) - 1, 0
    for part in parts:
        h = ((h ^ part & mask) + 0x9E3779B97F4A7C15) & mask
        h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & mask
        h = (h ^ h >> 27) * 0x94D049BB133111EB & mask
        h ^= h >> 31
    return h
