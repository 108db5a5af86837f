"""What each method costs, counted by running it on a problem with two weights."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sampa.catalog import METHODS, Factory
from sampa.execution.lookahead import parameters_of
from sampa.execution.serial import Serial
from sampa.loss import Loss
from sampa.messages import described
from sampa.optimizer import SharpnessAware
from sampa.record import StepRecord

UPDATES = 20  # enough for LookSAM's k = 5 to come round several times


class ScaleNorm(nn.Module):
    """One weight that counts as a normalization layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.7]))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


@dataclass(frozen=True)
class Cost:
    """One method, with counts per update after the first.

    Attributes:
        name: As on the command line.
        summary: One line.
        probes: Gradients.
        rounds: Sequential gradients, the paper's temporal cost.
        memory: Weight-sized copies that live through a step: the saved weights, and what the
            method keeps between steps.
        hyperparameters: The defaults.
        source: Where the defaults come from, as the factory's docstring says.
    """

    name: str
    summary: str
    probes: float
    rounds: float
    memory: float
    hyperparameters: dict[str, Any]
    source: str


def survey() -> list[Cost]:
    """All methods, in the order of METHODS."""
    return [measure(name, factory) for name, factory in METHODS.items()]


def probes_per_round(factory: Factory) -> int:
    """How many gradients of a step may run at once: 2 for SAMPa, 1 for SAM."""
    base = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    return factory(base, executor=Serial()).method.probes_per_round


def measure(name: str, factory: Factory) -> Cost:
    """Run a method on the two-weight problem and count."""
    records, optimizer = _run(factory, UPDATES + 1)
    counted = records[1:]  # the first update may also set things up
    doc = inspect.getdoc(factory) or ""
    return Cost(
        name=name,
        summary=doc.partition("\n")[0],
        probes=_mean([r.probes for r in counted]),
        rounds=_mean([r.rounds for r in counted]),
        memory=_copies(optimizer),
        hyperparameters=hyperparameters(factory),
        source=re.findall(r"^Defaults: (.+)\.$", doc, flags=re.MULTILINE)[0],
    )


def _run(factory: Factory, updates: int) -> tuple[list[StepRecord], SharpnessAware]:
    """The records of some updates on the two-weight problem."""
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(1, 1, bias=False)
    nn.init.constant_(linear.weight, 0.5)
    model = nn.Sequential(linear, ScaleNorm())
    base = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    optimizer = factory(base, executor=Serial(model), seed=0)
    records: list[StepRecord] = []
    while len(records) < updates:
        optimizer.step(_two_weight_loss(model), torch.randn(4, 1, generator=generator))
        if optimizer.last is not None and optimizer.last.updated:
            records.append(optimizer.last)
    return records, optimizer


def hyperparameters(factory: Factory) -> dict[str, Any]:
    """A method's own arguments and their defaults, as values that JSON can hold."""
    _base, *own, _options = inspect.signature(factory).parameters.values()
    return {p.name: described(p.default) for p in own}


def _two_weight_loss(model: nn.Module) -> Any:
    def loss_fn(x: Tensor) -> Loss:
        score = model(x)
        logits = torch.cat([score, -score], dim=1)
        targets = torch.zeros(len(x), dtype=torch.long)
        per_sample = nn.functional.cross_entropy(logits, targets, reduction="none")
        return Loss(per_sample.mean(), per_sample, logits, targets, torch.arange(len(x)))

    return loss_fn


def _copies(optimizer: SharpnessAware) -> float:
    """Weight-sized copies: moved weights (if any probe moved) and the method's vectors."""
    size = sum(p.numel() for p in parameters_of(optimizer))
    packed = optimizer.state_dict()["sampa"]["method_state"].values()
    kept = sum(
        t.numel()
        for value in packed
        if isinstance(value, dict)
        for vector in value.get("vectors") or [value["vector"]]
        for t in vector
        if t is not None
    )
    return optimizer.saved_copies + kept / size


def _mean(values: list[int]) -> float:
    mean = sum(values) / len(values)
    return int(mean) if mean.is_integer() else round(mean, 2)
