"""The loss as a function of the weights: its value, gradient and curvature at any point.

All measures of flatness ask this, and nothing else touches the model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from sampa.execution.evaluate import Excursions, LossFn, checked_loss
from sampa.execution.guarded import uninterrupted
from sampa.execution.layers import Layers
from sampa.execution.randomness import derive_seed, seeded
from sampa.execution.wrapped import require_unsharded
from sampa.loss import Loss
from sampa.messages import require
from sampa.method import Move
from sampa.samples import batch_size, select
from sampa.torch_private import has_compiler
from sampa.vectors.vector import Vector, add

FORWARD_COST, GRADIENT_COST, PRODUCT_COST = 1 / 3, 1.0, 2.0
"""What a pass costs, in gradients: a backward pass is about two forward passes."""

Matrix = Literal["hessian", "gauss-newton"]

# What torch says where a layer's backward pass cannot be differentiated.
NOT_TWICE = (
    "is not implemented",
    "double backward",
    "once_differentiable",
    "does not require grad and does not have a grad_fn",
)


@dataclass(frozen=True)
class Part:
    """A batch, or some samples of one.

    Attributes:
        batch: The samples.
        share: Of all samples of the surface.
        number: Of the batch, which its randomness is a function of.
    """

    batch: Any
    share: float
    number: int


class PassCounter:
    """Counts passes in gradients over all samples."""

    def __init__(self) -> None:
        self.gradients = 0.0


class Surface:
    """The mean loss of some batches around the weights of a model.

    Attributes:
        weights: The parameters that are trained, in the model's order.
        share: Of all samples, for a surface of some of them.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: LossFn,
        batches: Iterable[Any],
        *,
        training: bool = False,
        normalize_logits: bool = False,
        seed: int = 0,
    ) -> None:
        require_unsharded("sampa.flatness", model)
        self.weights = [p for p in model.parameters() if p.requires_grad]
        require("model", type(model).__name__, bool(self.weights), "one with trainable parameters")
        self.share = 1.0
        self._model, self._loss_fn, self._seed = model, loss_fn, seed
        self._training, self._normalize_logits = training, normalize_logits
        self._layers, self._meter = Layers(model), PassCounter()
        self._parts, self._is_checked = list(_parts(list(batches))), False

    @property
    def gradients(self) -> float:
        """What was asked so far has cost this many gradients."""
        return self._meter.gradients

    def groups(self, m: int | Literal["batch"] | None) -> list[Surface]:
        """The surfaces of m samples each; of each batch; or (None) this one.

        Samples of different batches are never in one group, so the last of a batch may be smaller.
        """
        if m is None:
            return [self]
        if m == "batch":
            return [self._of(part) for part in self._parts]
        require("m", m, m >= 1, '>= 1, "batch" or None')
        return [self._of(piece) for part in self._parts for piece in _pieces(part, m)]

    def _of(self, part: Part) -> Surface:
        one = copy.copy(self)  # it shares the meter
        one.share = self.share * part.share
        one._parts = [Part(part.batch, 1.0, part.number)]
        return one

    # ---- what can be asked -------------------------------------------------------------------

    @uninterrupted
    def loss(self, move: Move | None = None, buffers: Vector | None = None) -> float:
        """The loss where `move` takes the weights, with other values for floating-point buffers."""
        total = 0.0
        with Excursions().to(move, self.weights), torch.no_grad():
            for part in self._passes(FORWARD_COST, buffers):
                total += part.share * self._value(part.batch, differentiable=False).item()
        return total

    @uninterrupted
    def gradient(self, move: Move | None = None) -> tuple[float, Vector]:
        """The loss and its gradient where `move` takes the weights."""
        total, gradient = 0.0, Vector([None] * len(self.weights))
        with Excursions().to(move, self.weights), torch.enable_grad():
            for part in self._passes(GRADIENT_COST):
                value = self._value(part.batch)
                total += part.share * value.item()
                found = torch.autograd.grad(value, self.weights, allow_unused=True)
                gradient = add(gradient, Vector(found), part.share)
        return total, gradient

    @uninterrupted
    def product(self, v: Vector, matrix: Matrix = "hessian") -> Vector:
        """The Hessian, or the Gauss-Newton matrix, of the loss at the weights, times v."""
        multiplied = self._hessian_product if matrix == "hessian" else self._gauss_newton_product
        total = Vector([None] * len(self.weights))
        with torch.enable_grad(), twice_differentiable():
            for part in self._passes(PRODUCT_COST):
                loss = checked_loss(self._loss_fn(part.batch))
                total = add(total, multiplied(loss, v), part.share)
        return total

    # ---- how ---------------------------------------------------------------------------------

    def _passes(self, cost: float, buffers: Vector | None = None) -> Iterator[Part]:
        """The parts one after the other, each with the model prepared for a pass."""
        devices = {p.device for p in self.weights}
        for part in self._parts:
            self._meter.gradients += cost * self.share * part.share
            seed = derive_seed(self._seed, "flatness", part.number)
            with (
                self._layers.one_pass(counts=False, evaluation=not self._training, values=buffers),
                seeded(seed, devices),
            ):
                torch.clear_autocast_cache()  # cast copies of the weights at another point
                yield part

    def _value(self, batch: Any, *, differentiable: bool = True) -> Tensor:
        loss = checked_loss(self._loss_fn(batch), differentiable=differentiable)
        if self._normalize_logits:
            logits, targets = loss.need("logit normalization", "logits", "targets")
            return F.cross_entropy(normalized_logits(logits), targets)
        assert loss.value is not None
        return loss.value

    def _check(self, along: Tensor | None) -> None:
        """Refuse a layer that autograd would silently leave out: once, since it walks the graph."""
        if along is not None and not self._is_checked:
            if any(node.name().endswith("::Error") for node in _nodes(along)):
                raise RuntimeError("an autograd function marked with @once_differentiable")
            self._is_checked = True

    def _hessian_product(self, loss: Loss, v: Vector) -> Vector:
        """H v = ∇⟨∇f, v⟩ (Pearlmutter, 1994)."""
        assert loss.value is not None
        along = _inner(_grad(loss.value, self.weights, graph=True), v)
        self._check(along)
        return Vector([None] * len(v) if along is None else _grad(along, self.weights))

    def _gauss_newton_product(self, loss: Loss, v: Vector) -> Vector:
        """G v = Jᵀ (∂²f/∂z²) J v, with J the Jacobian of the logits z (Schraudolph, 2002)."""
        (z,) = loss.need("the Gauss-Newton matrix", "logits")
        assert loss.value is not None
        (slope,) = _grad(loss.value, [z], graph=True)
        if slope is None:
            raise ValueError(
                "the Gauss-Newton matrix needs the logits that the loss is computed from, got "
                "others; write `z = model(x); return sampa.Loss(F.cross_entropy(z, y), logits=z)`"
            )
        # J v is the derivative of Jᵀ u with respect to u, which Jᵀ u is linear in.
        u = torch.zeros_like(z, requires_grad=True)
        along = _inner(_grad(z, self.weights, outputs=u, graph=True), v)
        self._check(along)
        if along is None:
            return Vector([None] * len(v))
        (j_v,) = _grad(along, [u])
        assert j_v is not None
        h_j_v = _grad(slope, [z], outputs=j_v)[0] if slope.requires_grad else None
        if h_j_v is None:  # the loss is linear in z
            return Vector([None] * len(v))
        return Vector(_grad(z, self.weights, outputs=h_j_v))


def _parts(batches: Sequence[Any]) -> Iterator[Part]:
    require("batches", "none", len(batches) > 0, "at least one")
    sizes = [batch_size(batch) for batch in batches] if len(batches) > 1 else [1]
    for number, (batch, size) in enumerate(zip(batches, sizes, strict=True)):
        yield Part(batch, size / sum(sizes), number)


def _pieces(part: Part, m: int) -> Iterator[Part]:
    size = batch_size(part.batch)
    for first in range(0, size, m):
        count = min(m, size - first)
        piece = select(part.batch, slice(first, first + count))
        yield Part(piece, part.share * count / size, part.number)


def _grad(
    value: Tensor,
    wrt: Sequence[Tensor],
    *,
    outputs: Tensor | None = None,
    graph: bool = False,
) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(
        value, wrt, outputs, create_graph=graph, retain_graph=True, allow_unused=True
    )


def _inner(a: Sequence[Tensor | None], v: Vector) -> Tensor | None:
    """⟨a, v⟩ with its graph; None if nothing of it depends on anything."""
    pairs = zip(a, v, strict=True)
    terms = [(s * t).sum() for s, t in pairs if s is not None and t is not None and s.requires_grad]
    return torch.stack(terms).sum() if terms else None


def _nodes(value: Tensor) -> Iterator[Any]:
    """The nodes of the graph behind a value."""
    waiting, seen = [value.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
            yield node


def normalized_logits(z: Tensor) -> Tensor:
    """(z − mean) / ‖z − mean‖ of each sample: a network cannot look flat by large logits."""
    centered = z - z.mean(dim=-1, keepdim=True)
    return centered / torch.linalg.vector_norm(centered, dim=-1, keepdim=True).clamp(min=1e-10)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Run what can be differentiated twice: attention by its formula, and no compiled graphs.

    Raises:
        RuntimeError: Where a layer has no second derivative, saying what may be done.
    """
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if has_compiler():  # else the next line would import it
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            yield
        except RuntimeError as error:
            if not any(text in str(error) for text in NOT_TWICE):
                raise
            raise RuntimeError(
                "curvature needs second derivatives, and a layer of the model has none "
                f"({error}); use its plain form (for cuDNN's recurrent layers "
                "torch.backends.cudnn.flags(enabled=False)), or sharpness and landscapes, which "
                "need first derivatives at most"
            ) from error
