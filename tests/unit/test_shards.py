"""mSAM: one perturbation for each micro-batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import sampa
from tests.problems import BASES, flat
from tests.variants import (
    BATCHES,
    Sample,
    assert_same,
    batch_norm_mlp,
    gradient_at,
    loss_of,
    normalized_mlp,
    points_of,
    run,
)

RHO = 0.3
START = flat(normalized_mlp())


def parts(batch: Sample, *sizes: int) -> list[Any]:
    return [tuple(p) for p in zip(*(t.split(sizes) for t in batch), strict=True)]


def perturbed_gradient(part: Any) -> Tensor:
    g = gradient_at(START, part)
    return gradient_at(START + RHO * g / g.norm(), part)


@pytest.mark.parametrize("shards", [2, 3])
def test_each_shard_is_perturbed_by_rho_along_its_own_gradient(shards: int) -> None:
    start, *points = points_of(sampa.MicroBatchSAM, rho=RHO, num_shards=shards)[0]
    assert all(torch.equal(p, start) for p in points[:shards])
    for point, part in zip(
        points[shards:], parts(BATCHES[0], *[6 // shards] * shards), strict=True
    ):
        g = gradient_at(start, part)
        torch.testing.assert_close(point - start, RHO * g / g.norm(), rtol=0, atol=1e-11)
        assert (point - start).norm().item() == pytest.approx(RHO, rel=1e-10)


def test_update_is_the_mean_over_the_shards() -> None:
    after = run(sampa.MicroBatchSAM, BATCHES[:1], "sgd", rho=RHO, num_shards=3)[0]
    h = torch.stack([perturbed_gradient(p) for p in parts(BATCHES[0], 2, 2, 2)]).mean(0)
    torch.testing.assert_close(after, START - 0.1 * h, rtol=0, atol=1e-11)


def test_uneven_shards_are_weighted_by_their_samples() -> None:
    """Five samples in two shards of two and three."""
    short = tuple(t[:5] for t in BATCHES[0])
    after = run(sampa.MicroBatchSAM, [short], "sgd", rho=RHO, num_shards=2)[0]
    a, b = (perturbed_gradient(p) for p in parts(short, 2, 3))
    torch.testing.assert_close(after, START - 0.1 * (0.4 * a + 0.6 * b), rtol=0, atol=1e-11)


def test_order_of_the_shards_does_not_matter() -> None:
    first, second = parts(BATCHES[0], 3, 3)
    swapped = tuple(torch.cat(pair) for pair in zip(second, first, strict=True))
    actual = run(sampa.MicroBatchSAM, [swapped], rho=RHO, num_shards=2)
    expected = run(sampa.MicroBatchSAM, BATCHES[:1], rho=RHO, num_shards=2)
    assert_same(actual, expected, atol=1e-14)


def test_size_and_number_of_micro_batches_say_the_same() -> None:
    by_size = run(sampa.MicroBatchSAM, rho=RHO, micro_batch_size=2)
    assert_same(by_size, run(sampa.MicroBatchSAM, rho=RHO, num_shards=3))


def test_a_rest_makes_one_more_micro_batch_of_even_size() -> None:
    assert sampa.MicroBatches(size=32).number(33) == 2


def test_the_paper_s_batch_of_128_has_four_micro_batches() -> None:
    assert sampa.MicroBatches().number(128) == 4


def test_more_shards_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 6 samples cannot be cut into 7"):
        run(sampa.MicroBatchSAM, num_shards=7)


@pytest.mark.parametrize("name", ["msam", "sampa+msam"])
def test_batch_norm_counts_a_batch_once_with_its_last_shard(name: str) -> None:
    make = {
        "msam": lambda base: sampa.MicroBatchSAM(base, num_shards=2),
        "sampa+msam": lambda base: sampa.SAMPa(base, micro_batches=sampa.MicroBatches(count=2)),
    }[name]
    model, twin = batch_norm_mlp(), batch_norm_mlp()
    make(BASES["sgd"](model.parameters())).step(loss_of(model), BATCHES[0])
    twin(BATCHES[0][0][3:])
    means = [m.get_buffer("1.running_mean") for m in (model, twin)]
    assert torch.equal(*means)
    assert model[1].num_batches_tracked == 1
