"""SAF and MESA: no perturbation, a loss that keeps the outputs near earlier ones (Du et al., 2022).

SAF:   loss + λ τ² mean_i KL(softmax(z'_i/τ) ‖ softmax(z_i/τ)), z' the sample's logits E~ epochs ago
MESA:  the same with z' the logits of a moving average v of the weights, v ← decay v + (1−decay) x

Active in epochs E_start < e < E_end (0-based), told with `optimizer.set_epoch`. The paper's formula
has no τ²; the authors' code has it (`scale_tau2`), and its numbers come from there. Samples whose
record is missing (dropped, drawn twice, or seen by another data rank) are left out of the KL term.
MESA also averages BatchNorm's statistics: from the start where the executor knows the model, else
from the first pass on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sampa.losses import Loss, distillation
from sampa.messages import require
from sampa.method import Context, MethodDefaults, Mode, Move, Probe, Rounds, Update
from sampa.pieces.directions import moving_average
from sampa.vectors.vector import Vector, Weights, copy_


@dataclass(frozen=True)
class TrajectoryLoss(MethodDefaults):
    """What SAF and MESA share: the strength, temperature and epochs of the extra term."""

    lam: float = 0.3
    tau: float = 5.0
    start_epoch: int = 5
    end_epoch: int | None = None
    scale_tau2: bool = True

    def __post_init__(self) -> None:
        require("lam", self.lam, 0 <= self.lam < math.inf, "finite and >= 0")
        require("tau", self.tau, 0 < self.tau < math.inf, "finite and > 0")
        require("start_epoch", self.start_epoch, self.start_epoch >= 0, ">= 0")
        ends = self.end_epoch is None or self.end_epoch >= 0
        require("end_epoch", self.end_epoch, ends, ">= 0 or None")

    def is_active(self, epoch: int) -> bool:
        before_end = self.end_epoch is None or epoch < self.end_epoch
        return self.lam > 0 and self.start_epoch < epoch and before_end

    def with_teacher(self, loss: Loss, teacher: Tensor, logits: Tensor) -> Tensor:
        """The training loss plus the KL term of the samples that have a teacher."""
        assert loss.value is not None
        total = loss.logits.shape[0] if loss.logits is not None else 1
        kl = distillation(teacher, logits, self.tau, scale_tau2=self.scale_tau2)
        return loss.value + self.lam * kl / total


@dataclass(frozen=True)
class LogitRecords:
    """Logits of each sample in the last few epochs.

    Attributes:
        logits: Shape (slots, samples, classes); grows as samples are seen.
        epochs: The epoch in which each entry was written, −1 if never. Shape (slots, samples).
    """

    logits: Tensor = field(default_factory=lambda: torch.zeros(0, 0, 0))
    epochs: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.long))

    def holding(self, slots: int, samples: int, like: Tensor) -> LogitRecords:
        """The same records with room for this many samples."""
        have = self.epochs.shape[1]
        if self.epochs.shape[0] == slots and have >= samples:
            return self
        grown = max(samples, 2 * have)
        logits = torch.zeros(slots, grown, like.shape[1], dtype=like.dtype)
        epochs = torch.full((slots, grown), -1)
        if have:
            logits[:, :have], epochs[:, :have] = self.logits, self.epochs
        return LogitRecords(logits, epochs)


@dataclass(frozen=True)
class SAFMethod(TrajectoryLoss):
    """SAF: the teacher is the network of some epochs ago."""

    gap: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        require("gap", self.gap, self.gap >= 1, ">= 1")
        enough = self.start_epoch >= self.gap - 1
        require("start_epoch", self.start_epoch, enough, f">= gap - 1 = {self.gap - 1}")

    def initial_state(self) -> LogitRecords:
        return LogitRecords()

    def rounds(self, context: Context, state: LogitRecords) -> Rounds:
        records, epoch, slots = state, context.epoch, self.gap + 1
        seen: list[tuple[Tensor, Tensor]] = []

        def objective(loss: Loss) -> Tensor:
            nonlocal records
            logits, index = loss.need("SAF", "logits", "index")
            rows = index.cpu()
            records = records.holding(slots, int(rows.max()) + 1, logits)
            past = (epoch - self.gap) % slots
            known = records.epochs[past, rows] == epoch - self.gap
            teacher = records.logits[past, rows[known]].to(logits.device)
            seen.append((rows, logits.detach().cpu()))
            if not self.is_active(epoch):
                assert loss.value is not None
                return loss.value
            return self.with_teacher(loss, teacher, logits[known.to(logits.device)])

        (g,) = yield (Probe(objective=objective),)
        for rows, logits in seen:  # now that the step is not dropped
            records.logits[epoch % slots, rows] = logits
            records.epochs[epoch % slots, rows] = epoch
        return Update(g, records)


@dataclass(frozen=True)
class MESAState:
    """The moving average v of weights and floating-point buffers; None before the first step."""

    weights: Vector | None = None
    buffers: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class MESAMethod(TrajectoryLoss):
    """MESA: the teacher is a moving average of the weights."""

    lam: float = 0.8
    decay: float = 0.9995

    def __post_init__(self) -> None:
        super().__post_init__()
        require("decay", self.decay, 0 <= self.decay <= 1, "in [0, 1]")

    def initial_state(self) -> MESAState:
        return MESAState()

    def rounds(self, context: Context, state: MESAState) -> Rounds:
        average = self._averaged(context, state)
        if not self.is_active(context.epoch):
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
            return self.with_teacher(loss, next(teachers), logits)

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
