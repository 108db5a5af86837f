"""Parameter-sized buffers that are alive at the peak of a step on two ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sampa.execution import lookahead
from sampa.execution.parallel.exchange import Exchange
from sampa.execution.parallel.network import NetworkExchange
from sampa.execution.parallel.shared_memory import SharedMemoryExchange
from sampa.lab.bench.counting import KernelCounter
from sampa.method import vectors_of
from tests.distributed.training import Run, Session
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist


def wide_net() -> nn.Module:
    """Its parameters are so many that a batch and its activations do not count."""
    torch.manual_seed(0)
    layers = [nn.Linear(256, 256) for _ in range(16)]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), *layers, nn.Linear(256, 10))


def peaks(shared_memory: bool) -> dict[str, float]:
    """For some base optimizers: in sizes of the parameters, in a step after the first ones."""
    lookahead.LARGE_MODEL = 0  # as for a large model
    found: dict[str, float] = {}
    for base in ("sgd-fused", "adamw-fused", "adamw-foreach"):
        options: dict[str, Any] = {"shared_memory": shared_memory}
        session = Session(Run(net=wide_net, base=base, distribute=options, batch_size=2))
        session.advance(2)
        found[base] = peak_of_a_step(session)
    return found


def peak_of_a_step(session: Session) -> float:
    optimizer, weights = session.optimizer, list(session.model.parameters())
    exchange: Exchange = session.executor.exchange  # type: ignore[attr-defined]
    if isinstance(exchange, SharedMemoryExchange):  # a row counts for its writer
        scratch = exchange._memory.rows
        others = scratch[0].nbytes
    else:
        scratch, others = buckets_of(session), 0
    optimizer.zero_grad()
    kept = vectors_of(optimizer._carried.method_state)
    with KernelCounter([weights, dict(optimizer.state), *kept, scratch], on_cpu=True) as counter:
        optimizer.step(session.loss_fn, session.skip(1))
    return (counter.peak - others) / sum(p.nbytes for p in weights)


def buckets_of(session: Session) -> list[Tensor]:
    """The reducer's memory, which it keeps between steps."""
    exchange = session.executor.exchange  # type: ignore[attr-defined]
    assert isinstance(exchange, NetworkExchange)
    seen: list[Tensor] = []
    received = exchange._received

    def noting(branches: int) -> Any:
        seen.extend(bucket.rows[session.executor.branch] for bucket in exchange._buckets)
        return received(branches)

    exchange._received = noting
    session.advance(1)
    exchange._received = received
    return seen


@pytest.mark.parametrize("shared_memory", [True, False])
def test_parameter_sized_buffers_alive_on_two_ranks(shared_memory: bool) -> None:
    """SAMPa with momentum: the weights, the saved ones, momentum, g_t, a gradient, the exchange."""
    for found in run_ranks(2, peaks, shared_memory):
        assert found["sgd-fused"] == pytest.approx(6, abs=0.15)  # and a part of what is received
        assert found["adamw-fused"] == pytest.approx(7, abs=0.15)
        assert found["adamw-foreach"] == pytest.approx(8, abs=0.15)
