"""One probe on one device: leave x_t, forward and backward, come back bit for bit.

The weights are moved in place, because whoever knows their memory (a view, a compiled graph, a
sharded layer) must see the move, and come back by copy. Subtracting the move again would be no way
back: it rounds, and replicas would drift apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from sampa.batches import Watched
from sampa.execution.compiler import begin_pass, outliving
from sampa.execution.guarded import Watch
from sampa.execution.layers import Layers
from sampa.execution.lookahead import clear_gradients, keep_gradients, take_gradients
from sampa.execution.loss_scaling import unscaling
from sampa.execution.profiling import GRADIENT, MOVE, RESTORE
from sampa.execution.randomness import seeded
from sampa.loss import Closure, Loss
from sampa.messages import refuse_closure, refuse_parts
from sampa.method import ASCENT, INCOMING, PERTURBED, Batch, Move, Probe, Round
from sampa.samples import map_tensors, split
from sampa.vectors.vector import Vector, Weights, copy_, local, restrict, scale

LossFn = Callable[[Any], Tensor | Loss]
StepFn = Callable[..., Any] | None
"""What `step` may be given: a function of a batch, or a closure."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a probe gives: the gradient, and the loss at the point where it was taken."""

    gradient: Vector
    loss: Tensor


@dataclass(frozen=True, slots=True)
class BatchLoss:
    """The loss of the samples of one batch that one round evaluated, at one kind of point."""

    batch: Batch
    perturbed: bool
    is_whole: bool  # all samples of the batch took part, so that it is comparable with others
    loss: Tensor


def batch_losses(probes: Round, answers: Sequence[Answer]) -> Iterator[BatchLoss]:
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
        yield BatchLoss(batch, perturbed, abs(share - 1) < 1e-9, loss)


class Excursions:
    """Takes the weights elsewhere and back.

    Attributes:
        copies: How many copies of the weights were alive at once; 0 if they never left.
        watch: Sees to it that nothing else moves them.
    """

    def __init__(self, forget_copies: Callable[[], None] = lambda: None) -> None:
        self.copies = 0
        self._forget_copies = forget_copies  # which something else made of the weights
        self.watch = Watch()
        self._alive = 0
        self._keeps_home = False
        self._home: Vector | None = None  # x_t, while it is kept

    @contextmanager
    def from_one_copy(self) -> Iterator[None]:
        """Several excursions from the same x_t, one after the other: it is copied once."""
        self._keeps_home = True
        try:
            yield
        finally:
            self._keeps_home, self._home = False, None

    @contextmanager
    def to(self, move: Move | None, weights: Weights) -> Iterator[None]:
        """Hold the weights where `move` takes them inside the block, at x_t after it."""
        self._forget_copies()
        if move is None:
            yield
            return
        shards, home = local(weights), self._home
        if home is None:
            home = Vector(p if p.requires_grad else None for p in shards).clone()
        if self._keeps_home:
            self._home = home
        self._alive += 1
        self.copies = max(self.copies, self._alive)
        try:
            with torch.no_grad(), MOVE:
                move(shards)
            yield
        finally:
            with torch.no_grad(), RESTORE:
                copy_(shards, home)
            self._forget_copies()
            self._alive -= 1
            torch.clear_autocast_cache()  # cast copies of the moved weights


class Pass:
    """What an executor does around a forward and backward pass: nothing in one process.

    Attributes:
        may_freeze: Whether work on gradients that the probe does not want may be saved.
    """

    may_freeze = True

    def around(self, last: bool) -> AbstractContextManager[None]:
        """Entered around each micro-batch, told whether it is the last."""
        return nullcontext()

    def announce(self, loss: Tensor) -> None:
        """Told the loss before the last backward pass, which an exchange overlaps."""


class Outputs:
    """What `loss_fn` gave to be kept in the passes of a step on this device."""

    def __init__(self) -> None:
        self._kept: dict[int, list[Any]] = {}  # one entry a micro-batch, by the probe's number
        self._chosen: dict[bool, list[Any]] = {}  # by whether the point was perturbed

    def begin(self, number: int) -> None:
        """Forget what a rehearsal of the probe gave."""
        self._kept.pop(number, None)

    def keep(self, number: int, value: Any) -> None:
        kept = map_tensors(lambda t: outliving(t.detach()), value)
        self._kept.setdefault(number, []).append(kept)

    def choose(self, probes: Round, first: int) -> None:
        """Take those of a round on the incoming batch, unless an earlier one was clean."""
        found: dict[bool, list[Any]] = {}
        for number, probe in enumerate(probes, first):
            if probe.batch is INCOMING and probe.samples.share > 0:
                found.setdefault(probe.role is PERTURBED, []).extend(self._kept.pop(number, []))
        if not self._chosen.keys() & {False, *found}:
            self._chosen |= found

    def chosen(self) -> Any:
        """Of the clean pass if there was one: the only entry, or a list of several."""
        kept = self._chosen.get(False, self._chosen.get(True, []))
        return kept[0] if len(kept) == 1 else kept or None


_ALONE = Pass()


@dataclass(frozen=True)
class Evaluator:
    """All that one call of `step` needs to answer a probe on this device.

    Attributes:
        loss_fn: The user's function from a batch to a scalar loss with its graph, or a closure,
            which leaves the gradient.
        batches: The batch behind each role.
        weights: The parameters, in the optimizer's order.
        layers: What is known of the model.
        excursions: Take the weights elsewhere and back.
        seed_of: The seed of a probe's randomness, from the probe and its number in the step.
        accumulate: Micro-batches of a batch, or of each of its parts.
        in_parts: Whether a batch is a list of parts, whose losses add up.
        scaler: Scales the loss where gradients would underflow in half precision.
        step: The number of the call of `step`, over all sessions of a run.
        sync_perturbation: Whether data ranks perturb by their common gradient, or each by its own.
        outputs: What `loss_fn` gives to be kept.
    """

    loss_fn: LossFn
    batches: Mapping[Batch, Watched]
    weights: Weights
    layers: Layers
    excursions: Excursions
    seed_of: Callable[[Probe, int], int]
    accumulate: int = 1
    in_parts: bool = False
    scaler: GradScaler | None = None
    step: int = 0
    sync_perturbation: bool = True
    outputs: Outputs = field(default_factory=Outputs)

    @cached_property
    def devices(self) -> set[torch.device]:
        """Where the weights are."""
        return {p.device for p in self.weights}

    def backward(self, probe: Probe, number: int, around: Pass = _ALONE) -> Tensor:
        """Leave the probe's gradient in `.grad` and return its training loss.

        Args:
            probe: What to evaluate.
            number: Its number in the step, for the randomness.
            around: What the executor does around the pass.
        """
        clear_gradients(self.weights)
        differentiates = not isinstance(self.loss_fn, Closure)
        if any(device.type == "cuda" for device in self.devices):
            begin_pass()
        with (
            self.excursions.to(probe.move, self.weights),
            self.layers.one_pass(
                self.weights,
                counts=probe.counts_statistics,
                evaluation=probe.mode.evaluation,
                values=probe.mode.buffers,
            ),
            seeded(self.seed_of(probe, number), self.devices),
            self._wanting(probe.wrt if around.may_freeze and differentiates else None) as wanted,
            torch.set_grad_enabled(probe.mode.backward and wanted),
            GRADIENT,
        ):
            # Inside an autocast block of the user the cast weights are those of another point.
            torch.clear_autocast_cache()
            self.outputs.begin(number)
            with self.excursions.watch.unmoved(self.weights):
                return self._accumulate(probe, number, probe.mode.backward and wanted, around)

    def answer(self, probe: Probe, gradient: Vector, loss: Tensor) -> Answer:
        """The answer to a probe: the part of the gradient that it wants, unscaled."""
        if probe.wrt is not None:
            gradient = restrict(gradient, probe.wrt)
        factor = None if self.scaler is None else unscaling(self.scaler)
        if factor is not None:
            gradient = scale(gradient, factor)
        return Answer(gradient, loss)

    def is_local(self, probe: Probe) -> bool:
        """Whether data ranks keep the probe's gradient to themselves."""
        return probe.role is ASCENT and not self.sync_perturbation

    def taken(self) -> Vector:
        """Take away the gradient that `backward` left."""
        return take_gradients(self.weights)

    def _micro_batches(self, probe: Probe) -> list[tuple[Any, float]]:
        """What to evaluate one after the other, each with the factor of its loss."""
        batch, part = self.batches[probe.batch].used(), probe.samples.part
        is_plain = part is None and probe.objective is None and probe.mode.backward
        if isinstance(self.loss_fn, Closure) and not is_plain:
            refuse_closure("this probe is not the gradient of the training loss on a batch")
        batches = batch if self.in_parts else [batch]
        if len(batches) > 1 and not is_plain:
            refuse_parts()
        chosen = batches if part is None else [part(each) for each in batches]
        if self.accumulate == 1:
            return [(each, 1.0) for each in chosen]
        few = part is not None  # samples, maybe fewer than the batch has micro-batches
        return [piece for each in chosen for piece in split(each, self.accumulate, at_most=few)]

    def _accumulate(self, probe: Probe, number: int, differentiable: bool, around: Pass) -> Tensor:
        """The loss of the batch, from its micro-batches one after the other."""
        micro_batches = self._micro_batches(probe)
        is_closure = isinstance(self.loss_fn, Closure)
        total: Tensor | None = None
        for i, (micro_batch, share) in enumerate(micro_batches):
            is_last = i == len(micro_batches) - 1
            with around.around(is_last):
                output = self.loss_fn(micro_batch)
                if i == 0 and differentiable:
                    self._require_backward(is_closure)
                loss = checked_loss(output, differentiable=differentiable and not is_closure)
                assert loss.value is not None
                value = loss.value.detach() * share
                total = value if total is None else total + value
                if is_last:
                    around.announce(total)
                if differentiable and not is_closure:
                    self._differentiate(loss, share, probe)
            if not is_last:
                keep_gradients(self.weights)
            if loss.outputs is not None:
                self.outputs.keep(number, loss.outputs)
            if probe.observe is not None:
                probe.observe(loss.detached().each(outliving))
        assert total is not None
        return total

    def _require_backward(self, is_closure: bool) -> None:
        """Raise if a closure left no gradient, or `loss_fn` did."""
        has_gradients = any(p.grad is not None for p in self.weights)
        if is_closure and not has_gradients:
            raise RuntimeError(
                "a closure must call backward, and this one left no gradient: write "
                "loss.backward() before it returns the loss; or pass a loss_fn that takes the "
                "batch, and the batch: optimizer.step(loss_fn, batch)"
            )
        if has_gradients and not is_closure:
            raise RuntimeError(
                "loss_fn must not call backward: it returns the loss, and sampa differentiates it "
                "(once per probe); if it must, pass sampa.Closure(loss_fn)"
            )

    def _differentiate(self, loss: Loss, share: float, probe: Probe) -> None:
        objective = loss.value if probe.objective is None else probe.objective(loss)
        assert objective is not None
        objective = objective if share == 1.0 else objective * share
        (objective if self.scaler is None else self.scaler.scale(objective)).backward()

    @contextmanager
    def _wanting(self, wrt: Sequence[bool] | None) -> Iterator[bool]:
        """Let autograd skip the tensors that are not wanted; tells whether any is."""
        unwanted = (
            [] if wrt is None else [p for p, w in zip(self.weights, wrt, strict=True) if not w]
        )
        frozen = [p for p in unwanted if p.requires_grad]
        for p in frozen:
            p.requires_grad_(False)
        try:
            yield any(p.requires_grad for p in self.weights)
        finally:
            for p in frozen:
                p.requires_grad_(True)


def checked_loss(output: Any, *, differentiable: bool = True) -> Loss:
    """What `loss_fn` returned, with a scalar value that can be differentiated.

    Raises:
        TypeError: If it is neither a tensor nor a `Loss`.
        ValueError: If it is not a scalar, or has no graph.
    """
    loss = Loss(output) if isinstance(output, Tensor) else output
    if not isinstance(loss, Loss):
        raise TypeError(
            f"loss_fn must return the loss as a tensor (or a sampa.Loss), got "
            f"{type(output).__name__}; write `return F.cross_entropy(model(x), y)` without "
            ".item() and without a tuple"
        )
    value = loss.value
    if value is None:
        (per_sample,) = loss.need("the training loss", "per_sample")
        value = per_sample.mean()
    if value.numel() != 1:
        raise ValueError(
            f"loss_fn must return a scalar, got shape {tuple(value.shape)}; "
            "average over the batch with loss.mean()"
        )
    if differentiable and not value.requires_grad:
        raise ValueError(
            "loss_fn must return the loss with its graph, got a tensor that needs no gradient; "
            "do not detach it, compute it under no_grad, or call backward in it: sampa does that"
        )
    return replace(loss, value=value.reshape(()))
