"""Exact figures of a step beyond its gradients: a change that moves more memory shows up here."""

from __future__ import annotations

import pytest
import torch

from sampa.lab.bench.own_cost import LEAST_BYTES, Counter, costs, even_shapes, subject

SIZE = 500_000  # in 50 tensors: short ones would be joined for sums, which copies them


def counted(method: str, parameters: int = SIZE, tensors: int = 50) -> tuple[float, int]:
    (cost,) = costs([subject(method, even_shapes(parameters, tensors))], repeats=1)
    assert cost.parameters == parameters
    return cost.bytes_per_parameter, cost.kernels


def test_a_kernel_counts_what_goes_in_and_out() -> None:
    a, b = torch.zeros(10), torch.zeros(10)
    with Counter() as counter:
        torch.add(a, b)
    assert (counter.kernels, counter.bytes) == (1, 3 * 40)


def test_a_change_in_place_counts_as_read_and_written_and_a_copy_only_as_written() -> None:
    a, b = torch.zeros(10), torch.zeros(10)
    with Counter() as adding:
        a.add_(b)
    with Counter() as copying:
        a.copy_(b)
    assert (adding.bytes, copying.bytes) == (3 * 40, 2 * 40)


def test_views_and_empty_memory_cost_nothing() -> None:
    a = torch.zeros(10)
    with Counter() as counter:
        torch.empty_like(a[2:].view(2, 4))
    assert (counter.kernels, counter.bytes) == (0, 0)


# The floats that a step reads and writes for each parameter, by hand:
# a norm 1, a product 2
# a round  x copied 2, once for all of its moves
# a move   x moved (or stepped), x copied back 2; along a direction: scaled 2, added 3
# base     a norm, the base's step: x, g and m read and written 6
# sam      two norms, a product, a move along a direction, the base's step 6
# sampa    two norms, a product, a move along a direction, a move by the base's step 6 with a copy
#          of m 2, mixed 5, the base's step 6
COPY = BACK = 2
FLOATS = {
    "base": 1 + 6,
    "sam": 2 + 2 + COPY + (BACK + 5) + 6,
    "sampa": 2 + 2 + COPY + (BACK + 5) + (BACK + 6 + 2) + 5 + 6,
}


@pytest.mark.parametrize("method", FLOATS)
def test_bytes_per_parameter(method: str) -> None:
    moved, _ = counted(method)
    assert moved == pytest.approx(4 * FLOATS[method], abs=0.5)  # and a few numbers of their own
    assert moved >= LEAST_BYTES[method]


@pytest.mark.parametrize("method", FLOATS)
def test_bytes_grow_with_the_parameters_and_no_faster(method: str) -> None:
    small, large = counted(method)[0], counted(method, 5 * SIZE)[0]
    assert large == pytest.approx(small, abs=0.5)
