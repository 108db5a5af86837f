"""What a step costs beyond its gradients, which are free here: a function hands them out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn

from sampa.lab.bench.contenders import (
    FOREIGN_SAM,
    MethodStep,
    Step,
    bare_step,
    contenders,
    foreign_step,
    of_method,
)
from sampa.lab.bench.meters import Meter, meter_of
from sampa.lab.bench.workloads import Bench, Workload
from sampa.lab.progress import Bar
from sampa.torch_private import TorchDispatchMode, declared_arguments, tree_leaves

NUMBERS_OF_PARAMETERS = (10**5, 10**6, 10**7, 10**8)
FLOAT = 4
CPU = torch.device("cpu")
LEAST_BYTES = {
    # The base optimizer's step reads x, m and G and writes x and m.
    "base": 5 * FLOAT,
    # Two norms and a product (4), x~ written beside x (3).
    "sam": (5 + 4 + 3) * FLOAT,
    # The same (7), y written beside x (with momentum, 4), the mix (3).
    "sampa": (5 + 4 + 3 + 4 + 3) * FLOAT,
}
"""Bytes per parameter that a step with momentum moves if it makes no copy to be safe."""

Shapes = Sequence[Sequence[int]]


class _HandOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *weights: Tensor) -> Tensor:
        ctx.gradients = gradients
        return torch.zeros((), device=weights[0].device)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients


@dataclass(frozen=True)
class FreeBench(Bench):
    """A bench whose network is a list of parameters, with gradients that are given beforehand."""

    network: nn.ParameterList
    gradients: list[Tensor]

    def model(self) -> nn.Module:
        return self.network

    def batches(self, *, halves: bool = False) -> Iterator[Any]:
        return repeat(())

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return _HandOut.apply(self.gradients, *self.network)


@dataclass(frozen=True)
class OwnCost:
    """What one step costs beyond its gradients, in one process with fused SGD and momentum."""

    method: str
    parameters: int
    kernels: int
    bytes_per_parameter: float
    milliseconds: float


@dataclass(frozen=True)
class CostSubject:
    """A method that makes steps with free gradients.

    Attributes:
        parameters: How many it trains.
        gradient: Computes one gradient alone, which a step's cost contains too.
        gradients: How many of them a step takes.
        meter: Of the device that it works on.
    """

    method: str
    parameters: int
    step: Step
    gradient: Step
    gradients: int
    meter: Meter

    def milliseconds(self) -> float:
        """The time of a step less that of its gradients."""
        return self._time(self.step) - self.gradients * self._time(self.gradient)

    def _time(self, work: Step) -> float:
        work()  # as in training; before, another has used the caches
        return self.meter.seconds(work) * 1e3

    def cost(self, milliseconds: float) -> OwnCost:
        """With kernels and bytes, counted in one more step."""
        with Counter() as whole:
            self.step()
        with Counter() as free:
            self.gradient()
        kernels = whole.kernels - self.gradients * free.kernels
        moved = (whole.bytes - self.gradients * free.bytes) / self.parameters
        return OwnCost(self.method, self.parameters, kernels, moved, milliseconds)


def own_costs(bench: Bench) -> list[OwnCost]:
    """For the network's parameters, and for growing numbers of them; a program for one rank."""
    shapes = [tuple(p.shape) for p in bench.model().parameters()]
    methods = [*LEAST_BYTES, *contenders().keys() & {FOREIGN_SAM}]
    sizes = [(parameters, m) for parameters in NUMBERS_OF_PARAMETERS for m in ("sam", "sampa")]
    with Bar("steps beyond their gradients", 1 + len(sizes)) as bar:
        found = costs([subject(method, shapes, bench.device) for method in methods], repeats=50)
        bar.advance()
        for parameters, method in sizes:
            found += costs([subject(method, even_shapes(parameters), bench.device)], repeats=5)
            bar.advance()
    return found


def subject(method: str, shapes: Shapes, device: torch.device = CPU) -> CostSubject:
    """One of our methods in one process, or pytorch_optimizer's SAM."""
    network = nn.ParameterList([torch.randn(*shape, device=device) for shape in shapes])
    gradients = [torch.randn_like(p) for p in network]
    bench = FreeBench(Workload("mlp", 2), device, 0, 1, network, gradients)
    step = foreign_step(bench) if method == FOREIGN_SAM else of_method(method).make(bench)
    for _ in range(2):  # SAMPa's first call makes no update
        step()
    size = sum(p.numel() for p in network)
    last = step.optimizer.last if isinstance(step, MethodStep) else None
    probes = 2 if last is None else last.probes
    gradient = bare_step(bench, update=False)
    return CostSubject(method, size, step, gradient, probes, meter_of(device))


def costs(subjects: Sequence[CostSubject], repeats: int) -> list[OwnCost]:
    """Of each of them, measured in turns (A, B, C, A, B, C, ...)."""
    turns = [[s.milliseconds() for s in subjects] for _ in range(repeats)]
    return [
        s.cost(statistics.median(times))
        for s, times in zip(subjects, zip(*turns, strict=True), strict=True)
    ]


def even_shapes(parameters: int, tensors: int = 50) -> list[tuple[int, ...]]:
    """The shapes of tensors of equal size with that many parameters in all."""
    return [(parameters // tensors,)] * tensors


# ---- kernels and bytes, counted exactly: what goes into and comes out of every operator -------

NO_TRAFFIC = ("aten::empty", "aten::new_empty", "aten::detach")
OVERWRITES = ("aten::copy_", "aten::_foreach_copy_", "aten::zero_", "aten::fill_")


class Counter(TorchDispatchMode):
    """Counts the operators that run inside the block, and the bytes that they read and write.

    Views move nothing. How often a value really crosses the memory bus is the cache's affair.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kernels = 0
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and not func.name().startswith(NO_TRAFFIC):
            self.kernels += 1
            self.bytes += _read(func, args, kwargs) + _written(func, args, result)
        return result


def _read(func: Any, args: Any, kwargs: Any) -> int:
    overwritten = _changed(func, args) if func.name().startswith(OVERWRITES) else []
    given = {name: value for name, value in (kwargs or {}).items() if name != "out"}
    return _size((args, given)) - _size(overwritten)


def _written(func: Any, args: Any, result: Any) -> int:
    """What it changes in place, or what it makes."""
    return _size(_changed(func, args) or result)


def _changed(func: Any, args: Any) -> list[Any]:
    """The arguments that an operator writes to, by its schema."""
    pairs = zip(args, declared_arguments(func), strict=False)
    return [value for value, a in pairs if a.alias_info is not None and a.alias_info.is_write]


def _size(values: Any) -> int:
    return sum(t.nbytes for t in tree_leaves(values) if isinstance(t, Tensor))
