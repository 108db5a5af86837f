"""Arithmetic on parameter-shaped vectors: absent entries, norms, in-place moves."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sampa.vectors.reductions import global_norms, joined_in_groups
from sampa.vectors.vector import Vector, add, add_, copy_, cosine, dot, mix, scale


def tensor(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype)


A = Vector([tensor(3.0, 0.0), None, tensor(4.0)])
B = Vector([tensor(1.0, 2.0), tensor(5.0), None])


def entries(v: Vector) -> list[list[float] | None]:
    return [None if t is None else t.tolist() for t in v]


def test_norm_is_one_number_over_all_tensors() -> None:
    assert A.norm == 5.0


def test_norm_of_nothing_is_zero() -> None:
    assert Vector([None, None]).norm == 0.0


def test_norm_of_bfloat16_has_the_digits_of_float32() -> None:
    """bfloat16 itself would round √3 to 1.734."""
    v = Vector([torch.ones(3, dtype=torch.bfloat16)])
    assert v.norm == pytest.approx(math.sqrt(3), rel=1e-7)


def test_norm_of_float16_does_not_overflow() -> None:
    """It is beyond float16's largest number, 65504."""
    v = Vector([tensor(60_000.0, 60_000.0, dtype=torch.float16)])
    assert v.norm == pytest.approx(60_000 * math.sqrt(2), rel=1e-7)


def test_global_norm_accepts_scalars_and_empty_tensors() -> None:
    assert global_norms([[torch.tensor(3.0), torch.empty(0), torch.tensor(4.0)]]) == [5.0]


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_norm_tells_one_bad_entry(bad: float) -> None:
    assert not torch.isfinite(Vector([tensor(1.0), tensor(1.0, bad)]).norm)


def test_clone_shares_no_memory() -> None:
    v = Vector([tensor(1.0)])
    copy = v.clone()
    assert copy.tensors[0] is not None
    copy.tensors[0].fill_(7.0)
    assert entries(v) == [[1.0]]


def test_scale_keeps_absent_entries_absent() -> None:
    assert entries(scale(A, 2.0)) == [[6.0, 0.0], None, [8.0]]


def test_scale_of_nothing_is_nothing() -> None:
    assert entries(scale(Vector([None]), 2.0)) == [None]


def test_add_counts_an_absent_entry_as_zero() -> None:
    assert entries(add(A, B, alpha=2.0)) == [[5.0, 4.0], [10.0], [4.0]]


def test_add_of_two_absent_entries_stays_absent() -> None:
    assert entries(add(Vector([None]), Vector([None]))) == [None]


def test_add_leaves_its_arguments_unchanged() -> None:
    add(A, B)
    assert (entries(A), entries(B)) == ([[3.0, 0.0], None, [4.0]], [[1.0, 2.0], [5.0], None])


def test_mix_is_the_convex_combination() -> None:
    mixed = mix(Vector([tensor(4.0, 8.0)]), Vector([tensor(0.0, 16.0)]), 0.25)
    assert entries(mixed) == [[3.0, 10.0]]


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64]
)
def test_a_number_scales_all_tensors_as_it_scales_one(dtype: torch.dtype) -> None:
    """Lists are multiplied by a scalar tensor, which must not round otherwise than the number."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((1,), (3,), (5000,), ())
    v = Vector(torch.randn(s, dtype=dtype, generator=generator) for s in shapes)
    for factor in (0.8, 1 / 3, 1e-7, 7.3):
        for some in (v, Vector(v.tensors[:3])):  # without the scalar they are multiplied together
            for scaled, t in zip(scale(some, factor), some.present, strict=True):
                assert scaled is not None
                assert scaled.dtype == dtype
                assert torch.equal(scaled, t * factor)


def test_a_scalar_in_half_precision_stays_one_whatever_scales_it() -> None:
    v = Vector([torch.tensor(2.0, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16)])
    scaled = scale(v, torch.tensor(0.5, dtype=torch.float64))
    assert [t.dtype for t in scaled.present] == [torch.bfloat16] * 2
    assert entries(mix(v, v, 0.25)) == entries(v)


def test_a_number_keeps_its_digits_where_types_differ() -> None:
    v = Vector([tensor(1.0, dtype=torch.float32), tensor(1.0)])
    assert entries(scale(v, 0.1))[1] == [0.1]


def test_mix_into_the_memory_of_a_gives_the_same_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    pair = [Vector([torch.randn(1000, generator=generator), None]) for _ in range(2)]
    a, b = pair
    expected = mix(a, b, 0.2)
    spent = mix(a, b, 0.2, into_a=True)
    assert entries(spent) == entries(expected)
    assert spent.present[0] is a.present[0]
    assert torch.equal(spent.norm, expected.norm)


@pytest.mark.parametrize(("lam", "end"), [(0.0, 0), (1.0, 1)])
def test_mix_at_its_ends_is_one_of_the_two_bitwise(lam: float, end: int) -> None:
    generator = torch.Generator().manual_seed(0)
    pair = [torch.randn(1000, generator=generator, dtype=torch.float64) for _ in range(2)]
    (mixed,) = mix(Vector([pair[0]]), Vector([pair[1]]), lam)
    assert mixed is not None
    assert torch.equal(mixed, pair[end])


def test_dot_counts_an_absent_entry_as_zero() -> None:
    assert dot(A, B) == 3.0


def test_dot_of_disjoint_vectors_is_zero() -> None:
    assert dot(Vector([tensor(1.0), None]), Vector([None, tensor(1.0)])) == 0.0


def test_cosine_of_opposite_vectors_is_minus_one() -> None:
    assert cosine(A, scale(A, -3.0)) == -1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_count_short_tensors_long_ones_and_those_with_other_strides(
    dtype: torch.dtype,
) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((7, 5), (3,), (1000, 100))  # the last one is longer than a piece
    a, b = ([torch.randn(s, dtype=dtype, generator=generator) for s in shapes] for _ in range(2))
    a[2] = a[2].t().contiguous().t()
    left, right = Vector(a), Vector(b)
    flat = [torch.cat([t.double().flatten() for t in v]) for v in (a, b)]
    assert float(left.norm) == pytest.approx(float(flat[0].norm()), rel=1e-5)
    rounding = 1e-5 * float(left.norm * right.norm)
    assert float(dot(left, right)) == pytest.approx(float(flat[0].dot(flat[1])), abs=rounding)
    assert cosine(left, right) == dot(left, right) / (left.norm * right.norm)
    fresh = Vector(a), Vector(b)  # whose norms are found on the way, with the same bits
    assert cosine(*fresh) == cosine(left, right)
    assert [v.norm for v in fresh] == [left.norm, right.norm]


def test_cosine_of_vectors_without_entries_is_not_a_number() -> None:
    assert math.isnan(cosine(Vector([None]), Vector([None])))


def test_cosine_with_a_zero_vector_is_not_a_number() -> None:
    assert math.isnan(cosine(A, scale(A, 0.0)))


def test_add_in_place_uses_one_factor_per_tensor() -> None:
    weights = [tensor(1.0, 1.0), tensor(1.0), tensor(1.0)]
    add_(weights, A, [1.0, 10.0, 0.5])
    assert [w.tolist() for w in weights] == [[4.0, 1.0], [1.0], [3.0]]


def test_add_in_place_of_nothing_changes_nothing() -> None:
    weights = [tensor(1.0)]
    add_(weights, Vector([None]), [1.0])
    assert weights[0].tolist() == [1.0]


def test_add_in_place_keeps_the_weights_memory() -> None:
    weight = tensor(1.0)
    address = weight.data_ptr()
    add_([weight], Vector([tensor(1.0)]), [1.0])
    assert weight.data_ptr() == address


def test_copy_in_place_keeps_the_targets_memory_and_takes_the_bits() -> None:
    target, source = tensor(0.0), tensor(0.1)
    address = target.data_ptr()
    copy_([target], [source])
    assert (target.data_ptr(), target.item()) == (address, 0.1)


def test_copy_of_nothing_is_allowed() -> None:
    copy_([], [])


def test_vectors_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        add(A, Vector([tensor(1.0)]))


def test_a_product_of_infinities_is_not_a_number_and_no_error() -> None:
    size = 1 << 19  # more than one piece
    a = torch.ones(size)
    a[0], a[-1] = math.inf, -math.inf
    assert math.isnan(cosine(Vector([a]), Vector([torch.ones(size)])))


FIRST, LAST = torch.contiguous_format, torch.channels_last


@pytest.mark.parametrize("layouts", [(LAST, LAST), (LAST, FIRST), (FIRST, LAST)], ids=str)
def test_tensors_that_are_joined_for_a_gpu_pair_the_same_elements(
    layouts: tuple[torch.memory_format, torch.memory_format],
) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((4, 3, 5, 5), (2, 7, 1, 1), (1, 6, 3, 2))
    left, right = (
        [torch.randn(s, generator=generator).double().contiguous(memory_format=f) for s in shapes]
        for f in layouts
    )
    pairs = [*zip(left, right, strict=True)]
    found = sum(float(torch.dot(s, t)) for s, t in joined_in_groups(pairs))
    assert found == pytest.approx(sum(float((s * t).sum()) for s, t in pairs), rel=1e-12)
