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

from torch import Tensor, nn

import sampa
from sampa.catalog import find_method
from sampa.lab.bench.workloads import Bench, detailed_loss

Step = Callable[[], Any]

LATE_EPOCH = 6  # SAF and MESA only add their term to the loss after their first epochs


class Placement(enum.Enum):
    """Which ranks take part, and on what part of a batch."""

    ONE_DEVICE = "one device"
    BRANCHES = "two devices"
    HALF_BATCHES = "two, half batches"


@dataclass(frozen=True)
class Contender:
    """One way to train.

    Attributes:
        name: In the results.
        placement: Where it runs.
        make: Prepares it on this rank; calling the result makes one step.
        steps: How many steps are timed as one turn, where a method's steps differ.
    """

    name: str
    placement: Placement
    make: Callable[[Bench], Step]
    steps: int = 1


def bare_step(bench: Bench, *, update: bool = True) -> Step:
    """Forward and backward, and the base optimizer's step, with no library between them.

    Args:
        bench: What is trained.
        update: Without it, this is the gradient alone: what every step needs at the least.
    """
    model, batches = bench.model(), bench.batches()
    base = bench.optimizer(model)

    def step() -> None:
        base.zero_grad()
        bench.loss(model, next(batches)).backward()
        if update:
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


def of_method(
    name: str,
    method: str = "",
    placement: Placement = Placement.ONE_DEVICE,
    steps: int = 1,
    loss: Callable[[nn.Module, Any], sampa.Loss] | None = None,
    **options: Any,
) -> Contender:
    """A contender that trains with one of our methods, by default the one of its name.

    Args:
        name: In the results.
        method: As the catalog has it.
        placement: Where it runs.
        steps: How many steps are timed as one turn.
        loss: In place of the workload's own.
        options: Of the method.
    """

    def make(bench: Bench) -> MethodStep:
        model = bench.model()
        branches = bench.ranks if placement is Placement.BRANCHES else 1
        alone = placement is Placement.ONE_DEVICE
        executor = sampa.Serial(model) if alone else sampa.distribute(model, branches)
        optimizer = find_method(method or name)(
            bench.optimizer(model), executor=executor, **options
        )
        optimizer.set_epoch(LATE_EPOCH)
        network: Any = executor.model
        batches = bench.batches(halves=placement is Placement.HALF_BATCHES)
        return MethodStep(optimizer, partial(loss or bench.loss, network), batches)

    return Contender(name, placement, make, steps)


def foreign_step(bench: Bench) -> Step:
    """A step of SAM of the package pytorch_optimizer, as its documentation says to use it."""
    from pytorch_optimizer import SAM

    model, batches = bench.model(), bench.batches()
    base = bench.optimizer(model)
    kept = base.defaults.keys() & {"lr", "momentum", "weight_decay", "fused"}
    options = {name: base.defaults[name] for name in kept}
    optimizer: Any = SAM(model.parameters(), type(base), rho=0.05, **options)

    def step() -> None:
        batch = next(batches)
        bench.loss(model, batch).backward()
        optimizer.first_step(zero_grad=True)
        bench.loss(model, batch).backward()
        optimizer.second_step(zero_grad=True)

    return step


# Those that are compared stand side by side: a disturbance is then shared.
MAIN = (
    Contender("sgd", Placement.ONE_DEVICE, bare_step),
    of_method("sam"),
    of_method("sampa", placement=Placement.BRANCHES),
    Contender("limit", Placement.BRANCHES, partial(bare_step, update=False)),
    of_method("ddp_sam", "sam", Placement.HALF_BATCHES),
    of_method("ddp_sgd", "base", Placement.HALF_BATCHES),
)
FOREIGN_SAM = "pytorch_optimizer_sam"
FOREIGN = (Contender(FOREIGN_SAM, Placement.ONE_DEVICE, foreign_step),)
TIME_TABLE = (  # the other methods of the paper's table of times
    of_method("looksam", steps=5),
    of_method("ae-sam", steps=5),
    of_method("saf", loss=detailed_loss),
    of_method("mesa", loss=detailed_loss),
    of_method("esam", loss=detailed_loss, gamma=0.5),
)


def contenders(*, all_methods: bool = True) -> dict[str, Contender]:
    """All that take part, by name; the other methods of the paper's table if `all_methods`."""
    foreign = FOREIGN if find_spec("pytorch_optimizer") is not None else ()
    return {c.name: c for c in (*MAIN, *foreign, *(TIME_TABLE if all_methods else ()))}
