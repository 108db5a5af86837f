"""Vectors in one buffer: the same numbers as in pieces, and memory that is never used twice."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import sampa
from sampa.vectors.packing import LARGEST_KEPT, MOST_KEPT, Packing
from sampa.vectors.vector import Vector, add, dot, mix, multiply, pack, scale


def weights(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = [(3, 4), (5,), (), (2, 3, 2, 2)]
    return [torch.randn(shape).to(dtype) for shape in shapes]


def random_like(tensors: list[Tensor], seed: int) -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(t.shape).to(t.dtype) for t in tensors]


def both(seed: int, dtype: torch.dtype = torch.float32) -> tuple[Vector, Vector]:
    """The same vector in one buffer and in pieces."""
    values = random_like(weights(dtype), seed)
    packed = pack(values, Packing(weights(dtype)))
    assert packed.layout is not None
    return packed, Vector(values)


def pair(dtype: torch.dtype = torch.float32) -> tuple[Vector, Vector, Vector, Vector]:
    packing = Packing(weights(dtype))
    a, b = (random_like(weights(dtype), seed) for seed in (1, 2))
    return pack(a, packing), pack(b, packing), Vector(a), Vector(b)


def equal(u: Vector, v: Vector) -> bool:
    return all(
        s is t if s is None or t is None else torch.equal(s, t) for s, t in zip(u, v, strict=True)
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_arithmetic_gives_the_same_bits_in_one_buffer_and_in_pieces(dtype: torch.dtype) -> None:
    a, b, s, t = pair(dtype)
    assert equal(scale(a, 0.3), scale(s, 0.3))
    assert equal(add(a, b, alpha=-0.7), add(s, t, alpha=-0.7))
    assert equal(multiply(a, b), multiply(s, t))
    assert equal(mix(a, b, 0.2), mix(s, t, 0.2))
    assert a.norm == s.norm
    assert dot(a, b) == dot(s, t)


def test_mixing_changes_neither_vector() -> None:
    a, b, s, t = pair()
    mix(a, b, 0.2)
    assert equal(a, s)
    assert equal(b, t)


def test_absent_entries_stay_absent() -> None:
    values = random_like(weights(), 1)
    v = pack([values[0], None, values[2], None], Packing(weights()))
    assert v.pattern == (True, False, True, False)
    assert v.flat is not None
    assert v.flat.numel() == 13
    assert [t is None for t in scale(v, 2.0)] == [False, True, False, True]


def test_entries_keep_the_strides_of_their_weights() -> None:
    like = [torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.randn(5)]
    values = [torch.randn_like(t) for t in like]
    v = pack(values, Packing(like))
    assert [t.stride() for t in v if t is not None] == [t.stride() for t in like]
    assert equal(v, Vector(values))


def test_weights_of_several_dtypes_are_left_in_pieces() -> None:
    like = [torch.zeros(2), torch.zeros(2, dtype=torch.float64)]
    values = [torch.ones_like(t) for t in like]
    assert pack(values, Packing(like)).layout is None


def address(v: Vector) -> int:
    assert v.flat is not None
    return v.flat.data_ptr()


def test_a_buffer_is_used_again_when_its_vector_is_gone() -> None:
    packing = Packing(weights())
    v = pack(weights(), packing)
    where = address(v)
    del v
    assert address(pack(weights(), packing)) == where


@pytest.mark.parametrize("kept", ["vector", "tensor", "part of a tensor"])
def test_a_buffer_is_not_used_again_while_anyone_looks_at_it(kept: str) -> None:
    packing = Packing(weights())
    v = pack(weights(), packing)
    first = v.tensors[0]
    assert first is not None
    held = {"vector": v, "tensor": first, "part of a tensor": first[1:2]}[kept]
    where = address(v)
    del v, first
    assert address(pack(random_like(weights(), 3), packing)) != where
    del held
    assert address(pack(weights(), packing)) == where


def test_only_a_few_buffers_are_kept_and_no_large_ones() -> None:
    packing = Packing(weights())
    many = [pack(weights(), packing) for _ in range(MOST_KEPT + 3)]
    layout = many[0].layout
    assert layout is not None
    del many
    assert len(layout._kept) == MOST_KEPT
    large = [torch.zeros(LARGEST_KEPT // 4 + 1)]
    huge = pack(large, Packing(large))
    assert huge.layout is not None
    assert huge.layout._kept == []


def test_gradients_that_a_user_keeps_do_not_change_in_later_steps() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = sampa.SAMPa(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    batches = [torch.randn(4, 3) for _ in range(8)]
    kept: list[Tensor] = []
    copies: list[Tensor] = []
    for batch in batches:
        optimizer.step(lambda x: model(x).square().mean(), batch)
        if model.weight.grad is not None:
            kept.append(model.weight.grad)
            copies.append(model.weight.grad.clone())
    assert len(kept) == 7
    assert all(torch.equal(k, c) for k, c in zip(kept, copies, strict=True))


def test_weights_that_change_their_kind_get_layouts_anew() -> None:
    model = nn.Conv2d(2, 2, 3)
    packing = Packing(list(model.parameters()))
    assert packing.fits(list(model.parameters()))
    model.double()
    assert not packing.fits(list(model.parameters()))


def test_a_copy_of_a_vector_is_independent() -> None:
    v, plain = both(1)
    other = copy.deepcopy(v)
    for t in v:
        assert t is not None
        t.zero_()
    assert equal(other, plain)


def test_norms_over_millions_keep_their_digits() -> None:
    """float32 alone would be off by a percent at 10^8, and by 10^-4 at 4 · 10^6."""
    torch.manual_seed(0)
    t = torch.randn(4_000_000)
    exact = torch.linalg.vector_norm(t, dtype=torch.float64).item()
    assert Vector([t]).norm == pytest.approx(exact, rel=1e-6)
    assert dot(Vector([t]), Vector([t])) == pytest.approx(exact**2, rel=2e-6)
