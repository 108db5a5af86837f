"""The nouns of the library: probe, round, method, executor.

A **method** yields **rounds** of independent gradient **probes**; an **executor** answers a round,
in one process or on several ranks at once. SAM is two rounds of one probe, SAMPa one round of two:
the paper's number of sequential gradients is the number of rounds.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import operator
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

from sampa.loss import Loss, Objective
from sampa.messages import require, require_group
from sampa.vectors.random import RandomNumbers
from sampa.vectors.vector import Number, Vector, Weights, as_number

Move = Callable[[Weights], None]
"""Changes the weights in place, starting at x_t. Only the rank that answers the probe makes it."""

Rho = float | Callable[[int], float]
"""A perturbation radius: a number, or a function of the number of updates."""


def radius(rho: Rho, t: int) -> float:
    """ρ at step t, from a number or a function of t."""
    value = rho(t) if callable(rho) else rho
    if not (isinstance(value, Real) and 0 <= value < math.inf):
        require(f"rho({t})" if callable(rho) else "rho", value, False, "finite and >= 0")
    return float(value)


class Batch(enum.Enum):
    """Which batch a probe is evaluated on."""

    HELD = "held"
    INCOMING = "incoming"


HELD = Batch.HELD
"""B_t, kept from the call before."""

INCOMING = Batch.INCOMING
"""The batch that `step` was given: B_{t+1} for SAMPa, B_t for methods that hold nothing."""


class Role(enum.Enum):
    """What a probe's point is to the method."""

    CLEAN = "clean"
    ASCENT = "ascent"
    PERTURBED = "perturbed"


CLEAN = Role.CLEAN
"""The probe's loss is the step's loss, and enters the sharpness gap."""

ASCENT = Role.ASCENT
"""As CLEAN, and the gradient does nothing but perturb later in this step. With
`sync_perturbation=False` each data rank then keeps its own."""

PERTURBED = Role.PERTURBED
"""An ascent point. Its loss enters the sharpness gap, and BatchNorm does not count its pass."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Which samples of its batch a probe is evaluated on.

    Attributes:
        part: From the batch to the part that is evaluated; None takes all of it.
        share: The share of the batch's samples in that part, which weights the probe in the batch's
            loss; 0 leaves it out of the step's record (a pass for another purpose).
        number: Of a micro-batch: with `same_noise` each draws masks of its own.
    """

    part: Callable[[Any], Any] | None = None
    share: float = 1.0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Mode:
    """How the model behaves during a pass.

    Attributes:
        statistics: Whether the pass counts in BatchNorm's running statistics. None means "unless
            the point is perturbed", so that each batch counts once, next to the weights that are
            evaluated.
        evaluation: Let BatchNorm and dropout behave as in evaluation.
        buffers: Values for the model's floating-point buffers during the pass.
        backward: False only runs the forward pass, for `observe`.
    """

    statistics: bool | None = None
    evaluation: bool = False
    buffers: Vector | None = None
    backward: bool = True


@dataclass(frozen=True, slots=True)
class Probe:
    """A request for one gradient.

    Attributes:
        move: How to leave x_t, which changes the weights it is given in place. None stays at x_t.
        batch: The batch to evaluate.
        role: What the point is to the method: clean, clean for the ascent alone, or perturbed.
        samples: Which samples of the batch; all of them unless said otherwise.
        mode: How the model behaves: as in training unless said otherwise.
        objective: What to differentiate instead of the training loss.
        observe: Told what `loss_fn` returned, detached, once per micro-batch, where the probe is
            evaluated; so only a probe that is alone in its round may carry it.
        wrt: Which tensors need a gradient; None means all. The others' are absent.
    """

    move: Move | None = None
    batch: Batch = INCOMING
    role: Role = CLEAN
    samples: Samples = Samples()
    mode: Mode = Mode()
    objective: Objective | None = None
    observe: Callable[[Loss], None] | None = None
    wrt: Sequence[bool] | None = None

    @property
    def counts_statistics(self) -> bool:
        statistics = self.mode.statistics
        return self.role is not PERTURBED if statistics is None else statistics


Round = tuple[Probe, ...]
"""Probes that do not depend on each other, and so may be computed at the same time."""


@dataclass(frozen=True, slots=True)
class Update:
    """What a method returns: the gradient for the base optimizer, and its own next state.

    Attributes:
        gradient: G_t, or None where the weights stay (the first call of SAMPa only computes g_0).
        state: The method's state for the next step.
        then: What follows the base optimizer's step, such as a change of the weights. Not called
            if the step is dropped; with `checks="late"` it is, and its change of the weights
            undone.
        unclipped: What is added to the gradient after `max_norm` has clipped it, such as a decay.
    """

    gradient: Vector | None
    state: Any = None
    then: Move | None = None
    unclipped: Vector | None = None


Rounds = Generator[Round, Sequence[Vector], Update]
"""A method at work: it yields rounds, is sent a gradient per probe, and returns an update."""


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """What a method may select parameters by.

    Attributes:
        name: As in `model.named_parameters()`; only its last part if the model is not known.
        is_normalization: Whether it belongs to a normalization layer.
    """

    name: str
    is_normalization: bool


Selection = Callable[[ParameterInfo], bool]
"""Which parameters a piece acts on."""


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The numbers of the parameter groups, one for each tensor, as they are at this step.

    Attributes:
        rho: ρ, already evaluated at t.
        lr: η, a tensor where the base optimizer has one on a device. If it has none, an error that
            says so is raised where the numbers are looked at.
        weight_decay: The base optimizer's weight decay.
        eps: Added to a norm before dividing by it; the same for all.
        decouples_decay: Whether the weights decay beside the step (AdamW) or by the gradient (SGD).
    """

    rho: Sequence[Number]
    lr: Sequence[Number]
    weight_decay: Sequence[Number]
    eps: float
    decouples_decay: Sequence[bool] = ()

    @staticmethod
    def of(
        groups: Sequence[dict[str, Any]], rho: Callable[[dict[str, Any]], Rho], t: int, eps: float
    ) -> Hyperparameters:
        """The numbers of these groups at step t, each repeated for every parameter of its group."""
        for group in groups:  # one may have changed, or come, since the last step
            if group.get("maximize") or group.get("differentiable"):
                require_group(group)
        sizes = [len(group["params"]) for group in groups]

        def spread(values: Iterable[Any]) -> list[Any]:
            return [v for value, n in zip(values, sizes, strict=True) for v in [value] * n]

        has_rates = all(group.get("lr") is not None for group in groups)
        return Hyperparameters(
            rho=spread(radius(rho(group), t) for group in groups),
            lr=spread(as_number(group["lr"]) for group in groups) if has_rates else MissingRates(),
            weight_decay=spread(_decay_of(group) for group in groups),
            eps=eps,
            decouples_decay=spread(_decouples_decay(group) for group in groups),
        )


class MissingRates(Sequence[Number]):
    """In the place of learning rates, if the base optimizer has none."""

    def __getitem__(self, index: Any) -> Any:
        raise ValueError(
            "this method needs the learning rate of each group, and the base optimizer has groups "
            "without 'lr'; set it (base.param_groups[0]['lr'] = 0.1), or choose another optimizer"
        )

    def __len__(self) -> int:
        return self[0]


def _decay_of(group: dict[str, Any]) -> Number:
    decay = group.get("weight_decay")
    return 0.0 if decay is None else as_number(decay)


def _decouples_decay(group: dict[str, Any]) -> bool:
    """As torch.optim says it, or as pytorch_optimizer does."""
    return bool(group.get("decoupled_weight_decay") or group.get("weight_decouple"))


@dataclass(frozen=True, slots=True)
class BaseView:
    """What a method may ask about the base optimizer.

    Attributes:
        lookahead: Peek: the move to where the base optimizer would step with a gradient.
        momentum: Its momentum (or Adam's first moment); None before it has one.
    """

    lookahead: Callable[[Vector], Move]
    momentum: Callable[[], Vector | None]


@dataclass(frozen=True, slots=True)
class ModelView:
    """What a method may ask about the model.

    Attributes:
        parameters: The name and kind of each parameter; None while the layers are not known.
        buffers: The floating-point buffers.
    """

    parameters: Callable[[], Sequence[ParameterInfo] | None]
    buffers: Callable[[], Weights]


@dataclass(frozen=True, slots=True)
class Context:
    """All that a method may know about the step at hand: numbers and vectors.

    Attributes:
        t: The number of updates made so far.
        epoch: As told with `optimizer.set_epoch`, 0 before.
        x: The weights x_t; read them, do not change them.
        groups: ρ, η and weight decay for each tensor: parameter groups may differ.
        base: What may be asked about the base optimizer.
        model: What may be asked about the model.
        random: Random numbers that depend on the run's seed and the step alone, the same on all
            ranks.
        batch_size: The number of samples in the incoming batch.
    """

    t: int
    epoch: int
    x: Weights
    groups: Hyperparameters
    base: BaseView
    model: ModelView
    random: RandomNumbers
    batch_size: Callable[[], int]


class Method(Protocol):
    """A sharpness-aware method: pure maths that never sees a model, a rank or a file.

    Implementations are frozen dataclasses whose fields are the hyper-parameters.

    Attributes:
        rho: The perturbation radius, a number or a function of t; groups may override it.
        holds_batch: Whether the incoming batch is kept, as HELD, for the next call.
        probes_per_round: How many probes a round has, and so how many devices can work at once.
            Where that depends on the batch's size: for a batch that is too small to be cut.
    """

    @property
    def rho(self) -> Rho: ...

    @property
    def holds_batch(self) -> bool: ...

    @property
    def probes_per_round(self) -> int: ...

    def initial_state(self) -> Any:
        """The state before the first batch: a dataclass of vectors and numbers, or None."""
        ...

    def rounds(self, context: Context, state: Any) -> Rounds:
        """Yield rounds, receive one gradient per probe, return the update."""
        ...

    def after_skip(self, state: Any) -> Any:
        """The state to go on with after a step with a non-finite gradient was skipped."""
        ...


@dataclass(frozen=True)
class MethodDefaults:
    """What a method is unless it says otherwise: a radius, nothing held, nothing to remember."""

    rho: Rho = 0.0

    holds_batch = False
    probes_per_round = 1
    writes_records = False  # in place, where going back to an earlier state does not undo it
    needs_loss_fn = False  # for another loss or some samples, which a closure cannot evaluate
    needs_whole_vectors = False  # such as the order of all weights, which no shard knows

    def initial_state(self) -> Any:
        return None

    def after_skip(self, state: Any) -> Any:
        return state


def vectors_of(state: Any) -> list[Vector]:
    """All vectors of a state."""
    values = [v if isinstance(v, tuple) else (v,) for v in state_fields(state).values()]
    return [v for value in values for v in value if isinstance(v, Vector)]


def aligned(state: Any, before: Weights, weights: Weights) -> Any:
    """The state with vectors that fit the weights as they are now.

    Weights may have been frozen since it was made (nothing may move those any more), added, taken
    out, replaced, or put in another place.

    Args:
        state: A method's state.
        before: The weights that its vectors belong to, in their order.
        weights: Those of now.
    """
    if are_same(before, weights) and all(_fits(v, weights) for v in vectors_of(state)):
        return state
    places = {id(p): i for i, p in enumerate(before)}
    sources = [places.get(id(p)) if p.requires_grad else None for p in weights]
    changes = {name: _aligned(value, sources) for name, value in state_fields(state).items()}
    return dataclasses.replace(state, **changes) if changes else state


def are_same(before: Weights, weights: Weights) -> bool:
    """Whether these are the same tensors in the same order."""
    return len(before) == len(weights) and all(map(operator.is_, before, weights))


def state_fields(state: Any) -> dict[str, Any]:
    """The fields of a method's state: none if it has no state."""
    if state is None:
        return {}
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}


def _fits(v: Vector, weights: Weights) -> bool:
    return all(t is None or p.requires_grad for t, p in zip(v, weights, strict=True))


def _aligned(value: Any, sources: Sequence[int | None]) -> Any:
    if are_vectors(value):
        return tuple(_aligned(v, sources) for v in value)
    if not isinstance(value, Vector):
        return value
    return Vector(None if i is None else value.tensors[i] for i in sources)


def are_vectors(value: Any) -> bool:
    """Whether a field of a state is a tuple of vectors."""
    return isinstance(value, tuple) and len(value) > 0 and isinstance(value[0], Vector)
