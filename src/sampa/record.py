"""What a step tells about itself, and where a run is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sampa.execution.evaluate import Answer
from sampa.method import HELD, INCOMING, PERTURBED, Batch, Probe
from sampa.vectors.vector import Vector, cosine


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is: counters that `state_dict` carries, all that its randomness depends on."""

    seed: int
    calls: int = 0  # batches seen
    updates: int = 0  # t
    epoch: int = 0
    skips: int = 0
    skips_in_a_row: int = 0
    held_loss: float = math.nan  # the clean loss on the held batch, for the sharpness gap


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The last step, in a few numbers; the same on every rank.

    Attributes:
        step: Updates made so far, this one included.
        losses: The loss of each probe, in the order of the probes.
        norms: The norm of each probe's gradient.
        cosine: Cosine between the first and the last probe's gradients; None with fewer than two.
        sharpness: f(x̃; B) − f at the clean point of the same batch B; None if not both were seen.
        rounds: Sequential gradients (the paper's temporal cost).
        probes: Gradients in total.
        updated: Whether the weights changed.
        skipped: Whether the step was dropped because a gradient was not finite.
        skips: Steps dropped so far.
    """

    step: int
    losses: tuple[float, ...]
    norms: tuple[float, ...]
    cosine: float | None
    sharpness: float | None
    rounds: int
    probes: int
    updated: bool
    skipped: bool
    skips: int


class Journal:
    """Notes taken while a step runs, for its record."""

    def __init__(self) -> None:
        self.passes = 0  # forward passes, which number the probes' randomness
        self.rounds = 0
        self.widest_round = 0
        self.clean_losses: dict[Batch, float] = {}  # at the first round that saw the whole batch
        self._perturbed_losses: dict[Batch, float] = {}  # at the last one
        self._losses: list[Tensor] = []
        self._norms: list[float] = []
        self._gradients: list[Vector] = []  # the first and the last
        self._cosine: float | None = None
        self._reported: Tensor | None = None
        self._reports_clean = False

    @property
    def probes(self) -> int:
        return len(self._losses)

    def note(
        self, probes: Sequence[Probe], answers: Sequence[Answer], gradients: Sequence[Vector]
    ) -> None:
        self.passes += len(probes)
        if not any(probe.mode.backward for probe in probes):
            return
        self.rounds += 1
        self.widest_round = max(self.widest_round, len(probes))
        for probe, answer, gradient in zip(probes, answers, gradients, strict=True):
            self._losses.append(answer.loss)
            self._norms.append(gradient.norm.item())
            if probe.samples.share > 0:
                self._gradients = [*self._gradients[:1], gradient]
        seen: dict[tuple[Batch, bool], list[tuple[float, Tensor]]] = {}
        for probe, answer in zip(probes, answers, strict=True):
            if probe.samples.share > 0:
                place = seen.setdefault((probe.batch, probe.role is PERTURBED), [])
                place.append((probe.samples.share, answer.loss))
        for (batch, perturbed), losses in seen.items():
            self._note_batch(batch, perturbed, losses)

    def _note_batch(
        self, batch: Batch, perturbed: bool, losses: Sequence[tuple[float, Tensor]]
    ) -> None:
        """The loss on a batch from the parts of it that one round saw, weighted by their shares."""
        share = sum(share for share, _ in losses)
        loss = losses[0][1]
        if len(losses) > 1:
            loss = torch.stack([part * loss for part, loss in losses]).sum() / share
        if batch is INCOMING and (self._reported is None or not (perturbed or self._reports_clean)):
            self._reported, self._reports_clean = loss, not perturbed
        if abs(share - 1) > 1e-9:
            return  # not the whole batch: comparable with nothing
        if perturbed:
            self._perturbed_losses[batch] = loss.item()
        else:
            self.clean_losses.setdefault(batch, loss.item())

    def compare_gradients(self) -> None:
        """Once all are there, and before the update: it may write into the last one."""
        if len(self._gradients) == 2:
            self._cosine = cosine(*self._gradients).item()
        self._gradients = []

    def reported_loss(self) -> Tensor:
        """The loss on the incoming batch, at a clean point if there was one.

        A step that is dropped before it came to the incoming batch reports the loss that it saw.
        """
        return self._losses[0] if self._reported is None else self._reported

    def sharpness(self, held_loss: float) -> float | None:
        """The gap on the batch that was seen perturbed."""
        for batch, perturbed in self._perturbed_losses.items():
            clean = held_loss if batch is HELD else self.clean_losses.get(batch, math.nan)
            if not math.isnan(clean):
                return perturbed - clean
        return None

    def record(
        self, progress: Progress, sharpness: float | None, *, updated: bool, skipped: bool
    ) -> StepRecord:
        return StepRecord(
            step=progress.updates,
            losses=tuple(loss.item() for loss in self._losses),
            norms=tuple(self._norms),
            cosine=self._cosine,
            sharpness=sharpness,
            rounds=self.rounds,
            probes=self.probes,
            updated=updated,
            skipped=skipped,
            skips=progress.skips,
        )


def refuse_endless_skipping(progress: Progress, last: StepRecord, most: int) -> None:
    """Raise if too many steps in a row were dropped."""
    if progress.skips_in_a_row >= most:
        raise RuntimeError(
            f"{progress.skips_in_a_row} steps in a row had a gradient that is not finite "
            f"(losses {last.losses}, norms {last.norms} at update {progress.updates}); the weights "
            "are unchanged since the first of them: look at the loss and the data, lower the "
            "learning rate, or raise max_skips"
        )
