"""Compiled models inside `loss_fn`: torch.compile changes neither the step nor, if eager, a bit."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sampa
from sampa.execution.compiler import begin_pass, outliving
from sampa.torch_private import has_shared_memory, uses_cuda_graphs
from tests.problems import cross_entropy_of, image_batches, same_bits, sgd, small_net

FACTORIES: dict[str, Callable[..., sampa.SharpnessAware]] = {
    "sam": sampa.SAM,
    "sampa": sampa.SAMPa,
    "asam": sampa.ASAM,
    "gsam": sampa.GSAM,
    "looksam": sampa.LookSAM,
}
# Generated kernels sum in another order: some units of 1e-7 on weights of size 1. LookSAM scales up
# the small difference of two gradients, and their rounding with it. Also in docs/usage.md.
TOLERANCE = dict.fromkeys(FACTORIES, 2e-6) | {"looksam": 1e-5}

pytestmark = [
    # What torch's own compiler warns about is not what is tested here.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),
    pytest.mark.filterwarnings("ignore:Using `torch.compile"),
]


class Compiled:
    """One network in two forms that share their weights, compiled once for all tests."""

    def __init__(self, backend: str, **options: Any) -> None:
        torch._dynamo.reset()
        self.model = small_net(**options)
        self.compiled = torch.compile(self.model, backend=backend)
        self._start = {name: t.clone() for name, t in self.model.state_dict().items()}

    def trained(self, called: Callable[[Tensor], Tensor], method: str, **options: Any) -> Any:
        """Weights and buffers after three steps, with the module that is called in loss_fn."""
        self.model.load_state_dict(self._start)
        optimizer = FACTORIES[method](sgd(self.model), seed=0, **options)
        for batch in image_batches(3, size=4):
            optimizer.step(cross_entropy_of(called), batch)
        return {name: t.clone() for name, t in self.model.state_dict().items()}


@pytest.fixture(scope="module")
def traced() -> Compiled:
    """By torch.compile's tracer alone."""
    return Compiled("eager")


@pytest.fixture(scope="module")
def generated() -> Compiled:
    """With generated kernels; without dropout, for which they draw other numbers."""
    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("inductor needs a C++ compiler")
    return Compiled("inductor", dropout=0.0)


@pytest.mark.parametrize("method", FACTORIES)
def test_a_traced_model_trains_as_the_plain_one_bitwise(traced: Compiled, method: str) -> None:
    """A graph sees the weights at each point where a probe puts them, since they move in place."""
    executor = sampa.Serial(traced.model)
    plain = traced.trained(traced.model, method, executor=executor)
    assert same_bits(traced.trained(traced.compiled, method, executor=executor), plain)


def test_a_traced_model_trains_without_an_executor(traced: Compiled) -> None:
    """Layers are noticed as they run, by a hook that the tracer meets."""
    plain = traced.trained(traced.model, "sam")
    assert same_bits(traced.trained(traced.compiled, "sam"), plain)


@pytest.mark.slow
@pytest.mark.parametrize("method", FACTORIES)
def test_a_compiled_model_trains_as_the_plain_one(generated: Compiled, method: str) -> None:
    executor = sampa.Serial(generated.model)
    plain = generated.trained(generated.model, method, executor=executor)
    compiled = generated.trained(generated.compiled, method, executor=executor)
    torch.testing.assert_close(compiled, plain, rtol=0, atol=TOLERANCE[method])


# ---- CUDA graphs ---------------------------------------------------------------------------------


class Static(torch.autograd.Function):
    """Writes its gradient to the same memory each time, as a CUDA graph does."""

    memory = torch.zeros(3)

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return Static.memory.fill_(2.0).detach()


def test_memory_that_a_graph_owns_is_told_from_a_gradients_own() -> None:
    """On the CPU; on a GPU such a gradient is copied."""
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    (Static.apply(p) + q.square().sum()).backward()
    assert p.grad is not None
    assert q.grad is not None
    assert (has_shared_memory(p.grad), has_shared_memory(q.grad)) == (True, False)


def test_nothing_is_copied_or_marked_without_a_gpu() -> None:
    gradient = Static.memory.detach()
    begin_pass()
    assert outliving(gradient) is gradient
    assert uses_cuda_graphs() == ("torch._inductor.cudagraph_trees" in sys.modules)
