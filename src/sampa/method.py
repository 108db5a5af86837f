"""The nouns of the library: probe, round, method, executor.

A **method** yields **rounds** of independent gradient **probes**; an **executor** answers a round,
in one process or on several ranks at once. SAM is two rounds of one probe, SAMPa one round of two:
the paper's number of sequential gradients is the number of rounds.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from sampa.execution.layers import ParameterInfo
from sampa.losses import Loss, Objective
from sampa.messages import Rho
from sampa.vectors.vector import Vector, Weights

Move = Callable[[Weights], None]
"""Changes the weights in place, starting at x_t. Only the rank that answers the probe makes it."""


class Batch(enum.Enum):
    """Which batch a probe is evaluated on."""

    HELD = "held"  # B_t, kept from the call before
    INCOMING = "incoming"  # B_{t+1} for SAMPa, B_t for methods that hold nothing


HELD, INCOMING = Batch.HELD, Batch.INCOMING


@dataclass(frozen=True, slots=True)
class Probe:
    """A request for one gradient.

    Attributes:
        move: How to leave x_t, which changes the weights it is given in place. None stays at x_t.
        batch: The batch to evaluate.
        perturbed: The point is an ascent point; its loss enters the sharpness gap.
        statistics: Whether this pass counts in BatchNorm's running statistics. None means "if it is
            not perturbed", so that each batch counts once, next to the weights that are evaluated.
        part: Which samples of the batch to evaluate; None takes them all.
        share: The share of the batch's samples that are evaluated, which weights the probe in the
            batch's loss; 0 leaves it out of the step's record (a pass for another purpose).
        objective: What to differentiate instead of the training loss.
        observe: Told what `loss_fn` returned, detached, once per micro-batch, where the probe is
            evaluated; so only a probe that is alone in its round may carry it.
        wrt: Which tensors need a gradient; None means all. The others' are absent.
        backward: False only runs the forward pass, for `observe`.
        evaluation: Let BatchNorm and dropout behave as in evaluation.
        buffers: Values for the model's floating-point buffers during this pass.
        local: Leave out the average over data ranks.
    """

    move: Move | None = None
    batch: Batch = INCOMING
    perturbed: bool = False
    statistics: bool | None = None
    part: Callable[[Any], Any] | None = None
    share: float = 1.0
    objective: Objective | None = None
    observe: Callable[[Loss], None] | None = None
    wrt: Sequence[bool] | None = None
    backward: bool = True
    evaluation: bool = False
    buffers: Vector | None = None
    local: bool = False

    @property
    def counts_statistics(self) -> bool:
        return not self.perturbed if self.statistics is None else self.statistics


Round = tuple[Probe, ...]
"""Probes that do not depend on each other, and so may be computed at the same time."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a method returns: the gradient for the base optimizer, and its own next state.

    Attributes:
        gradient: G_t, or None where the weights stay (the first call of SAMPa only computes g_0).
        state: The method's state for the next step.
        then: A change of the weights after the base optimizer's step.
    """

    gradient: Vector | None
    state: Any = None
    then: Move | None = None


Rounds = Generator[Round, Sequence[Vector], Update]


@dataclass(frozen=True, slots=True)
class Context:
    """All that a method may know about the step at hand: numbers and vectors.

    Attributes:
        t: The number of updates made so far.
        epoch: As told with `optimizer.set_epoch`, 0 before.
        x: The weights x_t; read them, do not change them.
        rho: ρ for each tensor (groups may differ), already evaluated at t.
        lr: η for each tensor.
        weight_decay: The base optimizer's weight decay for each tensor.
        eps: Added to a norm before dividing by it.
        sync_perturbation: Whether data ranks share the gradient that perturbs.
        lookahead: Peek: the move to where the base optimizer would step with a gradient.
        generator: A generator that depends on the run's seed and the step alone, the same on all
            ranks. Each call starts it anew.
        parameters: The name and kind of each parameter; None while the layers are not known.
        buffers: The model's floating-point buffers.
        momentum: The base optimizer's momentum (or Adam's first moment); None before it has one.
        batch_size: The number of samples in the incoming batch.
    """

    t: int
    epoch: int
    x: Weights
    rho: Sequence[float]
    lr: Sequence[float]
    weight_decay: Sequence[float]
    eps: float
    sync_perturbation: bool
    lookahead: Callable[[Vector], Move]
    generator: Callable[[], torch.Generator]
    parameters: Callable[[], Sequence[ParameterInfo] | None]
    buffers: Callable[[], Weights]
    momentum: Callable[[], Vector | None]
    batch_size: Callable[[], int]


class Method(Protocol):
    """A sharpness-aware method: pure maths that never sees a model, a rank or a file.

    Implementations are frozen dataclasses whose fields are the hyper-parameters.

    Attributes:
        rho: The perturbation radius, a number or a function of t; groups may override it.
        holds_batch: Whether the incoming batch is kept, as HELD, for the next call.
    """

    @property
    def rho(self) -> Rho: ...

    @property
    def holds_batch(self) -> bool: ...

    def initial_state(self) -> Any:
        """The state before the first batch: a dataclass of vectors and numbers, or None."""
        ...

    def rounds(self, context: Context, state: Any) -> Rounds:
        """Yield rounds, receive one gradient per probe, return the update."""
        ...

    def after_skip(self, state: Any) -> Any:
        """The state to go on with after a step with a non-finite gradient was skipped."""
        ...
