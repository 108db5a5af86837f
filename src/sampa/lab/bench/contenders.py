"""Who takes part in a benchmark: each is a way to make one step of training.

All of them train the same network on the same batches with the same base optimizer. Those on one
device run on the first rank while the others sleep.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import sampa
from sampa.lab.bench.problems import Problem, detailed_loss, training_loss
from sampa.names import find_method

Step = Callable[[], Any]


LATE_EPOCH = 6  # SAF and MESA only add their term to the loss after their first epochs


class Place(enum.Enum):
    """Which ranks take part, and on what part of a batch."""

    ONE_DEVICE = "one device"
    BRANCHES = "two devices"
    HALF_BATCHES = "two, half batches"


@dataclass(frozen=True)
class Bench:
    """A problem, and where this rank works on it."""

    problem: Problem
    base: str
    device: torch.device
    rank: int
    ranks: int

    def model(self) -> nn.Module:
        return self.problem.network(self.device)

    def optimizer(self, model: nn.Module) -> Optimizer:
        if self.base == "adamw":
            return AdamW(model.parameters(), lr=1e-4, fused=True)
        return SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4, fused=True)

    def batches(self, *, halves: bool = False) -> Iterator[Any]:
        part, parts = (self.rank, self.ranks) if halves else (0, 1)
        return self.problem.batches(self.device, part, parts)


@dataclass(frozen=True)
class Contender:
    """One way to train.

    Attributes:
        name: In the results.
        place: Where it runs.
        make: Prepares it on this rank; calling the result makes one step.
        steps: How many steps are timed as one turn, where a method's steps differ.
    """

    name: str
    place: Place
    make: Callable[[Bench], Step]
    steps: int = 1


def gradient_alone(bench: Bench) -> Step:
    """One forward and one backward pass: what every step needs at the least."""
    model, batches = bench.model(), bench.batches()

    def step() -> None:
        model.zero_grad()
        training_loss(model, next(batches)).backward()

    return step


def bare_sgd(bench: Bench) -> Step:
    """Forward, backward and the base optimizer's step, with no library between them."""
    model, batches = bench.model(), bench.batches()
    base = bench.optimizer(model)

    def step() -> None:
        base.zero_grad()
        training_loss(model, next(batches)).backward()
        base.step()

    return step


@dataclass
class MethodStep:
    """One call of `optimizer.step`."""

    optimizer: sampa.SharpnessAware
    loss_fn: Callable[[Any], Tensor | sampa.Loss]
    batches: Iterator[Any]

    def __call__(self) -> Tensor:
        return self.optimizer.step(self.loss_fn, next(self.batches))


def with_method(
    bench: Bench,
    method: str,
    place: Place = Place.ONE_DEVICE,
    loss: Callable[[nn.Module, Any], Tensor | sampa.Loss] = training_loss,
    **options: Any,
) -> MethodStep:
    """A step of one of our methods."""
    model = bench.model()
    branches = bench.ranks if place is Place.BRANCHES else 1
    alone = place is Place.ONE_DEVICE
    executor = sampa.Serial(model) if alone else sampa.distribute(model, branches)
    optimizer = find_method(method)(bench.optimizer(model), executor=executor, **options)
    optimizer.set_epoch(LATE_EPOCH)
    network: Any = executor.model
    batches = bench.batches(halves=place is Place.HALF_BATCHES)
    return MethodStep(optimizer, partial(loss, network), batches)


@dataclass
class OtherSAM:
    """SAM of the package pytorch_optimizer, as its documentation says to use it."""

    model: Any
    base: Optimizer
    loss: Callable[[Any, Any], Tensor]
    batches: Iterator[Any]

    def __post_init__(self) -> None:
        from pytorch_optimizer import SAM

        kept = ("lr", "momentum", "weight_decay", "fused")
        options = {name: self.base.defaults[name] for name in kept if name in self.base.defaults}
        self.optimizer: Any = SAM(self.model.parameters(), type(self.base), rho=0.05, **options)

    def __call__(self) -> None:
        batch = next(self.batches)
        self.loss(self.model, batch).backward()
        self.optimizer.first_step(zero_grad=True)
        self.loss(self.model, batch).backward()
        self.optimizer.second_step(zero_grad=True)


def other_sam(bench: Bench) -> Step:
    """A step of pytorch_optimizer's SAM."""
    model = bench.model()
    return OtherSAM(model, bench.optimizer(model), training_loss, bench.batches())


def contender(name: str) -> Contender:
    """The one of that name."""
    return next(c for c in contenders() if c.name == name)


def contenders(*, all_methods: bool = True) -> list[Contender]:
    """Everyone who takes part; the methods of the paper's time table if `all_methods`."""
    one, branches, halves = Place
    main = [  # those that are compared stand side by side: a disturbance is then shared
        Contender("sgd", one, bare_sgd),
        Contender("sam", one, partial(with_method, method="sam")),
        Contender("sampa", branches, partial(with_method, method="sampa", place=branches)),
        Contender("limit", branches, gradient_alone),
        Contender("ddp_sam", halves, partial(with_method, method="sam", place=halves)),
        Contender("ddp_sgd", halves, partial(with_method, method="base", place=halves)),
    ]
    if find_spec("pytorch_optimizer") is not None:
        main.append(Contender("pytorch_optimizer_sam", one, other_sam))
    efficient = [
        Contender("looksam", one, partial(with_method, method="looksam"), steps=5),
        Contender("ae-sam", one, partial(with_method, method="ae-sam"), steps=5),
        Contender("saf", one, partial(with_method, method="saf", loss=detailed_loss)),
        Contender("mesa", one, partial(with_method, method="mesa", loss=detailed_loss)),
        Contender("esam", one, partial(with_method, method="esam", loss=detailed_loss, gamma=0.5)),
    ]
    return main + efficient if all_methods else main
