"""What each method costs, counted by running it on a problem with two weights."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sampa.catalog import METHODS, Factory
from sampa.execution.lookahead import parameters_of
from sampa.execution.serial import Serial
from sampa.losses import Loss
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
        source: Where the defaults come from.
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
    return Cost(
        name=name,
        summary=SUMMARIES.get(name) or (inspect.getdoc(_function(factory)) or "").split("\n")[0],
        probes=_mean([r.probes for r in counted]),
        rounds=_mean([r.rounds for r in counted]),
        memory=_copies(optimizer),
        hyperparameters=hyperparameters(factory),
        source=SOURCES[name],
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
    given = factory.keywords if isinstance(factory, functools.partial) else {}
    parameters = list(inspect.signature(_function(factory)).parameters.values())[1:]  # not base
    own = [p for p in parameters if p.kind is not p.VAR_KEYWORD]  # not what every method takes
    return {p.name: described(given.get(p.name, p.default)) for p in own}


def _function(factory: Factory) -> Factory:
    return factory.func if isinstance(factory, functools.partial) else factory


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
    vectors = [v for value in packed if isinstance(value, dict) for v in _vectors(value)]
    kept = sum(t.numel() for v in vectors for t in v if t is not None)
    return optimizer.saved_copies + kept / size


def _vectors(packed: dict[str, Any]) -> list[Any]:
    return packed.get("vectors") or [packed["vector"]]


def _mean(values: list[int]) -> float:
    mean = sum(values) / len(values)
    return int(mean) if mean.is_integer() else round(mean, 2)


SUMMARIES = {  # of names that share a function with another
    "ssam-f": "SSAM: SAM's perturbation where the Fisher information is large.",
    "ssam-d": "SSAM: SAM's perturbation on a sparse mask that drops and grows entries.",
    "sampa-0": "SAMPa with λ = 0, the case with a convergence proof.",
    "sampa+asam": "SAMPa joined with ASAM: the perturbation scaled by the weights.",
    "sampa+msam": "SAMPa joined with mSAM: one perturbation per micro-batch.",
    "sampa+sam-on": "SAMPa joined with SAM-ON: normalization layers are perturbed.",
    "sampa+vasso": "SAMPa joined with VaSSO: along a moving average of gradients.",
    "sampa+bisam": "SAMPa joined with BiSAM: climbs a bound of the 0-1 loss.",
}

SOURCES = {
    "base": "no hyper-parameters of its own",
    "sam": "SAMPa paper, CIFAR-10",
    "sampa": "SAMPa paper, CIFAR-10: twice SAM's rho at lambda 0.2",
    "optgd": "no hyper-parameters of its own",
    "randsam": "rho as SAM",
    "optsam": "rho as SAM",
    "sam-db": "rho as SAM; the order of batches is our choice",
    "asam": "SAMPa paper (rho), authors' code (eta)",
    "msam": "SAMPa paper: micro-batches of 32",
    "sam-on": "SAMPa paper",
    "vasso": "SAMPa paper (theta); authors' code has 0.9",
    "bisam": "SAMPa paper: -log, mu 1",
    "looksam": "SAMPa paper (k, alpha); alpha was tuned for ViT",
    "ae-sam": "SAMPa paper (rho, delta); lambdas not checked against the original",
    "saf": "authors' example script",
    "mesa": "SAMPa paper (start, lambda, decay), authors' code (tau)",
    "esam": "SAMPa paper: SWP only, beta 0.5",
    "rst": "authors' example: p 0.6",
    "ssam-f": "authors' published runs: sparsity 0.5, 16 samples",
    "ssam-d": "authors' published runs: sparsity 0.5, drop rate 0.5",
    "penalty": "authors' recipes, and the SAMPa paper's 0.8 / 0.2 mix",
    "gsam": "third-party report of the ResNet setting",
    "friendly-sam": "authors' published run (lmbda), script (rho)",
    "momentum-sam": "authors' CIFAR-100 and ImageNet runs",
    "fisher-sam": "not checked against the original",
    "wsam": "authors' code",
    "async-sam": "rho as SAM; not checked against the original",
    "multi-step-sam": "rho as SAM; steps of rho/K are our choice",
    "sampa-0": "SAMPa paper, CIFAR-10: SAM's rho at lambda 0",
    "sampa+asam": "SAMPa paper: rho doubled, the rest as ASAM",
    "sampa+msam": "SAMPa paper: rho doubled, the rest as mSAM",
    "sampa+sam-on": "SAMPa paper: rho doubled, the rest as SAM-ON",
    "sampa+vasso": "SAMPa paper: rho doubled, the rest as VaSSO",
    "sampa+bisam": "SAMPa paper: rho doubled, the rest as BiSAM",
}
