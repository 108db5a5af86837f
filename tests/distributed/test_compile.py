"""A compiled model under the parallel executor gives the bits of the compiled model in one process.

DDP lets the compiler cut the graph at bucket boundaries, so that exchanges overlap with backward
(torch._dynamo.config.optimize_ddp). Here `wide_net` is cut, and no bit changes: the switch
is left on.
"""

from __future__ import annotations

import functools
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.distributed.training import Outcome, Run, Session, differences
from tests.problems import small_net
from tests.ranks import run_ranks

pytestmark = pytest.mark.dist

has_compiler = pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="inductor needs a C++ compiler"
)
PATIENCE = 300.0  # seconds; a compiler on a busy machine takes its time


def plain(net: nn.Module, _backend: str) -> nn.Module:
    return net


def wrapped(net: nn.Module, backend: str) -> nn.Module:
    compiled = torch.compile(net, backend=backend)
    assert isinstance(compiled, nn.Module)
    return compiled


def in_place(net: nn.Module, backend: str) -> nn.Module:
    net.compile(backend=backend)
    return net


def wide_net() -> nn.Module:
    """Large enough that DDP cuts it: its first bucket holds 1 MB."""
    torch.manual_seed(0)
    layers = [nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.LayerNorm(512)]
    return Flat(nn.Sequential(*layers, nn.Linear(512, 10)))


class Flat(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.flatten(1))


def train_compiled(
    net: Callable[[], nn.Module],
    compiled: Callable[[nn.Module, str], nn.Module],
    backend: str,
    shared_memory: bool = False,
) -> tuple[Outcome, int]:
    """Train, evaluate and train on; with the number of graphs that were compiled."""
    # What torch's own compiler warns about is not what is tested here.
    warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
    way = {"shared_memory": True} if shared_memory else {"shared_memory": False, "bucket_mb": 0.1}
    run = Run(net=lambda: compiled(net(), backend), distribute=way)
    session = Session(run)
    session.advance(8)
    if backend != "inductor":  # another graph, and another minute
        session.executor.model.eval()
        with torch.no_grad():
            session.losses.append(session.executor.model(torch.ones(2, 1, 8, 8)))
        session.executor.model.train()
    session.advance(4)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    return session.outcome(), graphs


@functools.cache
def outcomes(ranks: int, *how: Any) -> list[tuple[Outcome, int]]:
    """Of every rank; several tests look at the same run."""
    return run_ranks(ranks, train_compiled, *how, timeout=PATIENCE)


def assert_all_equal(*how: Any) -> None:
    ((expected, _),) = outcomes(1, *how)
    for outcome, _ in outcomes(2, *how):
        assert differences(outcome, expected) == []


def test_a_compiled_model_matches_its_serial_run_bitwise() -> None:
    """Through shared memory; over the network below."""
    assert_all_equal(small_net, wrapped, "aot_eager", True)


def test_a_traced_model_on_two_ranks_matches_the_plain_model_in_one_process_bitwise() -> None:
    ((expected, graphs),) = outcomes(1, small_net, plain, "eager", True)
    assert graphs == 0
    for outcome, _ in outcomes(2, small_net, in_place, "eager", True):
        assert differences(outcome, expected) == []


# Each way to compile, which is the tracer's affair, on the small network; the one that is cut with
# the slow backend.
@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize(
    ("net", "compiled", "backend"),
    [
        *((small_net, way, "aot_eager") for way in (wrapped, in_place)),
        pytest.param(wide_net, wrapped, "inductor", marks=has_compiler),
    ],
)
def test_any_compiled_model_matches_its_serial_run_bitwise(
    net: Callable[[], nn.Module], compiled: Callable[[nn.Module, str], nn.Module], backend: str
) -> None:
    assert_all_equal(net, compiled, backend)


@pytest.mark.slow
@pytest.mark.timeout(2 * PATIENCE)
@pytest.mark.parametrize("compiled", [wrapped, in_place])
def test_the_executor_makes_no_more_graphs_than_one_process(
    compiled: Callable[[nn.Module, str], nn.Module],
) -> None:
    """The hooks that guard BatchNorm statistics stay out of the graph."""
    ((_, alone),) = outcomes(1, small_net, compiled, "aot_eager")
    for _, graphs in outcomes(2, small_net, compiled, "aot_eager"):
        assert 0 < graphs <= alone
