"""Compiled models inside `loss_fn`: torch.compile changes neither the step nor, if eager, a bit."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import sampa
from sampa.catalog import METHODS, find_method
from sampa.execution.compiler import outliving
from sampa.execution.lookahead import take_gradients
from sampa.torch_private import has_shared_memory
from tests.marks import rest_is_slow
from tests.problems import Batch, cross_entropy_of, image_batches, same_bits, sgd, small_net

FACTORIES: dict[str, Callable[..., sampa.SharpnessAware]] = {
    "sam": sampa.SAM,
    "sampa": sampa.SAMPa,
    "asam": sampa.ASAM,
    "gsam": sampa.GSAM,
    "looksam": sampa.LookSAM,
}
# Generated kernels sum in another order: some units of 1e-7 on weights of size 1. LookSAM scales up
# the small difference of two gradients, and their rounding with it. In docs/how-to/precision.md
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


# ---- step and the compiler -----------------------------------------------------------------------


class Recorder:
    """A backend that keeps the graphs that it is given, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph: Any, _inputs: Any) -> Any:
        self.graphs.append(graph)
        return graph

    def operations(self) -> list[str]:
        """What the graphs compute, in order."""
        nodes = [n for graph in self.graphs for n in graph.graph.nodes]
        return [getattr(n.target, "__name__", n.target) for n in nodes if n.op.startswith("call")]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    torch._dynamo.reset()
    yield Recorder()
    torch._dynamo.reset()


def test_a_compiled_function_calls_step_without_tracing_into_it(recorder: Recorder) -> None:
    """Its graphs have what is written around the call, and nothing of the step."""
    ends = []
    for compiles in (False, True):
        model = small_net()
        optimizer = sampa.SAMPa(sgd(model), seed=0, executor=sampa.Serial(model))
        loss_fn = cross_entropy_of(model)

        def train(batch: Batch, step: Any = optimizer.step, loss_fn: Any = loss_fn) -> Tensor:
            x, y = batch
            return step(loss_fn, (torch.sin(x), y)) + 1

        called = torch.compile(train, backend=recorder) if compiles else train
        losses = [called(batch) for batch in image_batches(4, size=4)]
        ends.append((losses, model.state_dict()))
    assert same_bits(*ends)
    assert recorder.operations() == ["sin", "add"]


def test_a_compiled_model_is_compiled_also_when_step_is_called_by_compiled_code(
    recorder: Recorder,
) -> None:
    model = small_net()
    optimizer = sampa.SAM(sgd(model), executor=sampa.Serial(model))
    loss_fn = cross_entropy_of(torch.compile(model, backend=recorder))
    train = torch.compile(lambda batch: optimizer.step(loss_fn, batch), backend="eager")
    for batch in image_batches(2, size=4):
        train(batch)
    assert "conv2d" in recorder.operations()


# ---- how often a model is compiled ---------------------------------------------------------------

GRAPHS_OF_SGD = 1
# One more graph for each mode, trained set or batch size that differs from the first pass's.
OTHER_PASSES = {
    "sam-on": 1,  # the gradient of normalization layers alone
    "mesa": 1,  # the teacher in evaluation mode
    "ssam-f": 1,  # single samples in evaluation mode
    "esam": 3,  # some of the weights; some of the samples, of a size that becomes dynamic
}


def graphs_of(method: str | None, recorder: Recorder, **options: Any) -> int:
    """How many graphs a compiled model has after four steps; of plain SGD without a method."""
    torch._dynamo.reset()
    recorder.graphs.clear()
    model = small_net()
    compiled = torch.compile(model, backend=recorder)
    if options.pop("with_model", True):
        options["executor"] = sampa.Serial(model)
    optimizer = find_method(method or "base")(sgd(model), seed=0, **options)
    optimizer.set_epoch(6)  # SAF and MESA only add their term after their first epochs

    def loss_fn(batch: tuple[Tensor, Tensor, Tensor]) -> sampa.Loss:
        x, y, index = batch
        logits = compiled(x)
        each = F.cross_entropy(logits, y, reduction="none")
        return sampa.Loss(each.mean(), each, logits, y, index)

    for i, (x, y) in enumerate(image_batches(4, size=8)):
        if method is None:
            value = loss_fn((x, y, y)).value
            assert value is not None
            value.backward()
        else:
            optimizer.step(loss_fn, (x, y, torch.arange(8) + 8 * i))
    return len(recorder.graphs)


def test_plain_sgd_compiles_once(recorder: Recorder) -> None:
    assert graphs_of(None, recorder) == GRAPHS_OF_SGD


@pytest.mark.parametrize("method", rest_is_slow(METHODS, "sam", "sampa", "esam", "sam-on"))
def test_a_model_is_compiled_as_often_as_for_plain_sgd(method: str, recorder: Recorder) -> None:
    """Nothing of a step is in the way: no layer is switched, and no hook is on all modules."""
    expected = GRAPHS_OF_SGD + OTHER_PASSES.get(method, 0)
    assert graphs_of(method, recorder) == expected
    assert graphs_of(method, recorder, with_model=False) <= expected + 1


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
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    (Static.apply(p) + q.square().sum()).backward()
    assert p.grad is not None
    assert q.grad is not None
    assert (has_shared_memory(p.grad), has_shared_memory(q.grad)) == (True, False)


def test_a_gradient_in_a_graphs_memory_is_copied_on_a_gpu() -> None:
    """Tensors of a GPU that is not there: they have a device and memory, but no numbers."""
    with FakeTensorMode():
        own, graphs = torch.zeros(3, device="cuda"), torch.zeros(3, device="cuda")
        weights = [nn.Parameter(torch.zeros(3, device="cuda")) for _ in range(2)]
        weights[0].grad, weights[1].grad = own, graphs.detach()
        address, in_graph = id(own), weights[1].grad
        del own
        kept, copied = take_gradients(weights)
        assert id(kept) == address
        assert copied is not None
        assert copied is not in_graph
        assert not has_shared_memory(copied)


def test_nothing_is_copied_without_a_gpu() -> None:
    gradient = Static.memory.detach()
    assert outliving(gradient) is gradient


@pytest.mark.slow
def test_each_pass_is_a_step_for_cuda_graphs_once_they_are_in_use() -> None:
    """In a process of its own: what loads them here would make other tests copy."""
    code = """
from sampa.execution.compiler import begin_pass
from sampa.torch_private import uses_cuda_graphs
begin_pass()
assert not uses_cuda_graphs()
from torch._inductor.cudagraph_trees import MarkStepBox
before = MarkStepBox.mark_step_counter
begin_pass(), begin_pass()
assert before - MarkStepBox.mark_step_counter == 2
assert uses_cuda_graphs()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(
    ("accumulate", "method"),
    [pytest.param(n, method, marks=on_gpu) for n in (1, 2) for method in FACTORIES],
)
def test_cuda_graphs_train_as_the_plain_model(accumulate: int, method: str) -> None:
    """mode="reduce-overhead" on a GPU: kernels are captured and replayed from the third pass on."""
    ends = []
    for mode in (None, "reduce-overhead"):
        torch._dynamo.reset()
        model = small_net(dropout=0.0).cuda()
        called = model if mode is None else torch.compile(model, mode=mode)
        optimizer = FACTORIES[method](sgd(model), seed=0, accumulate=accumulate)
        for x, y in image_batches(8, size=4):
            optimizer.step(cross_entropy_of(called), (x.cuda(), y.cuda()))
        ends.append(model.state_dict())
    torch.testing.assert_close(*ends, rtol=0, atol=10 * TOLERANCE[method])
