"""What a step tells about itself, and where a run is after it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any, Literal

import torch
from torch import Tensor

from sampa.batches import Watched
from sampa.execution.evaluate import Answer, BatchLoss, Evaluator, batch_losses
from sampa.execution.executor import Doubt
from sampa.messages import (
    refuse_endless_skipping,
    refuse_half_a_state,
    refuse_missing_batch,
    refuse_other_parts,
)
from sampa.method import HELD, INCOMING, Batch, Context, Round, aligned, are_same
from sampa.vectors.vector import Number, Vector, Weights, compute_norms, cosine


@dataclass(frozen=True, slots=True)
class StepRecord:
    """The last step, in a few numbers; the same on every rank.

    Attributes:
        step: Updates made so far, this one included.
        losses: The loss of each probe, in the order of the probes.
        norms: The norm of each probe's gradient.
        cosine: Cosine between the first and the last probe's gradients; None with fewer than two.
        sharpness: f(x̃; B) − f at the clean point of the same batch B; None if not both were seen.
            Compare it between methods only where `clean_at` and `rho` are the same.
        clean_at: Where that clean point is: "x", the weights that were perturbed; or "y", where the
            batch was first seen, in the step before (SAMPa's y_t). None without sharpness.
        rho: The radius of the perturbation; None if parameter groups differ in it.
        rounds: Sequential gradients (the paper's temporal cost).
        probes: Gradients in total.
        updated: Whether the weights changed.
        skipped: Whether the step was dropped because a gradient was not finite.
        skips: Steps dropped so far.
        outputs: What `loss_fn` gave as `sampa.Loss(..., outputs=...)` in the clean pass over the
            incoming batch, detached; a list of them if that was cut into micro-batches. On several
            ranks each has its own, or None if another branch made that pass.
    """

    step: int
    losses: tuple[float, ...]
    norms: tuple[float, ...]
    cosine: float | None
    sharpness: float | None
    clean_at: Literal["x", "y"] | None
    rho: float | None
    rounds: int
    probes: int
    updated: bool
    skipped: bool
    skips: int
    outputs: Any = field(default=None, compare=False)

    def numbers(self) -> dict[str, float]:
        """What is worth a line in a log: sharpness and cosine if they are known, and the counts."""
        known = {"sharpness": self.sharpness, "cosine": self.cosine}
        told = {name: value for name, value in known.items() if value is not None}
        return {**told, "updates": float(self.step), "skips": float(self.skips)}


@dataclass(frozen=True, slots=True)
class Seen:
    """The numbers of a step, on the host.

    Attributes:
        losses: Of the probes.
        norms: Of the probes' gradients.
        cosine: Between the first gradient and the last; None with fewer than two.
        clean: The first loss on each whole batch at a clean point.
        perturbed: The last one at a perturbed point.
        is_finite: Whether every gradient that all ranks share is finite.
    """

    losses: tuple[float, ...]
    norms: tuple[float, ...]
    cosine: float | None
    clean: dict[Batch, float]
    perturbed: dict[Batch, float]
    is_finite: bool

    def sharpness(self, held_loss: float) -> tuple[float | None, Literal["x", "y"] | None]:
        """The gap on the batch that was seen perturbed, and where its clean point is."""
        for batch, loss in self.perturbed.items():
            clean = held_loss if batch is HELD else self.clean.get(batch, math.nan)
            if not math.isnan(clean):
                return loss - clean, "y" if batch is HELD else "x"
        return None, None


class Readback:
    """A copy of a tensor on its way to the host."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = numbers
        self._arrival: torch.Event | None = None
        if numbers.device.type != "cpu":
            # Memory that the system may move would make the host wait for the copy.
            self._numbers = torch.empty_like(numbers, device="cpu", pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._arrival = torch.Event(device=numbers.device)
            self._arrival.record(torch.accelerator.current_stream(numbers.device))

    def read(self) -> list[float]:
        """The numbers, as soon as they have arrived."""
        if self._arrival is not None:
            self._arrival.synchronize()
            self._arrival = None  # an event cannot be copied with an optimizer
        return self._numbers.tolist()


class Numbers:
    """The numbers of a step, on their way to the host.

    Attributes:
        is_bad: Whether a gradient that all ranks share is not finite: a flag on the device.
        radii: ρ of each tensor.
    """

    def __init__(
        self,
        losses: Sequence[Tensor],
        norms: Sequence[Tensor],
        is_shared: Sequence[bool],
        batch_losses: Sequence[BatchLoss],
        cosines: Sequence[Tensor],
        doubts: Sequence[Doubt],
    ) -> None:
        self._losses = len(losses)
        self._is_shared = is_shared
        self._batch_losses = batch_losses
        device = norms[0].device
        self.radii: Sequence[Number] = ()
        self._doubts = doubts
        flags = [doubt.flag.to(device) for doubt in doubts]
        numbers = [*flags, *losses, *norms, *(seen.loss for seen in batch_losses), *cosines]
        self._host = Readback(torch.stack([n.detach().to(device) for n in numbers]))
        shared = [n.to(device) for n in compress(norms, is_shared)] or [norms[0].new_zeros(())]
        self.is_bad = torch.stack(shared).isfinite().all().logical_not()
        for flag in (f for f, doubt in zip(flags, doubts, strict=True) if doubt.is_certain):
            self.is_bad = self.is_bad | flag

    @cached_property
    def seen(self) -> Seen:
        """The numbers on the host, which waits for them: the only point of a step where it does.

        Raises:
            RuntimeError: If something is wrong with the answers that the step got.
        """
        numbers = iter(self._host.read())
        for doubt in self._doubts:
            if next(numbers):
                doubt.refuse()
        self._doubts = ()  # with the batches that they know
        losses = tuple(next(numbers) for _ in range(self._losses))
        norms = tuple(next(numbers) for _ in self._is_shared)
        batches = [(s, next(numbers)) for s in self._batch_losses]
        whole = [(s, loss) for s, loss in batches if s.is_whole]
        return Seen(
            losses=losses,
            norms=norms,
            cosine=next(numbers, None),
            clean={s.batch: loss for s, loss in reversed(whole) if not s.perturbed},
            perturbed={s.batch: loss for s, loss in whole if s.perturbed},
            is_finite=all(map(math.isfinite, compress(norms, self._is_shared))),
        )


class Journal:
    """Notes taken while a step runs: tensors, which nothing waits for."""

    def __init__(self) -> None:
        self.passes = 0  # forward passes, which number the probes' randomness
        self.rounds = 0
        self.widest_round = 0
        self._radii: Sequence[Number] = ()  # ρ of each tensor
        self._losses: list[Tensor] = []
        self._norms: list[Tensor] = []
        self._is_shared: list[bool] = []
        self._batch_losses: list[BatchLoss] = []
        self._ends: list[Vector] = []  # the first gradient and the last
        self._cosine: list[Tensor] = []  # between them

    def begun(self, context: Context) -> Context:
        """Note what is known before the first round."""
        self._radii = context.groups.rho
        return context

    def note(self, probes: Round, answers: Sequence[Answer], evaluator: Evaluator) -> None:
        """Note a round, and which of its gradients are the same on all ranks."""
        first, self.passes = self.passes, self.passes + len(probes)
        if not any(probe.mode.backward for probe in probes):
            return
        evaluator.outputs.choose(probes, first)
        self.rounds += 1
        self.widest_round = max(self.widest_round, len(probes))
        self._losses += [answer.loss for answer in answers]
        # A local gradient is this rank's alone: what is decided by it must not differ.
        self._is_shared += [not evaluator.is_local(probe) for probe in probes]
        self._batch_losses += batch_losses(probes, answers)
        for probe, answer in zip(probes, answers, strict=True):
            if probe.samples.share > 0:
                self._ends = [*self._ends[:1], answer.gradient]
                self._cosine = []
        if len(probes) > 1:  # more vectors are alive after what the method makes of them
            self._compare_gradients()  # before the norms: two are found on the way
        compute_norms(answer.gradient for answer in answers)
        self._norms += [answer.gradient.norm for answer in answers]

    def _compare_gradients(self) -> None:
        if len(self._ends) == 2 and not self._cosine:
            self._cosine = [cosine(*self._ends)]

    def numbers(self, doubts: Sequence[Doubt]) -> Numbers:
        """Send the numbers to the host. Before the update, which may write into a gradient."""
        self._compare_gradients()
        self._ends = []
        numbers = Numbers(
            self._losses, self._norms, self._is_shared, self._batch_losses, self._cosine, doubts
        )
        numbers.radii = self._radii
        return numbers

    def reported_loss(self) -> Tensor:
        """The loss on the incoming batch, at a clean point if there was one."""
        incoming = [s for s in self._batch_losses if s.batch is INCOMING]
        return min(incoming, key=lambda s: s.perturbed).loss if incoming else self._losses[0]


# ---- where a run is, and how it goes back behind a bad step ------------------------------------


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


@dataclass
class MadeStep:
    """A step that was made as if its gradients were finite; its numbers tell later.

    Attributes:
        numbers: On their way to the host.
        is_bad: Whether it changed nothing because of a bad gradient: a flag on the device.
        fallback: The method's state to go on with if a gradient turns out bad.
        updated: Whether it changed the weights, if all was well.
        rounds: Sequential gradients.
        outputs: What `loss_fn` gave to be kept.
        held_loss: The clean loss on the held batch, from the step before.
        is_dropped: Whether it changed nothing; None while its numbers are unread.
    """

    numbers: Numbers
    is_bad: Tensor
    fallback: Any
    updated: bool
    rounds: int
    outputs: Any = None
    held_loss: float = math.nan
    is_dropped: bool | None = None

    def is_finite(self) -> bool:
        """Whether its gradients were, which the host waits for."""
        return self.numbers.seen.is_finite

    def record(self, progress: Progress) -> StepRecord:
        """What to tell about it, when all is known."""
        seen = self.numbers.seen
        sharpness, clean_at = seen.sharpness(self.held_loss)
        radii = set(map(float, self.numbers.radii))
        return StepRecord(
            step=progress.updates,
            losses=seen.losses,
            norms=seen.norms,
            cosine=seen.cosine,
            sharpness=sharpness,
            clean_at=clean_at,
            rho=radii.pop() if len(radii) == 1 else None,
            rounds=self.rounds,
            probes=len(seen.losses),
            updated=self.updated and not self.is_dropped,
            skipped=bool(self.is_dropped),
            skips=progress.skips,
            outputs=self.outputs,
        )


@dataclass
class Carried:
    """What a run carries from one step to the next, besides the weights and the base's state.

    Attributes:
        progress: Where it is.
        weights: The parameters that the vectors of `method_state` belong to, in their order.
        method_state: What the method keeps.
        held_batch: What it holds for the next step.
        missing: The name of what was not loaded yet of a run that was saved in parts.
    """

    progress: Progress
    weights: Weights
    method_state: Any
    held_batch: Watched | None = None
    missing: str | None = None

    def align(self, weights: list[Tensor], learn: Callable[[], object]) -> list[Tensor]:
        """Have the method's state belong to these parameters, which may have changed places.

        They are returned.

        Args:
            weights: In the order of the optimizer.
            learn: Reads what the last step has left on its way, which belongs to those of before.
        """
        if not are_same(self.weights, weights):
            learn()
        self.method_state = aligned(self.method_state, self.weights, weights)
        self.weights = weights
        return weights

    def receive(self, incoming: Watched, holds: bool, hold: str) -> Watched | None:
        """What to hold of a batch until the next step.

        Args:
            incoming: As it was given to `step`.
            holds: Whether the method holds it.
            hold: How.

        Raises:
            RuntimeError: If the one that is held now is missing, or is not as it was received.
            ValueError: If one of both is in parts and the other is not.
        """
        if self.missing is not None:
            refuse_half_a_state(self.missing)
        if holds:
            self.require_held_batch()
            if self.held_batch and self.held_batch.in_parts not in (None, incoming.in_parts):
                refuse_other_parts(self.held_batch.in_parts)
        return incoming.kept(hold) if holds else None

    def require_held_batch(self) -> None:
        """Refuse to go on without the batch that is to be held, or with another in its place."""
        if self.held_batch is not None:
            self.held_batch.require_unchanged(
                'holds it until the next step; pass hold="copy" to the optimizer, or let the '
                "loader yield memory of its own in every batch and loss_fn leave it alone"
            )
        elif self.progress.calls > 0:
            refuse_missing_batch()

    def advance(self, made: MadeStep, state: Any, held_batch: Watched | None) -> None:
        """Go on as if all gradients of a step were finite."""
        now = self.progress
        self.progress = dataclasses.replace(
            now, calls=now.calls + 1, updates=now.updates + made.updated
        )
        self.method_state, self.held_batch = state, held_batch

    def learn(self, made: MadeStep, later: MadeStep | None, max_skips: int) -> None:
        """Read a step's numbers, and go back behind it if a gradient was bad.

        Args:
            made: The step.
            later: One that was made since. It began with a state that a bad gradient spoils.
            max_skips: How many steps in a row may be dropped.

        Raises:
            RuntimeError: If there were that many.
        """
        seen, now = made.numbers.seen, self.progress
        lost = [] if seen.is_finite else [made]
        if lost and later is not None and made.fallback is not None:
            lost.append(later)
        self.progress = dataclasses.replace(
            now,
            updates=now.updates - sum(step.updated for step in lost),
            skips=now.skips + len(lost),
            skips_in_a_row=now.skips_in_a_row + len(lost) if lost else 0,
            held_loss=math.nan if self.held_batch is None else seen.clean.get(INCOMING, math.nan),
        )
        made.is_dropped = bool(lost)
        if lost:
            lost[-1].is_dropped = True
            self.method_state = made.fallback
        made.fallback = None  # vectors that nothing needs any more
        if self.progress.skips_in_a_row >= max_skips:
            refuse_endless_skipping(dataclasses.asdict(self.progress), seen.losses, seen.norms)
