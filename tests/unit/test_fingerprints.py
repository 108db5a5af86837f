"""Fingerprints of tensors depend on every bit and on its place, on the host and on a device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sampa.execution.parallel import agreement

Fingerprint = Callable[[Tensor], int]


def on_cpu(t: Tensor) -> int:
    return int(agreement._fingerprint(t))


def on_device(t: Tensor) -> int:
    """What a device computes, computed here."""
    return int(agreement._sum_of_hashes(t))


def numbers(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


DTYPES = [
    *(torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn),
    *(torch.int64, torch.int8, torch.uint16, torch.bool, torch.complex64, torch.complex128),
]
both = pytest.mark.parametrize("fingerprint", [on_cpu, on_device])


@both
def test_elements_that_changed_places_are_noticed(fingerprint: Fingerprint) -> None:
    w = numbers((6, 4))
    changed = {
        "columns": w[:, [1, 0, 2, 3]],
        "rows": w[[1, 0, 2, 3, 4, 5]],
        "two elements of a row": w.flatten()[[2, 1, 0, *range(3, 24)]].view(6, 4),
        "transposed": w.view(4, 6).t().reshape(6, 4),
        "all reversed": w.flip(0, 1),
    }
    assert [name for name, other in changed.items() if fingerprint(other) == fingerprint(w)] == []


@both
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_each_bit_counts(fingerprint: Fingerprint, dtype: torch.dtype) -> None:
    t = numbers((3, 2), dtype)
    found = {fingerprint(t)}
    bits = 1 if dtype is torch.bool else 8  # the other bits of a bool are no value
    for byte in range(t.nbytes):
        for bit in range(bits):
            flipped = t.clone()
            flipped.view(-1).view(torch.uint8)[byte] ^= 1 << bit
            found.add(fingerprint(flipped))
    assert len(found) == 1 + t.nbytes * bits


@both
@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=40), data=st.data())
def test_any_two_orders_of_the_same_elements_differ(
    fingerprint: Fingerprint, words: list[int], data: st.DataObject
) -> None:
    other = data.draw(st.permutations(words))
    tensors = [torch.tensor(w, dtype=torch.int32) for w in (words, other)]
    assert (fingerprint(tensors[0]) == fingerprint(tensors[1])) == (words == other)


@both
@pytest.mark.parametrize("pair", [(0.0, -0.0), (1.5, -1.5)])
def test_signs_that_changed_places_are_noticed(
    fingerprint: Fingerprint, pair: tuple[float, float]
) -> None:
    a, b = torch.tensor(pair), torch.tensor(pair[::-1])
    assert fingerprint(a) != fingerprint(b)


@both
def test_the_place_is_the_logical_one(fingerprint: Fingerprint) -> None:
    """Replicas may differ in their strides."""
    w = numbers((2, 3, 4, 5))
    strided = torch.zeros(2, 3, 4, 10)[..., ::2].copy_(w)
    in_other_layout = w.to(memory_format=torch.channels_last)
    assert fingerprint(w) == fingerprint(in_other_layout) == fingerprint(strided)
    assert fingerprint(w[:, :, 1:]) == fingerprint(w[:, :, 1:].clone())


@both
def test_a_lazy_conjugate_is_its_value(fingerprint: Fingerprint) -> None:
    z = numbers((3,), torch.complex64) + 1j
    assert fingerprint(z.conj()) == fingerprint(z.conj().resolve_conj()) != fingerprint(z)
    assert fingerprint(z.conj().imag) == fingerprint(-z.imag) != fingerprint(z.imag)


@both
def test_scalars_empty_and_expanded_tensors_have_one(fingerprint: Fingerprint) -> None:
    assert fingerprint(torch.tensor(1.5)) != fingerprint(torch.tensor(2.5))
    assert fingerprint(torch.empty(0, 3)) == fingerprint(torch.empty(0, 3))
    assert fingerprint(torch.ones(1).expand(4)) == fingerprint(torch.ones(4))


def test_pieces_of_a_large_tensor_have_places_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement, "LARGEST_PIECE", 8)
    w = torch.arange(20)
    assert len({on_device(w.roll(n)) for n in range(20)}) == 20


def test_a_parameters_fingerprint_stays_on_its_device() -> None:
    assert agreement._fingerprint(torch.empty(2, device="meta")).device.type == "meta"
