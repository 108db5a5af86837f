"""What a step tells about itself, and where a run is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sampa.execution.evaluate import Answer
from sampa.method import HELD, INCOMING, PERTURBED, Batch, Round
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


@dataclass(frozen=True, slots=True)
class BatchLoss:
    """The loss of the samples of one batch that one round evaluated, at one kind of point."""

    batch: Batch
    perturbed: bool
    share: float
    loss: Tensor

    @property
    def is_whole(self) -> bool:
        """Whether it is comparable with other losses: all samples of the batch took part."""
        return abs(self.share - 1) < 1e-9


class Journal:
    """Notes taken while a step runs, for its record."""

    def __init__(self) -> None:
        self.passes = 0  # forward passes, which number the probes' randomness
        self.rounds = 0
        self.widest_round = 0
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []
        self._batch_losses: list[BatchLoss] = []
        self._ends: list[Vector] = []  # the first gradient and the last
        self._cosine: Tensor | None = None

    def note(self, probes: Round, answers: Sequence[Answer]) -> None:
        self.passes += len(probes)
        if not any(probe.mode.backward for probe in probes):
            return
        self.rounds += 1
        self.widest_round = max(self.widest_round, len(probes))
        self._losses += [answer.loss for answer in answers]
        self._norms += [answer.gradient.norm for answer in answers]
        self._batch_losses += _batch_losses(probes, answers)
        for probe, answer in zip(probes, answers, strict=True):
            if probe.samples.share > 0:
                self._ends = [*self._ends[:1], answer.gradient]

    def compare_gradients(self) -> None:
        """Call it before the update, which may write into the last gradient."""
        if len(self._ends) == 2:
            self._cosine = cosine(*self._ends)
        self._ends = []

    def reported_loss(self) -> Tensor:
        """The loss on the incoming batch, at a clean point if there was one.

        A step that is dropped before it came to the incoming batch reports the loss that it saw.
        """
        incoming = [seen for seen in self._batch_losses if seen.batch is INCOMING]
        incoming.sort(key=lambda seen: seen.perturbed)
        return incoming[0].loss if incoming else self._losses[0]

    def clean_loss(self, batch: Batch) -> float:
        """The first loss on the whole batch at a clean point, or NaN."""
        for seen in self._batch_losses:
            if seen.batch is batch and seen.is_whole and not seen.perturbed:
                return seen.loss.item()
        return math.nan

    def sharpness(self, held_loss: float) -> float | None:
        """The gap on the batch that was seen perturbed, from its last perturbed loss."""
        perturbed = {s.batch: s.loss for s in self._batch_losses if s.perturbed and s.is_whole}
        for batch, loss in perturbed.items():
            clean = held_loss if batch is HELD else self.clean_loss(batch)
            if not math.isnan(clean):
                return loss.item() - clean
        return None

    def record(self, progress: Progress, held_loss: float, *, updated: bool) -> StepRecord:
        """The record of the step.

        Args:
            progress: Where the run is after the step.
            held_loss: The clean loss on the held batch, from the step before.
            updated: Whether the weights changed.
        """
        return StepRecord(
            step=progress.updates,
            losses=tuple(loss.item() for loss in self._losses),
            norms=tuple(norm.item() for norm in self._norms),
            cosine=None if self._cosine is None else self._cosine.item(),
            sharpness=self.sharpness(held_loss),
            rounds=self.rounds,
            probes=len(self._losses),
            updated=updated,
            skipped=progress.skips_in_a_row > 0,
            skips=progress.skips,
        )


def _batch_losses(probes: Round, answers: Sequence[Answer]) -> Iterator[BatchLoss]:
    """The losses of a round; parts of one batch are weighted by their shares of its samples."""
    parts: dict[tuple[Batch, bool], list[tuple[float, Tensor]]] = {}
    for probe, answer in zip(probes, answers, strict=True):
        if probe.samples.share > 0:
            kind = probe.batch, probe.role is PERTURBED
            parts.setdefault(kind, []).append((probe.samples.share, answer.loss))
    for (batch, perturbed), losses in parts.items():
        share = sum(share for share, _ in losses)
        loss = losses[0][1]
        if len(losses) > 1:
            loss = torch.stack([part * loss for part, loss in losses]).sum() / share
        yield BatchLoss(batch, perturbed, share, loss)


def refuse_endless_skipping(progress: Progress, last: StepRecord, most: int) -> None:
    """Raise if too many steps in a row were dropped."""
    if progress.skips_in_a_row >= most:
        raise RuntimeError(
            f"{progress.skips_in_a_row} steps in a row had a gradient that is not finite "
            f"(losses {last.losses}, norms {last.norms} at update {progress.updates}); the weights "
            "are unchanged since the first of them: look at the loss and the data, lower the "
            "learning rate, or raise max_skips"
        )
