"""SAF: a loss that keeps the outputs near those of some epochs ago (Du et al., NeurIPS 2022).

z'_i    = the logits of sample i recorded E~ epochs ago
loss    = f(x; B) + λ τ² mean_i KL(softmax(z'_i/τ) ‖ softmax(z_i/τ)), in epochs E_start < e < E_end
x_{t+1} = ModelUpdate(x, ∇ loss)

No perturbation. Epochs are 0-based, told with `optimizer.set_epoch`. The paper's formula has no τ²;
the authors' code has it (`scale_tau2`), and its numbers come from there. Samples whose record is
missing (dropped, drawn twice, or seen by another data rank) are left out of the KL term.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sampa.loss import Loss
from sampa.messages import refuses_other_forms, require
from sampa.method import Context, MethodDefaults, Probe, Rounds, Update
from sampa.optimizer import Bases, SharpnessAware, as_one
from sampa.pieces.losses import KeepOutputs
from sampa.vectors.vector import Weights


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


@dataclass(frozen=True, kw_only=True)
class SAFMethod(MethodDefaults):
    """SAF: the teacher is the network of some epochs ago."""

    term: KeepOutputs
    gap: int

    writes_records = True
    needs_loss_fn = True

    def __post_init__(self) -> None:
        require("gap", self.gap, self.gap >= 1, ">= 1")
        start, least = self.term.start_epoch, self.gap - 1
        require("start_epoch", start, start >= least, f">= gap - 1 = {least}")

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
            if not self.term.is_active(epoch):
                assert loss.value is not None
                return loss.value
            return self.term(loss, teacher, logits[known.to(logits.device)])

        def record(weights: Weights) -> None:
            for rows, logits in seen:
                records.logits[epoch % slots, rows] = logits
                records.epochs[epoch % slots, rows] = epoch

        (g,) = yield (Probe(objective=objective),)
        return Update(g, records, then=record)  # nothing of a step that is dropped


@refuses_other_forms
def SAF(
    base: Bases,
    lam: float = 0.3,
    tau: float = 5.0,
    start_epoch: int = 5,
    *,
    end_epoch: int | None = None,
    gap: int = 3,
    scale_tau2: bool = True,
    **options: Any,
) -> SharpnessAware:
    """No perturbation: KL to the logits recorded some epochs ago; needs `logits` and `index`.

    Defaults: authors' example script.
    """
    base = as_one(base)  # what is no optimizer is told before what follows it
    term = KeepOutputs(
        lam, tau, start_epoch=start_epoch, end_epoch=end_epoch, scale_tau2=scale_tau2
    )
    return SharpnessAware(base, SAFMethod(term=term, gap=gap), **options)
