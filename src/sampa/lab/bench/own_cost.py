"""What a step costs beyond its gradients, which are free here: a function hands them out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

import sampa
from sampa.lab.bench.contenders import MethodStep, OtherSAM, Step
from sampa.lab.bench.counting import Counter
from sampa.lab.bench.problems import Problem
from sampa.names import find_method

SIZES = (10**5, 10**6, 10**7, 10**8)
FLOAT = 4
LEAST_BYTES = {
    # The base optimizer's step reads x, m and G and writes x and m.
    "base": 5 * FLOAT,
    # Two norms and a product (4), x~ written beside x (3).
    "sam": (5 + 4 + 3) * FLOAT,
    # The same (7), y written beside x (with momentum, 4), the mix (3).
    "sampa": (5 + 4 + 3 + 4 + 3) * FLOAT,
}
"""Bytes per parameter that a step with momentum moves if it makes no copy to be safe."""


class FreeGradients(nn.Module):
    """Parameters whose loss is constant and whose gradients are there already."""

    def __init__(self, shapes: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(*shape) for shape in shapes])
        self.gradients = [torch.randn_like(p) for p in self.weights]

    def forward(self, _batch: Any = None) -> Tensor:
        return _HandOut.apply(self.gradients, *self.weights)

    def base(self) -> Optimizer:
        return SGD(self.parameters(), lr=1e-6, momentum=0.9, weight_decay=5e-4, fused=True)

    def size(self) -> int:
        return sum(p.numel() for p in self.weights)


class _HandOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *weights: Tensor) -> Tensor:
        ctx.gradients = gradients
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients


@dataclass(frozen=True)
class OwnCost:
    """What one step costs beyond its gradients, in one process with fused SGD and momentum."""

    method: str
    parameters: int
    kernels: int
    bytes_per_parameter: float
    milliseconds: float


@dataclass(frozen=True)
class Subject:
    """A method that makes steps with free gradients.

    Attributes:
        gradients: How many a step takes.
    """

    method: str
    model: FreeGradients
    step: Step
    gradients: int

    def gradient(self) -> None:
        """Only one gradient, which a step's cost contains too."""
        self.model.zero_grad()
        self.model().backward()


def own_costs(
    _rank: int, _ranks: int, device: torch.device, problem: Problem
) -> list[dict[str, Any]]:
    """For the network's parameters, and for growing numbers of them; a program for one rank."""
    shapes = [tuple(p.shape) for p in problem.network(device).parameters()]
    subjects = [subject(method, shapes) for method in LEAST_BYTES]
    if find_spec("pytorch_optimizer") is not None:
        subjects.append(other_sam(shapes))
    found = costs(subjects, repeats=50)
    for size in SIZES:
        for method in ("sam", "sampa"):
            found += costs([subject(method, even_shapes(size))], repeats=5)
    return [asdict(cost) for cost in found]


def subject(method: str, shapes: Sequence[Sequence[int]]) -> Subject:
    """One of our methods."""
    model = FreeGradients(shapes)
    optimizer = find_method(method)(model.base(), executor=sampa.Serial(model))
    step = MethodStep(optimizer, model, repeat(()))
    for _ in range(2):  # SAMPa's first call makes no update
        step()
    assert optimizer.last is not None
    return Subject(method, model, step, optimizer.last.probes)


def other_sam(shapes: Sequence[Sequence[int]]) -> Subject:
    """pytorch_optimizer's SAM."""
    model = FreeGradients(shapes)
    step = OtherSAM(model, model.base(), FreeGradients.forward, repeat(()))
    step()
    return Subject("pytorch_optimizer_sam", model, step, gradients=2)


def costs(subjects: Sequence[Subject], repeats: int) -> list[OwnCost]:
    """Of each of them, measured in turns (A, B, C, A, B, C, ...)."""
    turns = [[_milliseconds_beyond(s) for s in subjects] for _ in range(repeats)]
    return [
        _cost(s, statistics.median(times))
        for s, times in zip(subjects, zip(*turns, strict=True), strict=True)
    ]


def _cost(of: Subject, milliseconds: float) -> OwnCost:
    with Counter() as whole:
        of.step()
    with Counter() as free:
        of.gradient()
    return OwnCost(
        method=of.method,
        parameters=of.model.size(),
        kernels=whole.kernels - of.gradients * free.kernels,
        bytes_per_parameter=(whole.bytes - of.gradients * free.bytes) / of.model.size(),
        milliseconds=milliseconds,
    )


def _milliseconds_beyond(of: Subject) -> float:
    """A step less its gradients."""
    return _milliseconds(of.step) - of.gradients * _milliseconds(of.gradient)


def _milliseconds(work: Step) -> float:
    work()  # as in training; before, somebody else has used the caches
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def even_shapes(parameters: int, tensors: int = 50) -> list[tuple[int, ...]]:
    """So many parameters in tensors of equal size."""
    return [(parameters // tensors,)] * tensors
