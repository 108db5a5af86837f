"""What a step would cost a GPU, counted without one: on fake CUDA tensors.

Fake tensors have a device and shapes, but no numbers. Forward and backward are not run: gradients
appear. Everything else is the step that users make: waits of the host, launches of kernels, views,
and the parameter-sized buffers that are alive at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

import sampa
from sampa import record
from sampa.catalog import find_method
from sampa.execution import evaluate, lookahead
from sampa.lab.bench.own_cost import Shapes
from sampa.method import vectors_of
from sampa.torch_private import FakeTensor, FakeTensorMode, TorchDispatchMode, tree_leaves
from sampa.vectors.vector import Vector

BASES: dict[str, Callable[[Any], Optimizer]] = {
    # Fused SGD has no fake kernel in a CPU build of torch.
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True),
}
COUNTED = ("base", "sam", "sampa")
COUNTED_BATCH, COUNTED_CLASSES = 4, 3

# As in torch's CUDA code: a launch on lists takes at most this many tensors, by the number of
# lists, and this many blocks of 65,536 elements; `cat` takes at most this many tensors.
TENSORS_PER_LAUNCH = (110, 64, 48, 36, 30)
GPU_BLOCKS, GPU_BLOCK, CAT = 320, 65_536, 128
NO_KERNEL = ("aten::empty", "aten::new_empty", "aten::detach", "prim::")


@dataclass(frozen=True)
class StepCount:
    """One step on a device, in numbers.

    Attributes:
        checks: When the host learns of a bad gradient: now, or late.
        waits: How often the host waits for the device.
        launches: Kernels.
        strided: Calls of `as_strided`.
        buffers: Parameter-sized buffers that are alive at the peak: weights, gradients and state.
    """

    method: str
    base: str
    checks: str
    waits: int
    launches: int
    strided: int
    buffers: float


def count_steps(shapes: Shapes) -> list[StepCount]:
    """Steps of the main methods on these parameters."""
    prompt = [count_step(method, shapes, base) for method in COUNTED for base in BASES]
    return [*prompt, *(count_step(m, shapes, "adamw", checks="late") for m in COUNTED)]


def count_step(
    method: str, shapes: Shapes, base: str = "sgd", *, devices: int = 1, **options: Any
) -> StepCount:
    """Count the third step of a method: the first ones set things up.

    With several devices, each has some parameters that follow each other.
    """
    with _fake_device() as host:
        places = [f"cuda:{i * devices // len(shapes)}" for i in range(len(shapes))]
        network = nn.ParameterList(
            [torch.empty(*shape, device=d) for shape, d in zip(shapes, places, strict=True)]
        )
        host.weights = list(network)
        optimizer = find_method(method)(
            BASES[base](network.parameters()), executor=sampa.Serial(network), seed=0, **options
        )
        optimizer.set_epoch(6)  # SAF and MESA only add their term after their first epochs
        for _ in range(2):
            host.step(optimizer)
        kept = vectors_of(optimizer._carried.method_state)
        alive = [list(network), dict(optimizer.base.state), *kept]
        with KernelCounter(alive) as counter:
            waits = host.step(optimizer)
        size = sum(p.nbytes for p in network)
    peak = round(counter.peak / size, 1)
    checks = options.get("checks", "now")
    return StepCount(method, base, checks, waits, counter.launches, counter.strided, peak)


def count_reduction(function: Callable[[list[Tensor]], Any], shapes: Shapes) -> StepCount:
    """Count a function of tensors, such as a norm."""
    with _fake_device():
        tensors = [torch.empty(*shape, device="cuda") for shape in shapes]
        size = sum(t.nbytes for t in tensors)
        with KernelCounter(tensors) as counter:
            function(tensors)
    return StepCount("", "", "", 0, counter.launches, counter.strided, counter.peak / size)


class Host(TorchFunctionMode):
    """The host's side of a step: hands out gradients, and counts what makes it wait.

    Attributes:
        weights: Those that get a gradient by a backward pass.
    """

    READS = (
        *(Tensor.item, Tensor.tolist, Tensor.cpu, Tensor.numpy),
        *(Tensor.__bool__, Tensor.__float__, Tensor.__int__, Tensor.__index__),
        *(Tensor.nonzero, torch.nonzero, Tensor.new_tensor, torch.tensor, torch.as_tensor),
    )

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Tensor] = []
        self.steps = 0
        self.waits = 0

    def step(self, optimizer: sampa.SharpnessAware) -> int:
        """Make a step; how often the host waited in it."""
        self.steps += 1
        self.waits = 0
        batch = torch.zeros(COUNTED_BATCH, device="cuda")
        optimizer.step(_detailed_loss, batch)
        return self.waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == Tensor.requires_grad.__get__:  # pyright: ignore[reportAttributeAccessIssue]
            return True  # also of a loss, which has no graph: nodes of a graph need a driver
        if func is Tensor.backward:
            for p in self.weights:
                p.grad = torch.empty_like(p)
            return None
        if func not in self.READS:
            return func(*args, **(kwargs or {}))
        if func in (Tensor.cpu, Tensor.nonzero, torch.nonzero):
            self.waits += args[0].device.type != "cpu"
            return func(*args, **(kwargs or {}))
        if func in (Tensor.new_tensor, torch.tensor, torch.as_tensor):
            made = func(*args, **(kwargs or {}))
            self.waits += made.device.type != "cpu"
            return made
        self.waits += args[0].device.type != "cpu"
        return _plausible(func, args[0])


def _plausible(func: Any, t: Tensor) -> Any:
    """A number that may be read out of a fake tensor."""
    if func is Tensor.tolist:
        return [1.0] * t.numel() if t.dim() else 1.0
    return {Tensor.__bool__: True, Tensor.__int__: 1, Tensor.__index__: 1}.get(func, 1.0)


def _detailed_loss(batch: Tensor) -> sampa.Loss:
    logits = batch.new_zeros(COUNTED_BATCH, COUNTED_CLASSES)
    targets = batch.new_zeros(COUNTED_BATCH, dtype=torch.long)
    return sampa.Loss(batch.new_zeros(()), batch, logits, targets, targets)


@contextmanager
def _fake_device() -> Iterator[Host]:
    """Fake CUDA tensors, in a build of torch that may have no driver, generators or events."""
    host = Host()

    class Arriving:
        """Numbers on their way: the host waits for those of the step at hand only."""

        def __init__(self, numbers: Tensor) -> None:
            self._numbers, self._step = numbers, host.steps

        def read(self) -> list[float]:
            host.waits += self._step == host.steps
            return [1.0] * self._numbers.numel()

    with ExitStack() as stack:
        stack.enter_context(patch.object(record, "Readback", Arriving))
        stack.enter_context(patch.object(evaluate, "seeded", lambda *_: nullcontext()))
        # Plain tensors are copied together, subclasses one by one; fake ones stand for plain ones.
        stack.enter_context(patch.object(lookahead, "Tensor", FakeTensor))
        stack.enter_context(FakeTensorMode())
        yield stack.enter_context(host)


class KernelCounter(TorchDispatchMode):
    """Counts launches of kernels, and the bytes that are alive at once.

    Args:
        alive: What is in memory already.
        on_cpu: Whether to look at the memory of the host instead of a device's.
    """

    def __init__(self, alive: Sequence[Any], *, on_cpu: bool = False) -> None:
        super().__init__()
        self._on_cpu = on_cpu
        self.launches = 0
        self.strided = 0
        self.peak = 0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._most = 0  # bytes that may be alive: some of them may be gone
        self._note(tree_leaves([list(v) if isinstance(v, Vector) else v for v in alive]))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.strided += func.name() == "aten::as_strided"
        self.launches += launches_of(func, args, result)
        if not func.is_view:
            self._note([*tree_leaves((args, kwargs)), *tree_leaves(result)])
        return result

    def _note(self, values: list[Any]) -> None:
        for t in values:
            if isinstance(t, Tensor) and t.is_cpu == self._on_cpu:
                storage = t.untyped_storage()
                reference = StorageWeakRef(storage)
                if reference.cdata not in self._alive:
                    self._alive[reference.cdata] = reference, storage.nbytes()
                    self._most += storage.nbytes()
        if self._most > self.peak:
            self._alive = {k: v for k, v in self._alive.items() if not v[0].expired()}
            self._most = sum(size for _, size in self._alive.values())
            self.peak = max(self.peak, self._most)


def launches_of(func: Any, args: Any, result: Any) -> int:
    """How many kernels an operator launches on a GPU, by the limits in torch's CUDA code."""
    name = func.name()
    if func.is_view or name.startswith(NO_KERNEL):
        return 0
    if name.startswith(("aten::cat", "aten::stack")):
        return math.ceil(len(args[0]) / CAT)
    if not name.startswith(("aten::_foreach", "aten::_fused")):
        return int(any(t.device.type != "cpu" for t in _tensors((args, result))))
    lists = [a for a in args if isinstance(a, list | tuple) and len(_tensors(a)) > 0]
    if isinstance(result, list | tuple) and not name.endswith("_") and "norm" not in name:
        lists.append(result)
    most = TENSORS_PER_LAUNCH[min(len(lists), len(TENSORS_PER_LAUNCH)) - 1]
    blocks = sum(math.ceil(t.numel() / GPU_BLOCK) for t in _tensors(lists[0]))
    parts = max(math.ceil(len(lists[0]) / most), math.ceil(blocks / GPU_BLOCKS))
    return parts + ("norm" in name)  # norms of blocks are joined by one more


def _tensors(values: Any) -> list[Tensor]:
    return [t for t in tree_leaves(values) if isinstance(t, Tensor)]
