"""What a device would suffer from on two ranks: waits of the host, and unaligned memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from tests.distributed.training import Run, Session
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

READS = (
    *(Tensor.item, Tensor.tolist, Tensor.cpu, Tensor.nonzero, Tensor.new_tensor, torch.tensor),
    *(Tensor.__bool__, Tensor.__float__, Tensor.__int__),
)


class Reads(TorchFunctionMode):
    """Counts what would make the host wait, if the tensors were on a device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in READS
        return func(*args, **(kwargs or {}))


def reads_of_a_step(distribute: dict[str, Any]) -> int:
    """In a step after the first ones, which compare the replicas."""
    session = Session(Run(distribute=distribute))
    session.advance(3)
    with Reads() as reads:
        session.optimizer.step(session.loss_fn, session.skip(1))
    return reads.count


def test_a_step_over_the_network_waits_once() -> None:
    assert run_ranks(2, reads_of_a_step, {"shared_memory": False}) == [1, 1]


def odd_net() -> nn.Module:
    """Its tensors have sizes that are no multiples of 16 bytes."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Linear(3, 5), nn.Linear(5, 10))


def misplaced(distribute: dict[str, Any]) -> set[int]:
    """By how many bytes the tensors of gradients miss a multiple of 16."""
    session = Session(Run(distribute=distribute, net=odd_net))
    found: set[int] = set()
    answer = session.executor.answer

    def noted(*args: Any) -> Any:
        answers = answer(*args)
        found.update(t.data_ptr() % 16 for a in answers for t in a.gradient.present)
        return answers

    session.executor.answer = noted  # type: ignore[method-assign]
    session.advance(4)
    return found


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("shared_memory", [True, False])
def test_the_memory_of_vectors_is_aligned(ranks: int, shared_memory: bool) -> None:
    """Kernels on lists of tensors take another path for others, and may round otherwise."""
    assert run_ranks(ranks, misplaced, {"shared_memory": shared_memory}) == [{0}] * ranks
