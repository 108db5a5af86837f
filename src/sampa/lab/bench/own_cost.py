"""What a step costs beyond its gradients, which are free here: a function hands them out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

import sampa
from sampa.catalog import find_method
from sampa.lab.bench.contenders import MethodStep, Step, foreign_step, has_foreign_sam
from sampa.lab.bench.counting import Counter
from sampa.lab.bench.workloads import Bench

NUMBERS_OF_PARAMETERS = (10**5, 10**6, 10**7, 10**8)
FOREIGN_SAM = "pytorch_optimizer_sam"
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

Shapes = Sequence[Sequence[int]]


class FreeGradients(nn.Module):
    """Parameters whose loss is constant and whose gradients are given beforehand."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(*shape) for shape in shapes])
        self.gradients = [torch.randn_like(p) for p in self.weights]

    def forward(self, _batch: Any = None) -> Tensor:
        return _HandOut.apply(self.gradients, *self.weights)


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

    def milliseconds(self) -> float:
        """The time of a step less that of its gradients."""
        return _milliseconds(self.step) - self.gradients * _milliseconds(self.gradient)

    def cost(self, milliseconds: float) -> OwnCost:
        """With kernels and bytes, counted in one more step."""
        with Counter() as whole:
            self.step()
        with Counter() as free:
            self.gradient()
        size = sum(p.numel() for p in self.model.weights)
        return OwnCost(
            method=self.method,
            parameters=size,
            kernels=whole.kernels - self.gradients * free.kernels,
            bytes_per_parameter=(whole.bytes - self.gradients * free.bytes) / size,
            milliseconds=milliseconds,
        )


def own_costs(bench: Bench) -> list[OwnCost]:
    """For the network's parameters, and for growing numbers of them; a program for one rank."""
    shapes = [tuple(p.shape) for p in bench.model().parameters()]
    methods = [*LEAST_BYTES, *([FOREIGN_SAM] if has_foreign_sam() else [])]
    found = costs([subject(method, shapes) for method in methods], repeats=50)
    for parameters in NUMBERS_OF_PARAMETERS:
        for method in ("sam", "sampa"):
            found += costs([subject(method, even_shapes(parameters))], repeats=5)
    return found


def subject(method: str, shapes: Shapes) -> Subject:
    """One of our methods, or pytorch_optimizer's SAM."""
    model = FreeGradients(shapes)
    base = SGD(model.parameters(), lr=1e-6, momentum=0.9, weight_decay=5e-4, fused=True)
    if method == FOREIGN_SAM:
        step = foreign_step(model, base, FreeGradients.forward, repeat(()))
        step()
        return Subject(method, model, step, gradients=2)
    optimizer = find_method(method)(base, executor=sampa.Serial(model))
    step = MethodStep(optimizer, model, repeat(()))
    for _ in range(2):  # SAMPa's first call makes no update
        step()
    assert optimizer.last is not None
    return Subject(method, model, step, optimizer.last.probes)


def costs(subjects: Sequence[Subject], repeats: int) -> list[OwnCost]:
    """Of each of them, measured in turns (A, B, C, A, B, C, ...)."""
    turns = [[s.milliseconds() for s in subjects] for _ in range(repeats)]
    return [
        s.cost(statistics.median(times))
        for s, times in zip(subjects, zip(*turns, strict=True), strict=True)
    ]


def _milliseconds(work: Step) -> float:
    work()  # as in training; before, another has used the caches
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def even_shapes(parameters: int, tensors: int = 50) -> list[tuple[int, ...]]:
    """The shapes of tensors of equal size with that many parameters in all."""
    return [(parameters // tensors,)] * tensors
