"""Random numbers as a function of key and place: right, independent, alike in every shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import sampa
from sampa.execution.randomness import derive_seed
from sampa.vectors import random as random_module
from sampa.vectors.random import BLOCK, RandomNumbers, places
from sampa.vectors.vector import Vector
from tests.problems import BASES, flat
from tests.reference import random_numbers as reference
from tests.variants import BATCHES, loss_of, normalized_mlp

KEY = derive_seed(3, "direction", 5)
MANY = 1 << 21
SHAPES = [(3, 5), (64,), (2,), (), (7, 3, 3)]


def uniform(first: int, count: int, key: int = KEY, draw: int = 0) -> Tensor:
    out = torch.empty(count)
    RandomNumbers(key).fill_uniform(out, first, draw)
    return out


def normal(first: int, count: int, key: int = KEY, draw: int = 0) -> Tensor:
    out = torch.empty(count)
    RandomNumbers(key).fill_normal(out, first, draw)
    return out


def weights(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.zeros(shape, dtype=dtype, requires_grad=True) for shape in SHAPES]


def weights_of(v: Vector) -> list[list[float]]:
    return [t.flatten().tolist() for t in v.present]


# ---- against the slow code -----------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1, 12_345, BLOCK - 3, 5 * BLOCK + 17])
@pytest.mark.parametrize("draw", [0, 1])
def test_numbers_are_those_of_the_slow_code(first: int, draw: int) -> None:
    """Bit for bit where only integers are involved, also beyond 2³² elements."""
    places = range(first, first + 40)
    assert uniform(first, 40, draw=draw).tolist() == [
        reference.uniform(KEY, place, draw) for place in places
    ]
    expected = [reference.normal(KEY, place, draw) for place in places]
    assert normal(first, 40, draw=draw).tolist() == pytest.approx(expected, rel=1e-6)


def test_numbers_on_the_host_are_those_of_the_slow_code() -> None:
    random = RandomNumbers(KEY)
    assert [random.number(i) for i in range(20)] == [reference.number(KEY, i) for i in range(20)]


def test_an_element_has_its_place_in_the_vector() -> None:
    starts = reference.first_places([15, 64, 2, 1, 63])
    assert places(weights())[:-1] == starts
    drawn = weights_of(RandomNumbers(KEY).uniform(weights()))
    for start, numbers in zip(starts, drawn, strict=True):
        assert numbers == [reference.uniform(KEY, start + i) for i in range(len(numbers))]


# ---- what they depend on -------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 1000), (63, 70_001), (299_999, 600_000)])
@pytest.mark.parametrize("draw", [uniform, normal])
def test_a_shard_draws_its_part_of_the_whole(
    draw: Callable[[int, int], Tensor], a: int, b: int
) -> None:
    assert torch.equal(draw(a, b - a), draw(0, 600_000)[a:b])


def test_the_size_of_the_pieces_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = normal(5, 300_000)
    monkeypatch.setitem(random_module.PIECES, "cpu", 1 << 12)
    assert torch.equal(normal(5, 300_000), whole)


def test_a_frozen_parameter_has_no_place() -> None:
    """The others draw as in a model without it."""
    some = weights()
    some[1].requires_grad_(False)
    drawn = RandomNumbers(KEY).normal(some)
    assert drawn.tensors[1] is None
    others = RandomNumbers(KEY).normal([p for i, p in enumerate(some) if i != 1])
    assert weights_of(drawn) == weights_of(others)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_of_every_type_draw_the_same_numbers(dtype: torch.dtype) -> None:
    own, single = weights(dtype), weights()
    assert weights_of(RandomNumbers(KEY).uniform(own)) == weights_of(
        RandomNumbers(KEY).uniform(single)
    )
    normal = RandomNumbers(KEY).normal(own).present
    assert {t.dtype for t in normal} == {dtype}
    for a, b in zip(normal, RandomNumbers(KEY).normal(single).present, strict=True):
        assert torch.equal(a, b.to(dtype))


def test_complex_numbers_have_variance_one() -> None:
    p = torch.zeros(50_000, dtype=torch.complex64, requires_grad=True)
    (e,) = RandomNumbers(KEY).normal([p]).present
    assert e.dtype is torch.complex64
    assert e.abs().square().mean().item() == pytest.approx(1, abs=0.02)
    assert np.corrcoef(e.real, e.imag)[0, 1] == pytest.approx(0, abs=0.02)


def test_the_memory_of_every_tensor_is_aligned() -> None:
    assert all(t.data_ptr() % 16 == 0 for t in RandomNumbers(KEY).uniform(weights()).present)


def test_fake_cuda_weights_draw_on_their_device_and_ask_nothing() -> None:
    """`.item()` of a fake tensor raises."""
    with FakeTensorMode():
        some = [torch.empty(40, 30, device="cuda", requires_grad=True) for _ in range(3)]
        for drawn in (RandomNumbers(KEY).normal(some), RandomNumbers(KEY).uniform(some)):
            assert [t.device.type for t in drawn.present] == ["cuda"] * 3


# ---- how random they are -------------------------------------------------------------------------


@pytest.mark.parametrize("key", [0, 1, KEY])
def test_numbers_have_their_distributions(key: int) -> None:
    """Deviations that a fair draw has in less than one of 10⁴ tests."""
    u, e = uniform(0, MANY, key).double(), normal(0, MANY, key).double()
    assert u.min() >= 0
    assert u.max() < 1
    error = 4 / MANY**0.5
    assert u.mean().item() == pytest.approx(0.5, abs=error / 12**0.5)
    assert 12 * u.var().item() == pytest.approx(1, abs=error)
    assert e.mean().item() == pytest.approx(0, abs=error)
    assert e.var().item() == pytest.approx(1, abs=2**0.5 * error)
    assert e.pow(4).mean().item() == pytest.approx(3, abs=96**0.5 * error)
    assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-4
    assert stats.kstest(e.numpy(), "norm").pvalue > 1e-4


def assert_uncorrelated(a: Tensor, b: Tensor) -> None:
    """Neither the numbers nor their squares, up to four standard errors."""
    for power in (1, 2):
        found = np.corrcoef(a.pow(power), b.pow(power))[0, 1]
        assert abs(found) * len(a) ** 0.5 < 4


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 63, 64, 1 << 10, 1 << 16])
def test_neighboring_elements_are_uncorrelated(lag: int) -> None:
    e = normal(0, MANY)
    assert_uncorrelated(e[lag:], e[:-lag])


@pytest.mark.parametrize(
    "other", [KEY + 1, KEY ^ 1, KEY ^ (1 << 32), derive_seed(3, "direction", 6)]
)
def test_neighboring_steps_are_uncorrelated(other: int) -> None:
    assert_uncorrelated(normal(0, MANY), normal(0, MANY, other))


@pytest.mark.parametrize("bit", [0, 1, 8, 12, 31, 32, 33, 40, 44, 52, 63])
def test_keys_that_differ_in_one_bit_give_uncorrelated_numbers(bit: int) -> None:
    """Of the keys as the hash sees them: one multiplication after the second half fails here."""

    def hashed(key: int) -> Tensor:
        x = torch.arange(MANY, dtype=torch.int32)
        random_module.scramble_(x, key)
        return x.double()

    assert_uncorrelated(hashed(KEY), hashed(KEY ^ (1 << bit)))


def test_draws_of_one_step_are_uncorrelated() -> None:
    assert_uncorrelated(normal(0, MANY), normal(0, MANY, draw=1))


def test_blocks_and_numbers_on_the_host_are_uncorrelated() -> None:
    assert_uncorrelated(normal(0, MANY), normal(BLOCK, MANY))
    random = RandomNumbers(KEY)
    coins = torch.tensor([random.number(i) for i in range(20_000)], dtype=torch.float64)
    assert stats.kstest(coins.numpy(), "uniform").pvalue > 1e-4
    assert_uncorrelated(coins[1:], coins[:-1])
    assert_uncorrelated(coins, uniform(0, 20_000).double())


def test_every_bit_is_fair() -> None:
    x = torch.arange(MANY, dtype=torch.int32)
    random_module.scramble_(x, KEY)
    shares = torch.stack([((x >> bit) & 1).double().mean() for bit in range(8, 32)])
    assert (shares - 0.5).abs().max().item() < 4.5 * 0.5 / MANY**0.5


# ---- in methods ----------------------------------------------------------------------------------


def perturbation_of_randsam(seed: int, steps: int) -> list[Tensor]:
    model, seen = normalized_mlp(), []
    optimizer = sampa.RandSAM(BASES["sgd"](model.parameters()), rho=0.5, seed=seed)

    for batch in BATCHES[:steps]:
        before = flat(model)

        def loss_fn(batch: Any, before: Tensor = before) -> sampa.Loss:
            seen.append(flat(model) - before)
            return loss_of(model)(batch)

        optimizer.step(loss_fn, batch)
    return seen


def test_randsam_moves_along_the_slow_codes_normal_numbers() -> None:
    sizes = [p.numel() for p in normalized_mlp().parameters()]
    starts = reference.first_places(sizes)
    for call, moved in enumerate(perturbation_of_randsam(seed=4, steps=3)):
        key = derive_seed(4, "direction", call)
        e = torch.tensor(
            [
                reference.normal(key, start + i)
                for start, n in zip(starts, sizes, strict=True)
                for i in range(n)
            ],
            dtype=torch.float64,
        )
        torch.testing.assert_close(moved.double(), 0.5 * e / e.norm(), rtol=1e-5, atol=1e-6)


def test_rst_flips_the_slow_codes_coins() -> None:
    model = normalized_mlp()
    optimizer = sampa.RST(BASES["sgd"](model.parameters()), p=0.6, seed=4)
    for call in range(12):
        optimizer.step(loss_of(model), BATCHES[call % len(BATCHES)])
        assert optimizer.last is not None
        is_heads = reference.number(derive_seed(4, "direction", call)) < 0.6
        assert optimizer.last.rounds == 1 + is_heads
