"""What an exchange of gradients between ranks does, whichever way they travel."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Protocol

import torch
from torch import Tensor

from sampa.execution.evaluate import Evaluator, Pass
from sampa.execution.parallel.agreement import BatchMark
from sampa.method import Probe
from sampa.vectors.vector import Vector

ParameterNames = Mapping[Tensor, str]
"""The name of each parameter of the model."""

Tell = Callable[[], BatchMark | None]
"""What this rank has to say to the others in the place of its batch's mark, if anything."""


class Sharing(enum.Flag):
    """Which gradients travel in a pass; both may."""

    NOTHING = 0
    GATHER = enum.auto()  # branches answer different probes, and all learn all answers
    AVERAGE = enum.auto()  # the data ranks of a branch share their gradient


class Exchange(Protocol):
    """Gives every rank the gradient of every branch, bit for bit."""

    def begin(self, sharing: Sharing) -> None:
        """Get ready for one backward pass."""
        ...

    def announce(self, loss: Tensor, mark: BatchMark | None = None) -> None:
        """Take the loss for the other ranks, before the backward pass.

        The mark travels with it where branches do not gather.
        """
        ...

    def collect(
        self, evaluator: Evaluator, branches: int, mark: BatchMark | None = None
    ) -> list[Vector]:
        """The gradients of the first `branches` branches, taken away from the parameters.

        Args:
            evaluator: Of this step.
            branches: How many gradients to collect.
            mark: Of the batch, which travels with the loss where branches gather.
        """
        ...

    def losses(self, branches: int) -> list[Tensor]:
        """The losses that the first `branches` branches announced."""
        ...

    def marks(self) -> Tensor:
        """The mark of every rank, after `losses`: for each branch, those of its data ranks."""
        ...

    def close(self) -> None:
        """Leave the parameters alone: another exchange takes over."""
        ...


def settle_buckets(
    exchange: Exchange, probe: Probe, number: int, evaluator: Evaluator, around: Pass
) -> None:
    """Let DDP arrange its buckets, with a pass whose result is dropped.

    It does so after the first exchange, in the order in which gradients were ready. A sum over
    three or more ranks depends on the place in a bucket, so a resumed run, which starts with
    the first arrangement again, would differ from one that was not interrupted.
    """
    mode = dataclasses.replace(probe.mode, statistics=False)
    rehearsal = dataclasses.replace(probe, mode=mode, objective=None, observe=None)
    exchange.begin(Sharing.AVERAGE)
    evaluator.backward(rehearsal, number, around)
    exchange.collect(evaluator, branches=1)


def travelling(own: torch.dtype, asked: torch.dtype | None) -> torch.dtype:
    """The dtype in which a gradient goes to the other branches: none that takes more bytes."""
    return own if asked is None or asked.itemsize >= own.itemsize else asked


def refuse_unused(names: ParameterNames, unused: Sequence[Tensor]) -> NoReturn:
    """Refuse to go on with a gradient of which others expect more, naming the first parameter."""
    raise RuntimeError(
        f"no gradient arrived for {names[unused[0]]!r} and {len(unused) - 1} other "
        "parameters; if they do not take part in every pass, use "
        "sampa.distribute(model, find_unused_parameters=True); if they were replaced in the model, "
        "give the optimizer the new ones"
    )


def refuse_uncalled() -> NoReturn:
    """Refuse to wait for an exchange that this rank does not make."""
    raise RuntimeError(
        "no gradient was exchanged: loss_fn must call executor.model, not the model that "
        "was passed to distribute"
    )


def gradient_stride(p: Tensor) -> tuple[int, ...]:
    """The strides that autograd and DDP give a gradient: its parameter's, if it has no gaps."""
    dense = torch.empty_like(p, device="meta").stride() == p.stride()
    return p.stride() if dense else torch.empty(p.shape, device="meta").stride()
