"""MESA: a loss that keeps the outputs near those of an averaged model (Du et al., NeurIPS 2022).

v_t     = decay v_{t−1} + (1−decay) x_t, v_0 = x_0: weights and floating-point buffers
z'      = logits at v_t in evaluation mode, without gradient
loss    = f(x; B) + λ τ² mean_i KL(softmax(z'_i/τ) ‖ softmax(z_i/τ)), in epochs E_start < e < E_end
x_{t+1} = ModelUpdate(x, ∇ loss)

No perturbation. Epochs are 0-based, told with `optimizer.set_epoch`. The paper's formula has no τ²;
the authors' code has it (`scale_tau2`). BatchNorm's statistics are averaged too: from the start
where the executor knows the model, else from the first pass on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sampa.loss import Loss
from sampa.messages import refuses_other_forms, require
from sampa.method import Context, MethodDefaults, Mode, Move, Probe, Rounds, Update
from sampa.optimizer import Bases, SharpnessAware, as_one
from sampa.pieces.directions import moving_average
from sampa.pieces.losses import KeepOutputs
from sampa.vectors.vector import Vector, Weights, copy_


@dataclass(frozen=True)
class MESAState:
    """The moving average v of weights and floating-point buffers; None before the first step."""

    weights: Vector | None = None
    buffers: tuple[Tensor, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MESAMethod(MethodDefaults):
    """MESA: the teacher is a moving average of the weights."""

    term: KeepOutputs
    decay: float

    needs_loss_fn = True

    def __post_init__(self) -> None:
        require("decay", self.decay, 0 <= self.decay <= 1, "in [0, 1]")

    def initial_state(self) -> MESAState:
        return MESAState()

    def rounds(self, context: Context, state: MESAState) -> Rounds:
        average = self._averaged(context, state)
        if not self.term.is_active(context.epoch):
            (g,) = yield (Probe(),)
            return Update(g, average)
        seen: list[Tensor] = []
        buffers = Vector(average.buffers) if average.buffers else None
        yield (
            Probe(
                _move_to(average.weights),
                mode=Mode(statistics=False, evaluation=True, buffers=buffers, backward=False),
                observe=lambda loss: seen.extend(loss.need("MESA", "logits")),
            ),
        )
        teachers: Iterator[Tensor] = iter(seen)  # one per micro-batch, in the same order

        def objective(loss: Loss) -> Tensor:
            (logits,) = loss.need("MESA", "logits")
            return self.term(loss, next(teachers), logits)

        (g,) = yield (Probe(objective=objective),)
        return Update(g, average)

    def _averaged(self, context: Context, state: MESAState) -> MESAState:
        """v ← decay v + (1−decay) x, from the weights that the last update left."""
        x = Vector([p.detach() for p in context.x])
        buffers = [b.detach() for b in context.model.buffers()]
        if state.weights is None:
            return MESAState(x.clone(), tuple(b.clone() for b in buffers))
        weights = moving_average(state.weights, x, 1 - self.decay)
        if len(state.buffers) != len(buffers):
            return MESAState(weights, tuple(b.clone() for b in buffers))
        return MESAState(
            weights,
            tuple(
                self.decay * v.to(b.device) + (1 - self.decay) * b
                for v, b in zip(state.buffers, buffers, strict=True)
            ),
        )


def _move_to(target: Vector | None) -> Move:
    def move(weights: Weights) -> None:
        assert target is not None
        pairs = [(p, t) for p, t in zip(weights, target, strict=True) if p.requires_grad]
        copy_([p for p, _ in pairs], [t for _, t in pairs if t is not None])

    return move


@refuses_other_forms
def MESA(
    base: Bases,
    lam: float = 0.8,
    tau: float = 5.0,
    start_epoch: int = 5,
    *,
    end_epoch: int | None = None,
    decay: float = 0.9995,
    scale_tau2: bool = True,
    **options: Any,
) -> SharpnessAware:
    """No perturbation: KL to the logits of an averaged model; needs `logits`.

    Defaults: SAMPa paper (start, lambda, decay), authors' code (tau).
    """
    base = as_one(base)  # what is no optimizer is told before what follows it
    term = KeepOutputs(
        lam, tau, start_epoch=start_epoch, end_epoch=end_epoch, scale_tau2=scale_tau2
    )
    return SharpnessAware(base, MESAMethod(term=term, decay=decay), **options)
